"""The paper on one page: read → fold → evaluate → report.

    tables = read_tables(paths)              vectors, with a label and a recording each
    folds = choose_folds(tables[0], …)       grouped by recording; audited
    result = evaluate(tables, protocol)      k-shot curves with intervals, for every encoder
    write_results(staging, result, …)        plain files, all or nothing

Here the rooms meet; each step is theirs.
"""

from collections.abc import Sequence
from pathlib import Path

from callshot.encoders.sidecars import read_categories, read_folds
from callshot.encoders.table import read_tables, table_corpus
from callshot.fewshot.evaluate import Report, choose_folds, evaluate
from callshot.fewshot.protocol import Protocol
from callshot.records import Evaluation
from callshot.report.figures import draw_sweep
from callshot.report.provenance import tell_file, tell_provenance
from callshot.report.results import open_results, write_results


def evaluate_files(
    paths: Sequence[Path],
    out: Path,
    protocol: Protocol,
    *,
    folds: int | None = None,
    fold_file: Path | None = None,
    categories: Path | None = None,
    corpus: str | None = None,
    threads: int | None = None,
    memory: int | None = None,
    figure: bool = True,
    report: Report = lambda done, what: None,
) -> Evaluation:
    """Read tables, evaluate them, and write the results to a directory; see `evaluate` for the options."""
    with open_results(out) as staging:
        tables = read_tables(paths)
        given = read_folds(fold_file, tables[0]) if fold_file is not None else None
        groups = read_categories(categories, tables[0]) if categories is not None else None
        others = {"folds": fold_file, "categories": categories}
        files = [tell_file(path, encoder=t.encoder, role="table") for path, t in zip(paths, tables, strict=True)]
        files += [tell_file(path, role=role) for role, path in others.items() if path is not None]
        name = corpus or table_corpus(paths[0]) or paths[0].absolute().parent.name or "corpus"
        chosen = choose_folds(tables[0], folds, given, fold_file)
        result = evaluate(
            tables,
            protocol,
            folds=chosen,
            categories=groups,
            corpus=name,
            threads=threads,
            memory=memory,
            report=report,
        )
        options = {"folds": folds, "corpus": corpus, "threads": threads, "memory": memory, "figure": figure}
        provenance = tell_provenance(result, protocol, files, options)
        write_results(staging, result, provenance, draw_sweep if figure else None)
    return result
