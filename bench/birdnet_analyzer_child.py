"""Train BirdNET-Analyzer's custom classifier on clips, and score vectors of windows with it.

    python bench/birdnet_analyzer_child.py CLIPS WEIGHTS VECTORS OUT [OPTION=VALUE …]

Runs in an environment of BirdNET-Analyzer, for bench/other_tools.py. Clips are read, embedded and
learned by its `train`, with its defaults. To export the classifier, it needs BirdNET as a
SavedModel; instead, the trained layer scores vectors that BirdNET gave, as the export would.
"""

import sys
from pathlib import Path

import birdnet_analyzer.config as cfg
import keras
import numpy as np
from birdnet_analyzer import model, utils
from birdnet_analyzer.train.core import train


def main() -> None:
    """Write the confidence of each class, by name, in each window."""
    clips, weights, vectors_file, out = sys.argv[1:5]
    options = dict(text.split("=") for text in sys.argv[5:])
    kept = {}

    def keep(classifier: keras.Model, path: str, labels: list[str], **_: str) -> None:
        kept.update(classifier=classifier, labels=labels)

    utils.ensure_model_exists = lambda: None
    model.save_linear_classifier = keep
    cfg.BIRDNET_MODEL_PATH = weights
    keras.utils.set_random_seed(cfg.RANDOM_SEED)
    train(
        clips,
        str(Path(out).with_suffix("")),
        epochs=int(options.get("epochs", cfg.TRAIN_EPOCHS)),
        learning_rate=float(options.get("learning_rate", cfg.TRAIN_LEARNING_RATE)),
    )
    logits = kept["classifier"].predict(np.load(vectors_file), verbose=0)
    scores = model.flat_sigmoid(logits, sensitivity=-1, bias=cfg.SIGMOID_SENSITIVITY)
    np.savez(out, scores=scores, labels=kept["labels"])


if __name__ == "__main__":
    main()
