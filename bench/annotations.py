"""Read 10,000 damaged annotation files of all formats, in their own format and as "auto".

Each file must give annotations, or an error with the file and, for text, the line, within 2 s.
"""

import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from table import parser, show

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from mutations import LIMIT_S, Outcome, damaged, seeds, try_to_read


def read_damaged(count: int) -> tuple[dict[str, list[Outcome]], list[str]]:
    """Return the outcomes of damaged files by format, and descriptions of failures."""
    outcomes = defaultdict[str, list[Outcome]](list)
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        for i, (seed, raw) in enumerate(damaged(count, seeds())):
            path = Path(folder) / seed.name
            path.write_bytes(raw)
            for format in (seed.format, "auto"):
                try:
                    outcomes[format].append(try_to_read(path, format))
                except Exception as error:
                    reason = f"{type(error).__name__}: {str(error)[:200]}"
                    failures.append(f"file {i}, {seed.name} as {format}: {reason}")
    return outcomes, failures


def count_slow(outcomes: list[Outcome]) -> int:
    """Return the number of files that took too long."""
    return sum(outcome.seconds > LIMIT_S for outcome in outcomes)


def summarise(format: str, outcomes: list[Outcome]) -> dict[str, object]:
    """Return a row of the table: counts for one format."""
    annotation_files = [
        outcome.annotation_file
        for outcome in outcomes
        if outcome.annotation_file is not None
    ]
    return {
        "format": format,
        "files": len(outcomes),
        "parsed": len(annotation_files),
        "annotations": sum(len(file.rows) for file in annotation_files),
        "rejected rows": sum(len(file.rejects) for file in annotation_files),
        "refused": len(outcomes) - len(annotation_files),
        "slowest ms": max(outcome.seconds for outcome in outcomes) * 1000,
        f"over {LIMIT_S:g} s": count_slow(outcomes),
    }


def main() -> None:
    """Read all files, print the table, and fail if a file failed or was slow."""
    options = parser(__doc__)
    options.add_argument("--count", type=int, default=10_000)
    arguments = options.parse_args()
    read_damaged(len(seeds()))  # import everything first
    outcomes, failures = read_damaged(arguments.count)
    rows = [summarise(format, group) for format, group in outcomes.items()]
    rows.append({"format": "neither parsed nor refused", "files": len(failures)})
    files = f"{arguments.count:,} damaged files"
    show(
        f"bench/annotations: {files}, each read as its format and as auto",
        rows,
        arguments.json,
    )
    slow = sum(map(count_slow, outcomes.values()))
    if failures or slow:
        raise SystemExit(
            "\n".join([f"{slow} files took over {LIMIT_S:g} s", *failures[:20]])
        )


if __name__ == "__main__":
    main()
