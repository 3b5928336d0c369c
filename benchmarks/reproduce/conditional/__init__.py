"""The experiments of Pahikkala et al. 2010 on conditional ranking, and some of our own."""
