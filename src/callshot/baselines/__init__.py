<<<<<<< HEAD
"""Embeddings → scores of trained classifiers, on the folds, draws and metrics of the centroid."""
=======
"""Trained classifiers to compare with, on the folds, draws and metrics of the centroid."""
>>>>>>> frames
