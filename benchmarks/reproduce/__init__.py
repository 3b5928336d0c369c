"""The experiments of Kersting & Xu 2009, on data that can be had."""
