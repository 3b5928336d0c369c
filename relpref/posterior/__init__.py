"""Posteriors: what engines hand back, how they are updated, stored, and handed to ArviZ."""
