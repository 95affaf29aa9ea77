"""Damaged annotation files: 10,000 of all formats, each read as what it was and as what it looks like.

Every one must end in a reading or in an error that names the file and, for text, the line; none may take over 2 s.
"""

import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from table import parser, show

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from mutations import LIMIT_S, Outcome, damaged, seeds, try_to_read


def outcomes(count: int) -> tuple[dict[str, list[Outcome]], list[str]]:
    """Read the files; return what became of them, by format, and what went wrong."""
    found: dict[str, list[Outcome]] = defaultdict(list)
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        for i, (seed, raw) in enumerate(damaged(count, seeds())):
            path = Path(folder) / seed.name
            path.write_bytes(raw)
            for format, row in ((seed.format, seed.format), ("auto", "auto")):
                try:
                    found[row].append(try_to_read(path, format))
                except Exception as error:
                    wrong.append(
                        f"file {i}, {seed.name} as {format}: {type(error).__name__}: {str(error)[:200]}"
                    )
    return found, wrong


def summarise(format: str, found: list[Outcome]) -> dict[str, object]:
    """Count what became of the files of one format."""
    readings = [outcome.reading for outcome in found if outcome.reading is not None]
    return {
        "format": format,
        "files": len(found),
        "parsed": len(readings),
        "annotations": sum(len(reading.annotations) for reading in readings),
        "rejected rows": sum(len(reading.rejects) for reading in readings),
        "refused": len(found) - len(readings),
        "slowest ms": max(outcome.seconds for outcome in found) * 1000,
        f"over {LIMIT_S:g} s": sum(outcome.seconds > LIMIT_S for outcome in found),
    }


def main() -> None:
    """Read everything, print the table and fail if a file ended in another way."""
    options = parser(__doc__)
    options.add_argument("--count", type=int, default=10_000)
    chosen = options.parse_args()
    outcomes(len(seeds()))  # import first
    found, wrong = outcomes(chosen.count)
    rows = [summarise(format, of_format) for format, of_format in found.items()]
    rows.append({"format": "neither parsed nor refused", "files": len(wrong)})
    show(
        f"bench/annotations: {chosen.count:,} damaged files, each read as its format and as auto",
        rows,
        chosen.json,
    )
    slow = sum(outcome.seconds > LIMIT_S for of_format in found.values() for outcome in of_format)
    if wrong or slow:
        raise SystemExit("\n".join([f"{slow} files took over {LIMIT_S:g} s", *wrong[:20]]))


if __name__ == "__main__":
    main()
