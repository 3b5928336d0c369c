"""Experiments with active exploration (Kersting & Xu 2009, section 5): which score asks the better
questions.
"""
