"""Recordings and annotations, in the formats people have → segments and rejects."""
