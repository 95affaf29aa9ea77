"""Measure the report step of a study that was run: the first time, and again with another title.

Usage: python bench/report_step.py STUDY.toml [--before SRC] [--json FILE]

`--before` is the folder `src` of an earlier callshot, measured side by side. The study's own report
is not touched; what it keeps for later reports is made again.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from table import parser, show

PROCESSES = (1, 2)
KEPT = ("keys.json", "sounds-*.json")  # beside the note of the step


def cpu_s() -> float:
    """Return the CPU time of this process and of those that it started."""
    seconds = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        seconds += usage.ru_utime + usage.ru_stime
    return seconds


def run_child(path: Path, processes: int) -> None:
    """Make the report twice in a fresh folder, and print both times as JSON."""
    from callshot.study.plan import plan
    from callshot.study.study_file import read_study

    study = read_study(path)
    for pattern in KEPT:
        for kept in (study.work / "report").glob(pattern):
            kept.unlink()
    times = {}
    with tempfile.TemporaryDirectory() as folder:
        for title in ("first", "again"):
            report = replace(study.report, title=title)
            changed = replace(study, out=Path(folder) / "results", report=report)
            step = plan(changed, processes=processes)[-1]
            start_s = time.monotonic()
            start_cpu_s = cpu_s()
            step.make(lambda share, what: None)
            times[f"{title}, wall s"] = time.monotonic() - start_s
            times[f"{title}, CPU s"] = cpu_s() - start_cpu_s
    print(json.dumps(times))


def measure(study: Path, source: Path, processes: int) -> dict[str, float]:
    """Return the times of a callshot in a process of its own."""
    command = [sys.executable, __file__, str(study), "--child", str(processes)]
    environment = {**os.environ, "PYTHONPATH": str(source.absolute())}
    result = subprocess.run(
        command, env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    times: dict[str, float] = json.loads(result.stdout.splitlines()[-1])
    return times


def main() -> None:
    """Print one row per callshot and number of processes."""
    arguments = parser(__doc__)
    arguments.add_argument("study", type=Path, metavar="STUDY.toml")
    arguments.add_argument("--before", type=Path, metavar="SRC")
    arguments.add_argument("--child", type=int, metavar="PROCESSES")
    options = arguments.parse_args()
    if options.child is not None:
        run_child(options.study, options.child)
        return
    sources = {"this": Path(__file__).parents[1] / "src"}
    if options.before is not None:
        sources = {"before": options.before, **sources}
    rows: list[dict[str, object]] = []
    for processes in PROCESSES:
        for name, source in sources.items():
            times = measure(options.study, source, processes)
            rows.append({"callshot": name, "processes": processes, **times})
    show("Report step", rows, options.json)


if __name__ == "__main__":
    main()
