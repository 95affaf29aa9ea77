"""Tables of embeddings, fold files, category files, and imports from other tools."""
