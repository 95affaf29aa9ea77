"""SEGMENTS → EMBEDDINGS: the catalogue, models, weights, windows, the store; tables of embeddings."""
