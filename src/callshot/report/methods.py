"""Results of a corpus → a text on methods that can be put into a paper, with its references."""

from callshot.encoders.catalogue import list_citations
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
    citations = list_citations(results.evaluation.encoders)
    references = [PROTOCOL, CENTROIDS, *citations]
    return [f"[{number}] {text}" for number, text in enumerate(references, 1)]
