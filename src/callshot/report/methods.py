"""Results of a corpus → a text on methods that can be put into a paper, with its references."""

from callshot.fewshot.protocol import Protocol
from callshot.records import CorpusResults
from callshot.report.summary.context import say
from callshot.version import __version__

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
    score = "log-odds" if protocol.score == "log" else "softmax"
    return [
        say("data", results),
        say("method", evaluation, evaluation.curve["k"], score),
        say("sampling", evaluation.spreads, protocol, __version__),
    ]


def list_references(results: CorpusResults) -> list[str]:
    """Return the references of the methods section, numbered from 1 on."""
    references = [PROTOCOL, CENTROIDS]
    for encoder in results.evaluation.encoders:
        for start, reference in ENCODERS.items():
            if encoder.startswith(start) and reference not in references:
                references.append(reference)
    return [f"[{number}] {text}" for number, text in enumerate(references, 1)]
