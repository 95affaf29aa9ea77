"""Trained classifiers to compare with, on the folds, draws and metrics of the centroid."""
