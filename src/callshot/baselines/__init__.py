"""EMBEDDINGS → THE SCORES OF TRAINED CLASSIFIERS, under the folds, draws and metrics of the centroid."""
