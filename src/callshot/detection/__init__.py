"""A few examples → a model → labels and events in recordings, and their scores.

An index has the vectors of all windows of recordings of any length.
"""
