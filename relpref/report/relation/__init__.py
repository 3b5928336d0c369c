"""The page of a relation: chapters on objects ranked for conditioning nodes."""
