"""A model of calls: class means, background and the thresholds they give."""
