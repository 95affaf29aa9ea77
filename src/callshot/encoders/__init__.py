"""Encoders: segments come in, embeddings go out (catalogue, models, weights, store)."""
