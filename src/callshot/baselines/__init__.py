"""Embeddings → scores of trained classifiers, on the folds, draws and metrics of the centroid."""
