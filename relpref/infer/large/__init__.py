"""Preference programs with more entities than a matrix has room for."""
