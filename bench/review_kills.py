"""Kill the server of a review 20 times while two people make 2,000 decisions, or label boxes.

Every decision that was answered as saved must be in the journal, once, after each kill.
"""

import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import soundfile

from table import parser, show

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from callshot.review.journal import read_journal
from killed_review import Clicker, Labeller, decide_through_kills
from review_pages import ReviewServer
from served_review import make_scan


def main() -> None:
    """Run the trial and print a table."""
    found = parser(__doc__)
    found.add_argument("--decisions", type=int, default=2000)
    found.add_argument("--kills", type=int, default=20)
    found.add_argument("--label", action="store_true", help="boxes on a recording")
    arguments = found.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = run(
            Path(folder), arguments.decisions, arguments.kills, label=arguments.label
        )
    show("kill -9 of the server of a review", rows, arguments.json)


def run(
    folder: Path, decisions: int, kills: int, *, label: bool
) -> list[dict[str, object]]:
    """Return a row for each kill, and one for the end."""
    out = folder / "review"
    if label:
        soundfile.write(folder / "a.wav", np.zeros(80_000), 8000)
        server = ReviewServer(folder, "--out", str(out), command="label")
    else:
        server = ReviewServer(make_scan(folder), "--out", str(out))
    clicker = Labeller if label else Clicker
    rows: list[dict[str, object]] = []

    def check(answered: list[str]) -> None:
        entries = read_journal(out).entries
        counts = Counter(entry.uuid for entry in entries)
        rows.append(
            {
                "kill": len(rows) + 1,
                "answered as saved": len(answered),
                "in the journal": len(entries),
                "missing": len(set(answered) - counts.keys()),
                "twice": sum(count > 1 for count in counts.values()),
            }
        )

    clickers = decide_through_kills(
        server, ("ada", "bob"), 20, decisions, kills, check, clicker
    )
    rows[-1]["kill"] = "end"
    rows[-1]["sent again"] = sum(one.repeated for one in clickers)
    return rows


if __name__ == "__main__":
    main()
