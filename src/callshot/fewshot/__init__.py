"""Embeddings → scores: folds, supports, centroids, metrics and spreads.

Arrays only: no files, no clock, no printing.
"""
