"""Whether an approximate posterior is the exact one: by importance weights, and by NUTS."""
