"""Strategies tried against truths that are known: how many answers they would save."""
