"""Events against annotations: precision, recall and call density."""
