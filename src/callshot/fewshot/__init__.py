"""EMBEDDINGS → SCORES: folds, supports, centroids, metrics and spreads. Arrays only: no files, clock or printing."""
