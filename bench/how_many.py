"""How many examples are enough: mAP by k, and what more examples gain.

    python bench/how_many.py TABLE...

TABLES are files that `callshot embed` wrote; those of one corpus share its segments. For each there
is a row: the mean mAP of one labelled set of k examples per call type, the gains from 1 to 5 and
from 5 to 20, the share of calls named right with 5 examples, and the 98 % interval of mAP with 5
examples on other recordings (`total`). k* is how many examples the rarest call type has in every
split. `chance` is the mAP of a random ranking.
"""

from pathlib import Path

from callshot.fewshot.evaluate import evaluate_tables
from callshot.fewshot.protocol import Protocol
from callshot.tables.embedding_tables import read_table
from callshot.vectors import Vectors
from table import parser, show

SHOTS = (1, 2, 5, 10, 20)


def describe_table(table: Vectors, corpus: str, classifier: str) -> dict[str, object]:
    """Evaluate a table; return its row."""
    protocol = Protocol(
        shots=SHOTS,
        classifiers=(classifier,),
        spreads=("shared", "total"),
        permutations=0,
    )
    result = evaluate_tables([table], protocol, corpus=corpus)
    curve = result.curve.filter(spread="total", scoring="all", classifier=classifier)
    scores = curve.filter(metric="map")
    means = dict(scores.select("k", "mean").rows())
    names = dict(curve.filter(metric="accuracy").select("k", "mean").rows())
    low, high = scores.filter(k=5).select("p01", "p99").row(0)
    row: dict[str, object] = {"corpus": corpus, "encoder": table.encoder}
    row |= {f"k = {k}": f"{means[k]:.2f}" for k in SHOTS}
    row["1 to 5"] = f"{means[5] - means[1]:+.2f}"
    row["5 to 20"] = f"{means[20] - means[5]:+.2f}"
    row["named right"] = f"{names[5]:.2f}"
    row["interval"] = f"{low:.2f} to {high:.2f}"
    row["chance"] = f"{scores['chance'][0]:.2f}"
    row["types"] = sum(one.eligible for one in result.classes)
    row["k*"] = result.complete_shots
    return row


def main() -> None:
    """Evaluate the tables, and print a row for each."""
    arguments = parser(__doc__)
    arguments.add_argument("tables", type=Path, nargs="+", metavar="TABLE")
    arguments.add_argument("--classifier", default="centroid")
    options = arguments.parse_args()
    rows = []
    for path in options.tables:
        table = read_table(path)
        corpus = path.stem.partition("-")[0]
        rows.append(describe_table(table, corpus, options.classifier))
    show("mAP with k examples per call type", rows, options.json)


if __name__ == "__main__":
    main()
