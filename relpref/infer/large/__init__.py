"""Preference programs with more items than a matrix has room for."""
