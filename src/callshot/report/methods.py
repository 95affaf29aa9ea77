"""Results of a corpus → a text on methods that can be put into a paper, with its references."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict

from callshot.errors import count_text, printable
from callshot.fewshot.protocol import Protocol
from callshot.records import CorpusResults
from callshot.records.terms import NO_LICENCE
from callshot.version import __version__

INTERVALS = {
    "per-query": "{bootstraps:,} bootstrap samples in which every query has its own draws",
    "shared": "{shared_draws:,} labelled sets that all queries share",
    "total": "{total_samples:,} samples of labelled sets and recordings",
}
PROTOCOL = (
    "C. M. Geldenhuys, T. R. Niesler: A Parameter-Free Few-Shot Evaluation for Elephant "
    "Vocalisation Classification."
)
CENTROIDS = (
    "J. Snell, K. Swersky, R. Zemel (2017): Prototypical Networks for Few-shot Learning. "
    "Advances in Neural Information Processing Systems 30."
)
# By the start of an encoder's name.
ENCODERS = {
    "mfcc": (
        "S. Davis, P. Mermelstein (1980): Comparison of Parametric Representations for "
        "Monosyllabic Word Recognition. IEEE Transactions on Acoustics, Speech, and Signal "
        "Processing 28(4)."
    ),
    "birdnet": (
        "S. Kahl, C. M. Wood, M. Eibl, H. Klinck (2021): BirdNET: A deep learning solution for "
        "avian diversity monitoring. Ecological Informatics 61, 101236."
    ),
    "perch": (
        "B. Ghani, T. Denton, S. Kahl, H. Klinck (2023): Global birdsong embeddings enable "
        "superior transfer learning for bioacoustic classification. Scientific Reports 13, 22876."
    ),
    "hubert": (
        "W.-N. Hsu et al. (2021): HuBERT: Self-Supervised Speech Representation Learning by "
        "Masked Prediction of Hidden Units. IEEE/ACM Transactions on Audio, Speech, and Language "
        "Processing 29."
    ),
    "yamnet": (
        "M. Plakal, D. Ellis: YAMNet, TensorFlow Model Garden. Trained on AudioSet: J. F. Gemmeke "
        "et al. (2017): Audio Set. ICASSP."
    ),
}


def describe_methods(results: CorpusResults, protocol: Protocol) -> list[str]:
    """Return the paragraphs of a methods section: data, evaluation, intervals."""
    evaluation = results.evaluation
    shots = evaluation.curve["k"]
    counts = asdict(protocol)
    data = (
        f"The corpus {results.corpus} has {count_text(results.evaluated.count, 'call')} of "
        f"{count_text(len(evaluation.eligible_classes), 'type')} in "
        f"{count_text(results.stats.recordings.count, 'recording')}. We left out "
        f"{count_text(len(evaluation.excluded_classes), 'call type')} and "
        f"{count_text(len(results.rejects), 'row or file', 'rows or files')}. "
        f"We split the recordings into {evaluation.folds.count} folds "
        f"({evaluation.folds.origin}), so that no recording is on both sides of a split."
    )
    score = "log-odds" if protocol.score == "log" else "softmax"
    method = (
        f"Frozen encoders gave one vector per call: {', '.join(evaluation.encoders)}. "
        "For every query we drew k examples per call type from the other folds, "
        f"k = {min(shots)} to {max(shots)} [1]. We scored a query by its squared distance to "
        "the mean of each call type's examples [2]. "
        f"We ranked queries by the {score} and averaged the precision over call types (mAP). "
        f"Every call type has k different examples up to k* = {evaluation.complete_shots}; "
        f"there were {evaluation.queries:,} queries."
    )
    intervals = [
        "Intervals run from the 1st to the 99th percentile.",
        *(
            f"The spread {spread} is over {INTERVALS[spread].format(**counts)}."
            for spread in evaluation.spreads
        ),
        "Differences between encoders have simultaneous 98 % intervals over all pairs and all k "
        "up to k*.",
    ]
    if protocol.permutations:
        intervals.append(
            f"We tested against chance with {protocol.permutations} permutations of labels over "
            "recordings."
        )
    seed = f"The seed was {protocol.seed}; callshot {__version__} computed all numbers."
    return [data, method, " ".join([*intervals, seed])]


def list_references(results: CorpusResults) -> list[str]:
    """Return the references of the methods section, numbered from 1 on."""
    references = [PROTOCOL, CENTROIDS]
    for encoder in results.evaluation.encoders:
        for start, reference in ENCODERS.items():
            if encoder.startswith(start) and reference not in references:
                references.append(reference)
    return [f"[{number}] {text}" for number, text in enumerate(references, 1)]


def describe_licences(licences: Mapping[str, str]) -> Iterator[str]:
    """Yield the licences of the weights of encoders, if any have one.

    >>> list(describe_licences({"a": "Apache-2.0", "b": "CC BY-NC 4.0", "c": "Apache-2.0"}))
    ['Licences of weights: Apache-2.0 (a, c); CC BY-NC 4.0 (b).']
    """
    encoders: dict[str, list[str]] = {}
    for encoder, licence in licences.items():
        if licence != NO_LICENCE:
            encoders.setdefault(licence, []).append(encoder)
    texts = [f"{licence} ({', '.join(names)})" for licence, names in encoders.items()]
    if texts:
        yield printable(f"Licences of weights: {'; '.join(texts)}.")
