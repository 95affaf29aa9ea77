"""The files that the steps of a study wrote → tables, figures, and a page."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path

import polars as pl

from callshot.baselines.run import BaselineResults
from callshot.corpus.segment_table import (
    REJECTS,
    SEGMENTS,
    measure_durations,
    read_rejects,
    read_segments,
    read_stats,
)
from callshot.corpus.segments import audio_root
from callshot.fewshot.differences import add_baselines
from callshot.records import CorpusResults, Evaluation, Progress
from callshot.records.frames import BASELINES, REFINEMENT, concat_frames
from callshot.report.choices import list_queries
from callshot.report.figures.figure_io import open_drawing_workers
from callshot.report.summary import write_summary
from callshot.report.write_report import write_report
from callshot.results import EarlierFiles, open_output_folder
from callshot.study.file_steps import (
    REJECTS_SUFFIX,
    SEGMENTS_INFO,
    read_baseline_results,
)
from callshot.study.steps import (
    FIRST_KINDS,
    Step,
    describe_equal_encoders,
    is_measured,
    read_json,
)
from callshot.study.study_file import Study, StudyCorpus
from callshot.tables.embedding_tables import read_table
from callshot.tables.evaluation_files import PROVENANCE, merge_results, read_results
from callshot.tables.fold_files import read_categories, read_reference_scores


def report_files(
    study: Study, steps: Sequence[Step], keys: Path, processes: int, progress: Progress
) -> list[str]:
    """Write the tables, figures and page of a study, and all its numbers; return the file names.

    `steps` are those whose files are read. `processes` draw figures. The file `keys` keeps the keys
    of the files in the last report: files whose key did not change are not made again.
    """
    is_first = not keys.exists()  # later, few figures change
    earlier = EarlierFiles(study.out, keys)
    drawing = processes if study.report.figures else 1
    with (
        open_drawing_workers(drawing, start_now=is_first) as workers,
        open_output_folder(study.out, (), PROVENANCE, owner=study.owner) as output,
    ):
        licences = {
            encoder.title: encoder.joined_encoder.licence for encoder in study.encoders
        }
        results = {}
        summaries = {}
        segments = {}
        facts = {}
        for corpus in study.corpora:
            name = corpus.name
            corpus_steps = [step for step in steps if step.corpus == name]
            folder = corpus_steps[0].folder  # of the segments
            results[name] = read_corpus_results(study, corpus, corpus_steps)
            target = study.report.target
            summaries[name] = write_summary(results[name], target, licences)
            spans = read_segments(folder / SEGMENTS)
            segments[name] = replace(spans, root=audio_root(corpus.audio))
            facts[name] = read_json(folder / SEGMENTS_INFO)
        scored = [step for step in steps if step.kind not in ("segment", "embed")]
        measured = [step.folder for step in scored if is_measured(step.folder)]
        provenance = {
            "study": study.text,
            "title": study.report.title,
            "encoders": {s.encoder: s.options for s in steps if s.kind == "embed"},
            "licences": licences,
            "segments": facts,
            "steps": [read_json(folder / PROVENANCE) for folder in measured],
            "answers": {name: asdict(answer) for name, answer in summaries.items()},
        }

        def make_files(folder: Path) -> list[str]:
            """Write all files to a folder; return their names."""
            inputs = (results, study.report, summaries, provenance, segments)
            return write_report(folder, *inputs, workers, earlier, progress)

        written = output.write(make_files, provenance)
        earlier.save()
    return [path.relative_to(study.out).as_posix() for path in written]


def read_corpus_results(
    study: Study, corpus: StudyCorpus, steps: Sequence[Step]
) -> CorpusResults:
    """Read what the steps of a corpus wrote, the segments first; compare encoders."""
    folder = steps[0].folder  # of the segments
    embeds = [step for step in steps if step.kind == "embed"]
    evaluations = [step.folder for step in steps if step.kind == "evaluate"]
    measured = [path for path in evaluations if is_measured(path)]
    whole = merge_results([read_results(path) for path in measured])
    names = set(whole.segments["segment"])
    tables = [read_table(embed.table).only(names) for embed in embeds]
    tables = [table for table in tables if table.encoder in whole.encoders]

    trained = [
        read_baseline_results(step.folder)
        for step in steps
        if step.kind not in FIRST_KINDS and is_measured(step.folder)
    ]
    baselines = concat_frames([results.baselines for results in trained], BASELINES)
    if study.references is not None:
        references = read_reference_scores(
            study.references, study.corpus_names, study.encoder_titles
        )
        own_references = references.filter(corpus=corpus.name)
        baselines = join_references(baselines, own_references)

    reference = study.protocol.reference
    others = _join_other_classifiers(whole, trained, reference)
    evaluation = add_baselines(
        whole.select_classifiers([reference]),
        baselines,
        None if others is None else others.values.filter(classifier="logistic"),
    )

    categories = None
    if corpus.categories is not None:
        categories = read_categories(corpus.categories, tables[0].spans)
    elif corpus.reading["corpus"] is not None:
        categories = corpus.reading["corpus"].categories_of(set(tables[0].label))

    queries = read_segments(folder / SEGMENTS).only(set(list_queries(evaluation)))

    # Annotations that became no segment, and segments that were not embedded.
    lists = [embed.table.with_suffix(REJECTS_SUFFIX) for embed in embeds]
    rejects = read_rejects(folder / REJECTS)
    for path in filter(Path.exists, lists):
        rejects += read_rejects(path)

    overlapping = tables[0].spans  # the segments with the labels that overlap each
    stats, notes = read_stats(folder / SEGMENTS_INFO)
    equal = describe_equal_encoders(evaluations)
    return CorpusResults(
        evaluation=replace(evaluation, segments=overlapping),
        stats=stats,
        evaluated=measure_durations(queries.durations_s.tolist()),
        tables=tables,
        categories=categories,
        rejects=rejects,
        notes=[*equal, *notes, *evaluation.notes],
        other_classifiers=others,
        baselines=baselines,
        refinement=concat_frames([one.refinement for one in trained], REFINEMENT),
    )


def _join_other_classifiers(
    whole: Evaluation, trained: Sequence[BaselineResults], reference: str
) -> Evaluation | None:
    """Return the curves of every classifier but the reference, also of those trained at every k.

    None if there are no others.
    """
    untrained = whole.select_classifiers(set(whole.curve["classifier"]) - {reference})
    results = [untrained, *chain.from_iterable(one.per_k for one in trained)]
    frames = {
        name: pl.concat([getattr(result, name) for result in results])
        for name in ("curve", "values", "per_class")
    }
    others = replace(untrained, **frames)
    return None if others.curve.is_empty() else others


def join_references(baselines: pl.DataFrame, references: pl.DataFrame) -> pl.DataFrame:
    """Append reference scores to baselines; equal names are marked as reference."""
    is_taken = pl.col("name").is_in(baselines["name"].to_list())
    name = pl.when(is_taken).then(pl.format("{} (reference)", "name")).otherwise("name")
    return pl.concat([baselines, references.with_columns(name.alias("name"))])
