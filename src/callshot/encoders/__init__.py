"""SEGMENTS → EMBEDDINGS: MFCC; tables that any encoder may have written, and the small files beside them."""
