"""A model at work: windows of recordings become events."""
