"""The experiments of the papers, on data that can be had: here Kersting & Xu 2009, the others in
folders of their own.
"""
