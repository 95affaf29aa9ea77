"""The paper on one page: read → fold → evaluate → report.

tables = read_tables(paths)              vectors, with a label and a recording each
folds = choose_folds(tables[0], …)       grouped by recording; audited
result = evaluate(tables, protocol)      k-shot curves with intervals, for every encoder
results.write(result, provenance)        plain files, all or nothing
"""

from collections.abc import Sequence
from pathlib import Path

from callshot.encoders.sidecars import read_categories, read_folds
from callshot.encoders.table import read_tables, table_corpus
from callshot.errors import InputError, OptionError
from callshot.fewshot.evaluate import Report, evaluate
from callshot.fewshot.folds import give_folds, make_folds
from callshot.fewshot.protocol import Protocol
from callshot.records import Embeddings, Evaluation, Folds, IntArray
from callshot.report.figures import draw_sweep
from callshot.report.provenance import tell_file, tell_provenance
from callshot.report.results import open_results


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
    with open_results(out) as results:
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
        results.write(result, provenance, draw_sweep if figure else None)
    return result


def choose_folds(
    embeddings: Embeddings, count: int | None = None, given: IntArray | None = None, source: Path | None = None
) -> Folds:
    """Take the folds that are given, with the table or in the file `source`, or build them: 5 unless said otherwise."""
    fold = embeddings.fold if given is None else given
    if fold is None:
        return make_folds(embeddings.label, embeddings.recording, 5 if count is None else count)
    where = f"{embeddings.source if source is None else source}: column fold"
    try:
        folds = give_folds(embeddings.recording, fold)
    except InputError as error:
        raise type(error)(f"{where}: {error}") from None
    if count is not None and folds.count != count:
        raise OptionError(f"{where} has {folds.count} folds, the option says {count}; leave one out")
    return folds
