"""How long a step may take before it ever ran, at a pace measured on two cores."""

from contextlib import suppress
from dataclasses import dataclass

from callshot.baselines.options import CHOSEN_CELL
from callshot.corpus.recordings import AUDIO_SUFFIXES, find_files
from callshot.corpus.segment_table import SEGMENTS
from callshot.errors import InputError
from callshot.fewshot.permutation import TEST_DRAWS, TESTED_SHOTS
from callshot.records.table_files import read_parquet
from callshot.study.steps import Step
from callshot.study.study_file import Study

# Seconds of work for a second of audio.
ENCODER_PACE = {
    "mfcc": 0.001,
    "random": 0.0005,
    "yamnet": 0.005,
    "birdnet": 0.015,
    "hubert": 0.05,
}
OTHER_ENCODER_PACE = 0.1
READING = 2e-9  # seconds for a byte of audio
BYTES_S = 64_000  # of a second of audio, where nothing better is known
EPISODE = 2.5e-9  # seconds for a query, draw, shot and class
LOGISTIC = 0.01  # seconds for a segment
LOGISTIC_FIT = 2e-4  # seconds for a logistic fit at some k
LOGISTIC_NUMBER = 1.2e-7  # seconds for each of its labels² × dimensions
NETWORK = 0.01  # seconds for a segment, network and split
END_TO_END = 0.15  # seconds for a second of audio and split
FOLD_STEP = 2.0
REPORT_PER_CORPUS = 8.0
FOLDS = 5


@dataclass(frozen=True)
class _Size:
    """How much there is in a corpus."""

    segments: int
    seconds: float
    labels: int


def estimate_s(study: Study, step: Step) -> float:
    """Return the seconds that a step may take; a rough guess, never less than one."""
    return max(1.0, _estimate(study, step))


def _estimate(study: Study, step: Step) -> float:
    if step.kind == "report":
        return REPORT_PER_CORPUS * len(study.corpora)
    if step.kind == "fold":
        return FOLD_STEP
    if step.kind == "segment":
        return _audio_bytes(study, step) * READING
    size = _corpus_size(study, step)
    if step.kind == "evaluate":
        return _evaluation_s(study, size)
    if step.kind == "logistic":
        return LOGISTIC * size.segments
    if step.kind == "logistic-per-k":
        return _logistic_per_k_s(study, step, size)
    if step.kind == "recurrent":
        cells = 4 if study.baselines.cell == CHOSEN_CELL else 2
        networks = study.baselines.seeds * cells
        return NETWORK * FOLDS * networks * size.segments
    if step.kind == "end-to-end":
        return END_TO_END * FOLDS * size.seconds
    names = {encoder.title: encoder.name for encoder in study.encoders}
    family = names[step.encoder].partition("-")[0].partition("[")[0]
    return ENCODER_PACE.get(family, OTHER_ENCODER_PACE) * size.seconds


def _evaluation_s(study: Study, size: _Size) -> float:
    """Count queries × draws × shots × classes, with the bootstrap's share and permutations."""
    protocol = study.protocol
    shots = len(protocol.shots)
    samples = [protocol.samples(spread) for spread in ("shared", "total")]
    draws = protocol.draws + protocol.bootstraps / 4 + sum(samples)
    tested_shots = min(shots, len(TESTED_SHOTS))
    tested_draws = protocol.permutations * TEST_DRAWS
    draws += (protocol.repeat_folds - 1) * protocol.shared_draws
    if protocol.seeds > 1:
        draws += protocol.repeat_folds * protocol.seeds**2
    scores = (draws * shots + tested_draws * tested_shots) * size.labels
    return 1.0 + EPISODE * size.segments * scores


def _logistic_per_k_s(study: Study, step: Step, size: _Size) -> float:
    baselines = study.baselines
    draws = min(baselines.draws, study.protocol.shared_draws)
    draws *= 2 if "total" in baselines.spreads(study.protocol) else 1
    fits = FOLDS * len(study.protocol.shots) * draws
    dimensions = {
        encoder.title: encoder.joined_encoder.dimension for encoder in study.encoders
    }
    numbers = size.labels**2 * dimensions[step.encoder]
    return fits * (LOGISTIC_FIT + LOGISTIC_NUMBER * numbers)


def _corpus_size(study: Study, step: Step) -> _Size:
    """Return the size of a corpus by its segments, or by its files before these are cut."""
    path = study.work / "segment" / step.corpus / SEGMENTS
    with suppress(InputError):
        table = read_parquet(path, ["start_s", "end_s", "label"])
        durations = table["end_s"] - table["start_s"]
        labels = table["label"].n_unique()
        return _Size(table.height, float(durations.sum()), labels)
    seconds = _audio_bytes(study, step) / BYTES_S
    return _Size(int(seconds / 4) + 1, seconds, 10)


def _audio_bytes(study: Study, step: Step) -> int:
    corpus = {corpus.name: corpus for corpus in study.corpora}[step.corpus]
    audio = corpus.audio
    if audio.is_file():
        return audio.stat().st_size
    size = 0
    for file in find_files(audio, follow_links=corpus.annotation_options.follow_links):
        if file.suffix.lower() in AUDIO_SUFFIXES and file.is_file():
            size += file.stat().st_size
    return size
