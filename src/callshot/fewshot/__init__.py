"""EMBEDDINGS → SCORES: folds, supports, centroids, metrics and their spread. Arrays only: no files, no clock, no printing."""
