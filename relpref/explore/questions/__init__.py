"""Which questions may be asked, which is the best of them, and when to stop."""
