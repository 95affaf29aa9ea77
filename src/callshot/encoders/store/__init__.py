"""The store that keeps embeddings by content, so that nothing is computed twice."""
