"""A study → its steps, in the order in which they run.

    segment ─→ embed (each encoder) ─→ fold ─→ evaluate (each encoder) ─→ report
       ╰───────────────────────────────↗  ╰──→ baselines (each kind and encoder) ─↗

Each corpus has its own steps; the report is of all.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from pathlib import Path
from typing import Any

from callshot.baselines.options import BaselineOptions
from callshot.corpus.annotations import describe_annotation_options
from callshot.corpus.segment_table import SEGMENTS, read_segments
from callshot.corpus.segments import audio_root
from callshot.encoders.joined_encoder import joined_fingerprint
from callshot.fewshot.folds import DEFAULT_FOLDS
from callshot.fewshot.gpu.device import network_device
from callshot.fewshot.protocol import Protocol
from callshot.jobs import Cluster
from callshot.study.file_steps import (
    embed_files,
    evaluate_files,
    fold_files,
    segment_files,
    train_baseline_files,
)
from callshot.study.report_step import report_files
from callshot.study.steps import (
    EMBEDDINGS,
    FIRST_KINDS,
    Input,
    Step,
    digest,
    fingerprint,
    folder_name,
    measure_once,
    optional,
)
from callshot.study.study_file import Study, StudyCorpus, StudyEncoder
from callshot.tables.embedding_tables import sequences_path, table_segments
from callshot.tables.fold_files import FOLDS, FOLDS_INFO

REPORT_KEYS = "keys.json"  # of files of the report that may serve again
PER_K = "logistic-per-k"
PUBLISHED = "published"
AUDIO_KINDS = ("end-to-end", PUBLISHED)
# Options that change the numbers of a kind.
DECIDING_OPTIONS: Mapping[str, Sequence[str]] = {
    "logistic": ("C",),
    PER_K: ("C", "draws"),
    "recurrent": ("cell", "networks"),
    "end-to-end": (),
    PUBLISHED: ("published",),
}
# Options of the protocol that change logistic regression at every k, by spread.
PER_K_OPTIONS: Mapping[str, Sequence[str]] = {
    "shared": ("shots", "whole_pool", "shared_draws", "sampler"),
    "total": ("total_samples",),  # beside those of shared, which it needs
    "per-query": ("shots", "whole_pool", "sampler", "draws", "bootstraps"),
}


def plan(
    study: Study,
    *,
    device: str | None = None,
    threads: int | None = None,
    processes: int = 1,
    cluster: Cluster | None = None,
) -> list[Step]:
    """Return every step of a study, in the order in which they run.

    `processes` draw figures; the cluster embeds and evaluates. These, `device` and `threads` change
    how long a step takes, not whether it has to run. Without a device, that of the study is used.
    """
    steps = []
    for corpus in study.corpora:
        steps += _plan_corpus(study, corpus, device or study.device, threads, cluster)
    order = {kind: number for number, kind in enumerate(FIRST_KINDS)}
    steps.sort(key=lambda step: order.get(step.kind, len(order)))

    keys = study.work / "report" / REPORT_KEYS
    reported = [step for step in steps if step.kind not in ("sequence", "fold")]

    def digest_results() -> str:
        """Return a fingerprint of the files that the report reads, by the records of steps."""
        return digest(
            [sorted(step.read_record().get("files", {}).items()) for step in reported]
        )

    report = Step(
        kind="report",
        corpus="",
        encoder="",
        folder=study.out,
        options={**asdict(study.report), "study": study.text},
        inputs=[digest_results, *optional(study.references)],
        make=partial(report_files, study, reported, keys, processes),
        after=reported,
        record_folder=keys.parent,
    )
    return [*steps, report]


def _plan_corpus(
    study: Study,
    corpus: StudyCorpus,
    device: str,
    threads: int | None,
    cluster: Cluster | None,
) -> list[Step]:
    """Return the steps of a corpus: segment, embed, fold, evaluate and baselines.

    Trained networks are stored by what decides their weights (folder `networks`, beside the steps).
    So a step that runs again, after a kill or a changed line of the study, trains only missing
    ones.
    """
    protocol = study.protocol
    training = study.baselines
    root = audio_root(corpus.audio)

    def find_folder(kind: str, encoder: str) -> Path:
        """Return the folder of one kind of files of this corpus and an encoder."""
        return study.work / kind / corpus.name / folder_name(encoder)

    def make_step(
        kind: str,
        encoder: str,
        make: Callable[..., Any],
        options: Mapping[str, Any],
        inputs: Sequence[Input],
        after: Sequence[Step] = (),
        *,
        file: str = "",
    ) -> Step:
        """Return a step of this corpus, whose `make` writes to its own folder, or a file in it."""
        folder = find_folder(kind, encoder)
        make = partial(make, out=folder / file)
        return Step(
            kind,
            corpus.name,
            encoder,
            folder,
            options,
            inputs,
            make,
            after,
        )

    # Recordings are cut into segments.
    reading = corpus.reading["annotation_options"]
    read = partial(
        fingerprint, excluded=reading.exclude, follow_links=reading.follow_links
    )
    places = [corpus.audio, *optional(corpus.reading["annotations"])]
    segment = make_step(
        "segment",
        "",
        partial(segment_files, corpus.audio, **corpus.reading, threads=threads),
        {
            **asdict(corpus.reading["options"]),
            **describe_annotation_options(reading),
            "format": corpus.reading["format"],
            "corpus": corpus.known_name,
        },
        [partial(read, place) for place in places],
    )
    segments = segment.folder / SEGMENTS

    def digest_recordings() -> str:
        """Return a fingerprint of the recordings of the segments, by size and time."""
        if not segments.exists():
            return "nothing"
        paths = sorted(set(read_segments(segments).paths))
        return digest([(path, fingerprint(root / path)) for path in paths])

    def embed_step(encoder: StudyEncoder, kind: str) -> Step:
        """Return the step of an encoder's vectors, or of its sequences.

        These are two steps: with sequences, some models give other last digits of vectors.
        """
        where = network_device(device) if encoder.joined_encoder.gpu else "cpu"
        make = partial(
            embed_files,
            segments,
            encoder=encoder.name,
            choices=encoder.choices,
            name=encoder.title,
            store=study.store,
            device=where,
            threads=threads,
            cluster=cluster,
            audio=root,
            sequences=kind == "sequence",
        )
        options = joined_fingerprint(encoder.joined_encoder, where)
        inputs: list[Input] = [segments, digest_recordings]
        return make_step(
            kind, encoder.title, make, options, inputs, [segment], file=EMBEDDINGS
        )

    sequences = {}
    if "recurrent" in training.train:
        for encoder in study.encoders:
            sequences[encoder.title] = embed_step(encoder, "sequence")
    embeds = [embed_step(encoder, "embed") for encoder in study.encoders]

    # The segments which all encoders embedded are split into folds.
    tables = [embed.table for embed in embeds]
    known = corpus.reading["corpus"]
    fold_options: dict[str, Any] = {
        "count": corpus.folds,
        "default": DEFAULT_FOLDS if known is None else known.folds,
        "group_duplicates": corpus.group_duplicates,
    }

    def digest_shared() -> str:
        """Return a fingerprint of the segments that all tables have."""
        embedded = [table_segments(path) for path in tables if path.exists()]
        if not embedded:
            return "nothing"
        return digest(sorted(frozenset.intersection(*embedded)))

    inputs: list[Input] = [segments, *optional(corpus.fold_file), digest_shared]
    if corpus.group_duplicates:
        inputs += tables
    make = partial(
        fold_files, segments, tables=tables, file=corpus.fold_file, **fold_options
    )
    fold = make_step(
        "fold",
        "",
        make,
        fold_options,
        inputs,
        [segment, *embeds],
    )
    choice = {
        "folds_dir": fold.folder,
        "categories": corpus.categories,
        "corpus": corpus.name,
    }
    fold_paths = [
        fold.folder / FOLDS,
        fold.folder / FOLDS_INFO,
        *optional(corpus.categories),
    ]

    def evaluate_step(embed: Step) -> Step:
        """Return the step that evaluates one encoder."""
        make = partial(
            evaluate_files,
            [embed.table],
            protocol=protocol,
            choice=choice,
            threads=threads,
            device=device,
            cluster=cluster,
            figure=False,
        )
        options = {**asdict(protocol), "corpus": corpus.known_name}
        inputs = [embed.table, *fold_paths]
        return make_step(
            "evaluate", embed.encoder, make, options, inputs, [embed, fold]
        )

    def baseline_step(kind: str, embed: Step) -> Step:
        """Return the step of one baseline on one encoder, or on the audio."""
        encoder = "" if kind in AUDIO_KINDS else embed.encoder
        options = replace(
            training,
            train=(kind,) if kind in training.train else (),
            per_k=kind == PER_K,
            init=training.init if kind == "end-to-end" else None,
            published=training.published if kind == PUBLISHED else "",
        )
        own_sequences = [sequences[encoder]] if kind == "recurrent" else []
        sequence_paths = [sequences_path(step.table) for step in own_sequences]
        make = partial(
            train_baseline_files,
            [embed.table],
            options=options,
            protocol=protocol,
            choice=choice,
            sequences=sequence_paths,
            segments=segments,
            audio=root,
            device=device,
            threads=threads,
            networks=find_folder("networks", encoder),
        )
        inputs = [embed.table, *sequence_paths, *fold_paths]
        after = [embed, *own_sequences, fold]
        if kind in AUDIO_KINDS:
            inputs += [segments, *optional(options.init)]
            after.insert(0, segment)
        key = _deciding_options(protocol, options, kind)
        key["corpus"] = corpus.known_name
        return make_step(kind, encoder, make, key, inputs, after)

    steps = [segment, *sequences.values(), *embeds, fold]
    kinds = [kind for kind in training.train if kind != "end-to-end"]
    kinds += [PER_K] if training.per_k else []
    for kind, (number, embed) in product(["evaluate", *kinds], enumerate(embeds)):
        is_baseline = kind != "evaluate"
        step = baseline_step(kind, embed) if is_baseline else evaluate_step(embed)
        steps.append(measure_once(step, embed, embeds[:number]))
    if "end-to-end" in training.train:
        steps.append(baseline_step("end-to-end", embeds[0]))
    if training.published:
        steps.append(baseline_step(PUBLISHED, embeds[0]))
    return steps


def _deciding_options(
    protocol: Protocol, options: BaselineOptions, kind: str
) -> dict[str, Any]:
    """Return the options that change the numbers of a kind of baseline, by name.

    If one of them changes, the step of this baseline runs again.
    """
    deciding = {name: getattr(options, name) for name in DECIDING_OPTIONS[kind]}
    total_samples = protocol.total_samples if "total" in protocol.spreads else 0
    if kind == PER_K:
        spreads = options.spreads(protocol)
        names = [name for spread in spreads for name in PER_K_OPTIONS[spread]]
        deciding |= {f"protocol {name}": getattr(protocol, name) for name in names}
        deciding["spread"] = spreads
    else:
        deciding["protocol total_samples"] = total_samples
    if kind not in ("logistic", PER_K):
        try:  # its version changes the last digits of networks
            deciding["torch"] = version("torch")
        except PackageNotFoundError:
            deciding["torch"] = ""
    if kind != "logistic" or total_samples:
        deciding["seed"] = protocol.seed
    return deciding
