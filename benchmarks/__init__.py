"""Timings and accuracy of relpref and its peers, side by side in one run: ``python -m
benchmarks``.
"""
