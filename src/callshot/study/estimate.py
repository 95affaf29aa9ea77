"""How long a step may take, before it ever ran: from what there is to do, at a pace measured on two ordinary cores."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import polars as pl

from callshot.baselines.run import CHOSEN
from callshot.corpus.recordings import AUDIO_SUFFIXES, find_files
from callshot.corpus.segment_table import SEGMENTS
from callshot.study.file import Study
from callshot.study.step_cache import Step

# Seconds of work for a second of audio.
PACES = {"mfcc": 0.001, "random": 0.0005, "birdnet": 0.015, "hubert": 0.05, "perch": 0.1, "": 0.1}
READING = 2e-9  # seconds for a byte of audio
BYTES_S = 64_000  # of a second of audio, where nothing better is known
EPISODE = 2.5e-9  # seconds for a query, draw, shot and class
FIT, PER_NUMBER = (
    2e-4,
    1.2e-7,
)  # seconds for a logistic fit at some k, and for its labels² × dimensions
NETWORK = 0.01  # seconds for a segment, network and split
HEARING = 0.15  # seconds for a second of audio and split
FOLDS = 5


def estimate_s(study: Study, step: Step) -> float:
    """Return the seconds that a step may take; a rough guess, never less than one."""
    guess = GUESSES.get(step.kind)
    return max(
        1.0,
        guess(study, step)
        if guess is not None
        else 2.0
        if step.kind == "fold"
        else 8.0 * len(study.corpora),
    )


def _segment_s(study: Study, step: Step) -> float:
    return _audio_bytes(_audio(study, step)) * READING


def _embed_s(study: Study, step: Step) -> float:
    pace = next((pace for name, pace in PACES.items() if step.encoder.startswith(name)), PACES[""])
    return pace * _spans(study, step)[1]


def _evaluate_s(study: Study, step: Step) -> float:
    """Count queries × draws × shots × classes, and the bootstrap's share of it."""
    protocol, (segments, _, labels) = study.protocol, _spans(study, step)
    draws = protocol.draws + protocol.bootstraps / 4 + protocol.shared_draws
    return 1.0 + EPISODE * segments * draws * len(protocol.shots) * labels


def _logistic_s(study: Study, step: Step) -> float:
    return 0.01 * _spans(study, step)[0]


def _logistic_shots_s(study: Study, step: Step) -> float:
    fits = (
        FOLDS * len(study.protocol.shots) * min(study.training.draws, study.protocol.shared_draws)
    )
    dimensions = next(
        encoder.spec.dimension for encoder in study.encoders if encoder.told == step.encoder
    )
    return fits * (FIT + PER_NUMBER * _spans(study, step)[2] ** 2 * dimensions)


def _recurrent_s(study: Study, step: Step) -> float:
    networks = study.training.seeds * (4 if study.training.cell == CHOSEN else 2)
    return NETWORK * FOLDS * networks * _spans(study, step)[0]


def _end_to_end_s(study: Study, step: Step) -> float:
    return HEARING * FOLDS * _spans(study, step)[1]


def _spans(study: Study, step: Step) -> tuple[int, float, int]:
    """Return how many segments a corpus has, their seconds, and their labels; by its files where none were cut yet."""
    with suppress(OSError, pl.exceptions.PolarsError):
        table = pl.read_parquet(
            study.work / "segment" / step.corpus / SEGMENTS, columns=["start_s", "end_s", "label"]
        )
        return (
            table.height,
            float((table["end_s"] - table["start_s"]).sum()),
            table["label"].n_unique(),
        )
    seconds = _audio_bytes(_audio(study, step)) / BYTES_S
    return int(seconds / 4) + 1, seconds, 10


def _audio(study: Study, step: Step) -> Path:
    return next(corpus.audio for corpus in study.corpora if corpus.name == step.corpus)


def _audio_bytes(audio: Path) -> int:
    files = (
        [audio] if audio.is_file() else [f for f in find_files(audio) if f.suffix.lower() in AUDIO_SUFFIXES]
    )
    return sum(file.stat().st_size for file in files if file.is_file())


GUESSES: dict[str, Callable[[Study, Step], float]] = {
    "segment": _segment_s,
    "embed": _embed_s,
    "sequence": _embed_s,
    "evaluate": _evaluate_s,
    "logistic": _logistic_s,
    "logistic-shots": _logistic_shots_s,
    "recurrent": _recurrent_s,
    "end-to-end": _end_to_end_s,
    "published": _embed_s,
}
