"""Encoders: one module per family of models, each with its EncoderSpecs in ENCODERS."""
