"""A study → its steps, in the order in which they run.

    segment ─→ embed (each encoder) ─→ fold ─→ evaluate (each encoder) ─→ report
       ╰───────────────────────────────↗  ╰──→ baselines (each kind and encoder) ─↗

Each corpus has its own steps; the report is of all.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from pathlib import Path
from typing import Any

from callshot.baselines.options import BaselineOptions
from callshot.baselines.run import TrainingContext
from callshot.corpus.annotations import describe_annotation_options
from callshot.corpus.segment_table import REJECTS, SEGMENTS, read_segments
from callshot.corpus.segments import audio_root
from callshot.encoders.joined_encoder import joined_fingerprint
from callshot.fewshot.folds import DEFAULT_FOLDS
from callshot.fewshot.gpu.device import network_device
from callshot.fewshot.protocol import Protocol
from callshot.jobs import Cluster
from callshot.records import Progress
from callshot.report.figures.figure_io import open_workers
from callshot.report.results import PROVENANCE, RESULT_FILES
from callshot.study.corpus_results import read_corpus_results
from callshot.study.file_steps import (
    SEGMENTS_INFO,
    DatasetChoice,
    embed_files,
    evaluate_files,
    fold_files,
    report_files,
    segment_files,
)
from callshot.study.steps import (
    EMBEDDINGS,
    Input,
    Step,
    digest,
    fingerprint,
    folder_name,
    is_measured,
    measure_once,
    optional,
)
from callshot.study.study_file import Study, StudyCorpus, StudyEncoder
from callshot.study.train_baselines import baseline_files, train_baseline_files
from callshot.tables.embedding_tables import sequences_path, table_segments
from callshot.tables.fold_files import FOLDS, FOLDS_INFO

# Kinds in the order in which they run; all baselines follow. Sequences come before vectors: in
# the store, most vectors come with them.
FIRST_KINDS = ("segment", "sequence", "embed", "fold", "evaluate")
# Lists that are written if they have rows.
BESIDE_EMBEDDINGS = ("rejects", "duplicates")
REPORT_KEYS = "keys.json"  # of files of the report that may serve again
PER_K = "logistic-per-k"
PUBLISHED = "published"
AUDIO_KINDS = ("end-to-end", PUBLISHED)
# Options that change the numbers of a kind.
DECIDING_OPTIONS: Mapping[str, Sequence[str]] = {
    "logistic": ("C",),
    PER_K: ("C", "draws"),
    "recurrent": ("cell", "seeds"),
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
    """Return every step of a study.

    `device`, `threads`, `processes`, which draw figures, and the cluster, which embeds and
    evaluates, change the time, not what has to run. The device is the study's where it is None.
    """
    planner = _Planner(study, device or study.device, threads, cluster)
    steps = []
    for corpus in study.corpora:
        steps += planner.corpus_steps(corpus)
    order = {kind: number for number, kind in enumerate(FIRST_KINDS)}
    steps.sort(key=lambda step: order.get(step.kind, len(order)))
    return [*steps, _report_step(study, steps, processes)]


@dataclass(frozen=True)
class _Planner:
    """Makes the steps of the corpora of a study."""

    study: Study
    device: str
    threads: int | None
    cluster: Cluster | None

    def step(
        self, kind: str, corpus: StudyCorpus, encoder: str = "", **options: Any
    ) -> Step:
        """Return a step with its own folder."""
        folder = self.study.work / kind / corpus.name / folder_name(encoder)
        return Step(kind, corpus.name, encoder, folder, **options)

    def corpus_steps(self, corpus: StudyCorpus) -> list[Step]:
        """Return the steps of a corpus.

        Networks are stored by what decides their weights (`networks`, beside the steps): a step
        that runs again, after a kill or a changed line of the study, trains only those that are
        missing.
        """
        training = self.study.baselines
        segment = self.segment_step(corpus)
        sequences = {}
        embeds = []
        for encoder in self.study.encoders:
            if "recurrent" in training.train:
                sequence = self.embed_step(corpus, segment, encoder, "sequence")
                sequences[encoder.title] = sequence
            embeds.append(self.embed_step(corpus, segment, encoder, "embed"))
        fold = self.fold_step(corpus, segment, embeds)
        steps = [segment, *sequences.values(), *embeds, fold]

        kinds = [kind for kind in training.train if kind != "end-to-end"]
        kinds += [PER_K] if training.per_k else []
        for kind, (number, embed) in product(["evaluate", *kinds], enumerate(embeds)):
            if kind == "evaluate":
                step = self.evaluate_step(corpus, embed, fold)
            else:
                source = sequences[embed.encoder] if kind == "recurrent" else None
                step = self.baseline_step(kind, corpus, segment, fold, embed, source)
            steps.append(measure_once(step, embed, embeds[:number]))
        for kind in AUDIO_KINDS:
            if kind in training.train or (kind == PUBLISHED and training.published):
                step = self.baseline_step(kind, corpus, segment, fold, embeds[0])
                steps.append(step)
        return steps

    def segment_step(self, corpus: StudyCorpus) -> Step:
        """Return the step that cuts recordings into segments."""
        reading = corpus.annotation_options

        def make(folder: Path, progress: Progress) -> Sequence[str]:
            segment_files(
                corpus.audio,
                folder,
                corpus.annotations,
                options=corpus.segmentation,
                format=corpus.format,
                annotation_options=reading,
                corpus=corpus.known_corpus,
                threads=self.threads,
                progress=progress,
            )
            return [SEGMENTS, REJECTS, SEGMENTS_INFO]

        inputs: list[Input] = []
        for place in (corpus.audio, *optional(corpus.annotations)):
            links = reading.follow_links
            inputs.append(
                partial(fingerprint, place, reading.exclude, follow_links=links)
            )
        options = {
            **asdict(corpus.segmentation),
            **describe_annotation_options(reading),
            "format": corpus.format,
            "corpus": corpus.known_name,
        }
        return self.step("segment", corpus, options=options, inputs=inputs, make=make)

    def embed_step(
        self, corpus: StudyCorpus, segment: Step, encoder: StudyEncoder, kind: str
    ) -> Step:
        """Return the step of an encoder's vectors, or of its sequences.

        These are two steps: with sequences, some models give other last digits of vectors.
        """
        source = segment.folder / SEGMENTS
        root = audio_root(corpus.audio)
        device = network_device(self.device) if encoder.joined_encoder.gpu else "cpu"
        is_sequence = kind == "sequence"

        def make(folder: Path, progress: Progress) -> Sequence[str]:
            out = folder / EMBEDDINGS
            embed_files(
                source,
                out,
                encoder.name,
                encoder.choices,
                name=encoder.title,
                audio=root,
                store=self.study.store,
                device=device,
                threads=self.threads,
                cluster=self.cluster,
                sequences=is_sequence,
                progress=progress,
            )
            if is_sequence:
                return [sequences_path(out).name]
            lists = [out.with_suffix(f".{name}.csv") for name in BESIDE_EMBEDDINGS]
            return [EMBEDDINGS, *(path.name for path in lists if path.exists())]

        def digest_recordings() -> str:
            """Return a fingerprint of the recordings of the segments, by size and time."""
            if not source.exists():
                return "nothing"
            paths = sorted(set(read_segments(source).paths))
            return digest([(path, fingerprint(root / path)) for path in paths])

        return self.step(
            kind,
            corpus,
            encoder.title,
            options=joined_fingerprint(encoder.joined_encoder, device),
            inputs=[source, digest_recordings],
            make=make,
            after=[segment],
        )

    def fold_step(
        self, corpus: StudyCorpus, segment: Step, embeds: Sequence[Step]
    ) -> Step:
        """Return the step that splits the segments which all encoders embedded into folds."""
        source = segment.folder / SEGMENTS
        tables = [embed.table for embed in embeds]
        options = {
            "count": corpus.folds,
            "default": DEFAULT_FOLDS,
            "group_duplicates": corpus.group_duplicates,
        }
        if corpus.known_corpus is not None:
            options["default"] = corpus.known_corpus.folds

        def make(folder: Path, progress: Progress) -> Sequence[str]:
            fold_files(source, folder, tables, file=corpus.fold_file, **options)  # type: ignore[arg-type]
            return [FOLDS, FOLDS_INFO]

        def digest_shared() -> str:
            """Return a fingerprint of the segments that all tables have."""
            segments = [table_segments(path) for path in tables if path.exists()]
            if not segments:
                return "nothing"
            return digest(sorted(frozenset.intersection(*segments)))

        inputs: list[Input] = [source, *optional(corpus.fold_file), digest_shared]
        if corpus.group_duplicates:
            inputs += tables
        return self.step(
            "fold",
            corpus,
            options=options,
            inputs=inputs,
            make=make,
            after=[segment, *embeds],
        )

    def evaluate_step(self, corpus: StudyCorpus, embed: Step, fold: Step) -> Step:
        """Return the step that evaluates one encoder."""

        def make(folder: Path, progress: Progress) -> Sequence[str]:
            evaluate_files(
                [embed.table],
                folder,
                self.study.protocol,
                choice=DatasetChoice(
                    folds_dir=fold.folder,
                    categories=corpus.categories,
                    corpus=corpus.name,
                ),
                threads=self.threads,
                device=self.device,
                cluster=self.cluster,
                figure=False,
                progress=progress,
            )
            return [*RESULT_FILES, PROVENANCE]

        return self.step(
            "evaluate",
            corpus,
            embed.encoder,
            options={**asdict(self.study.protocol), "corpus": corpus.known_name},
            inputs=[embed.table, *_dataset_inputs(corpus, fold)],
            make=make,
            after=[embed, fold],
        )

    def baseline_step(
        self,
        kind: str,
        corpus: StudyCorpus,
        segment: Step,
        fold: Step,
        embed: Step,
        sequence: Step | None = None,
    ) -> Step:
        """Return the step of one baseline on one encoder, or on the audio."""
        study = self.study
        protocol = study.protocol
        encoder = "" if kind in AUDIO_KINDS else embed.encoder
        whole = study.baselines
        options = replace(
            whole,
            train=(kind,) if kind in whole.train else (),
            per_k=kind == PER_K,
            init=whole.init if kind == "end-to-end" else None,
            published=whole.published if kind == PUBLISHED else "",
        )
        sequences = [sequences_path(step.table) for step in optional(sequence)]
        segments = segment.folder / SEGMENTS
        networks = study.work / "networks" / corpus.name / folder_name(encoder)

        def make(folder: Path, progress: Progress) -> Sequence[str]:
            results = train_baseline_files(
                [embed.table],
                folder,
                options,
                protocol,
                choice=DatasetChoice(
                    folds_dir=fold.folder,
                    categories=corpus.categories,
                    corpus=corpus.name,
                ),
                sequences=sequences or None,
                segments=segments,
                audio=audio_root(corpus.audio),
                context=TrainingContext(
                    protocol.seed, self.device, self.threads, networks, progress
                ),
            )
            return baseline_files(results)

        inputs = [embed.table, *sequences, *_dataset_inputs(corpus, fold)]
        after = [embed, *optional(sequence), fold]
        if kind in AUDIO_KINDS:
            inputs += [segments, *optional(options.init)]
            after.insert(0, segment)
        key = {
            **_deciding_options(protocol, options, kind),
            "corpus": corpus.known_name,
        }
        return self.step(
            kind, corpus, encoder, options=key, inputs=inputs, make=make, after=after
        )


def _dataset_inputs(corpus: StudyCorpus, fold: Step) -> list[Path]:
    """Return the files that decide the folds and categories of a corpus."""
    return [fold.folder / FOLDS, fold.folder / FOLDS_INFO, *optional(corpus.categories)]


def _deciding_options(
    protocol: Protocol, options: BaselineOptions, kind: str
) -> dict[str, Any]:
    """Return the options that change the numbers of a kind."""
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


def _report_step(study: Study, steps: Sequence[Step], processes: int) -> Step:
    """Return the step that writes the report of all corpora."""
    keys = study.work / "report" / REPORT_KEYS
    kept = [step for step in steps if step.kind not in ("sequence", "fold")]

    def make(folder: Path, progress: Progress) -> Sequence[str]:
        is_first = not keys.exists()  # later, few figures change
        workers = processes if study.report.figures else 1
        with open_workers(workers, start_now=is_first) as executor:
            results = {}
            segments = {}
            facts = {}
            for corpus in study.corpora:
                own = [step for step in kept if step.corpus == corpus.name]
                results[corpus.name] = read_corpus_results(study, corpus, own)
                path = own[0].folder / SEGMENTS
                root = audio_root(corpus.audio)
                segments[corpus.name] = replace(read_segments(path), root=root)
                facts[corpus.name] = _read_json(own[0].folder / SEGMENTS_INFO)
            embeds = [step for step in kept if step.kind == "embed"]
            measured = [step for step in kept if step.kind not in ("segment", "embed")]
            measured = [step for step in measured if is_measured(step.folder)]
            described = {
                "study": study.text,
                "title": study.report.title,
                "encoders": {step.encoder: step.options for step in embeds},
                "licences": {
                    encoder.title: encoder.joined_encoder.licence
                    for encoder in study.encoders
                },
                "segments": facts,
                "steps": [_read_json(step.folder / PROVENANCE) for step in measured],
            }
            return report_files(
                results,
                folder,
                study.report,
                described,
                segments=segments,
                workers=executor,
                keys=keys,
                owner=study.owner,
                progress=progress,
            )

    def digest_results() -> str:
        """Return a fingerprint of the results of steps, by their records."""
        return digest(
            [sorted(step.read_record().get("files", {}).items()) for step in kept]
        )

    return Step(
        kind="report",
        corpus="",
        encoder="",
        folder=study.out,
        options={**asdict(study.report), "study": study.text},
        inputs=[digest_results, *optional(study.references)],
        make=make,
        after=kept,
        record_folder=keys.parent,
    )


def _read_json(path: Path) -> object:
    return json.loads(path.read_text(encoding="utf-8"))
