"""The page of a classifier: chapters on classes of rankings, or of edges of a relation."""
