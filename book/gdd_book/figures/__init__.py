"""Labelled arrays in, a figure or a table out; one file for each group of chapters."""
