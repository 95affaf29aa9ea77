"""A few examples → a model → labels and events in recordings, and their scores."""
