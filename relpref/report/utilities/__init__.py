"""The page of a ranking: chapters on the utilities of labelled entities."""
