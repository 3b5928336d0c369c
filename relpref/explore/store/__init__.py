"""The answers of a run on disk."""
