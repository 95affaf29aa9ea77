"""Examples of calls become a model."""
