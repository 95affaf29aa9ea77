"""A study → its steps, in the order in which they run.

    segment ─→ embed (each encoder) ─→ fold ─→ evaluate (each encoder) ─→ report
       ╰───────────────────────────────↗  ╰──→ baselines (each kind and encoder) ─↗

Each corpus has its own steps; the report is of all.
"""

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
from callshot.corpus.segment_table import SEGMENTS, read_segments
from callshot.corpus.segments import audio_root
from callshot.encoders.joined_encoder import joined_fingerprint
from callshot.fewshot.folds import DEFAULT_FOLDS
from callshot.fewshot.gpu.device import network_device
from callshot.fewshot.protocol import Protocol
from callshot.jobs import Cluster
from callshot.records import Progress
from callshot.study.file_steps import (
    DatasetChoice,
    embed_files,
    evaluate_files,
    fold_files,
    segment_files,
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
from callshot.study.train_baselines import train_baseline_files
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
    steps: list[Step] = []
    for corpus in study.corpora:
        planner = _CorpusPlan(study, corpus, device or study.device, threads, cluster)
        steps += planner.steps()
    order = {kind: number for number, kind in enumerate(FIRST_KINDS)}
    steps.sort(key=lambda step: order.get(step.kind, len(order)))
    return [*steps, _report_step(study, steps, processes)]


@dataclass
class _CorpusPlan:
    """Makes the steps of a corpus."""

    study: Study
    corpus: StudyCorpus
    device: str
    threads: int | None
    cluster: Cluster | None

    def steps(self) -> list[Step]:
        """Return the steps of the corpus.

        Networks are stored by what decides their weights (`networks`, beside the steps): a step
        that runs again, after a kill or a changed line of the study, trains only those that are
        missing.
        """
        training = self.study.baselines
        self.segment = self.segment_step()
        self.segments = self.segment.folder / SEGMENTS
        self.root = audio_root(self.corpus.audio)
        sequences = {}
        embeds = []
        for encoder in self.study.encoders:
            if "recurrent" in training.train:
                sequences[encoder.title] = self.embed_step(encoder, "sequence")
            embeds.append(self.embed_step(encoder, "embed"))
        self.fold = self.fold_step(embeds)
        folder = self.fold.folder
        categories = self.corpus.categories
        self.choice = DatasetChoice(
            folds_dir=folder, categories=categories, corpus=self.corpus.name
        )
        self.fold_files = [folder / FOLDS, folder / FOLDS_INFO, *optional(categories)]
        steps = [self.segment, *sequences.values(), *embeds, self.fold]

        kinds = [kind for kind in training.train if kind != "end-to-end"]
        kinds += [PER_K] if training.per_k else []
        for kind, (number, embed) in product(["evaluate", *kinds], enumerate(embeds)):
            if kind == "evaluate":
                step = self.evaluate_step(embed)
            else:
                source = sequences[embed.encoder] if kind == "recurrent" else None
                step = self.baseline_step(kind, embed, source)
            steps.append(measure_once(step, embed, embeds[:number]))
        if "end-to-end" in training.train:
            steps.append(self.baseline_step("end-to-end", embeds[0]))
        if training.published:
            steps.append(self.baseline_step(PUBLISHED, embeds[0]))
        return steps

    def folder(self, kind: str, encoder: str = "") -> Path:
        """Return the folder of a step."""
        return self.study.work / kind / self.corpus.name / folder_name(encoder)

    def step(self, kind: str, encoder: str = "", **options: Any) -> Step:
        """Return a step with its own folder."""
        folder = self.folder(kind, encoder)
        return Step(kind, self.corpus.name, encoder, folder, **options)

    def segment_step(self) -> Step:
        """Return the step that cuts recordings into segments."""
        corpus = self.corpus
        reading = corpus.annotation_options
        read = partial(
            fingerprint, excluded=reading.exclude, follow_links=reading.follow_links
        )
        places = [corpus.audio, *optional(corpus.annotations)]
        options = {
            **asdict(corpus.segmentation),
            **describe_annotation_options(reading),
            "format": corpus.format,
            "corpus": corpus.known_name,
        }
        make = partial(
            segment_files,
            corpus.audio,
            self.folder("segment"),
            corpus.annotations,
            **corpus.reading,
            threads=self.threads,
        )
        inputs = [partial(read, place) for place in places]
        return self.step("segment", options=options, inputs=inputs, make=make)

    def embed_step(self, encoder: StudyEncoder, kind: str) -> Step:
        """Return the step of an encoder's vectors, or of its sequences.

        These are two steps: with sequences, some models give other last digits of vectors.
        """
        device = network_device(self.device) if encoder.joined_encoder.gpu else "cpu"
        make = partial(
            embed_files,
            self.segments,
            self.folder(kind, encoder.title) / EMBEDDINGS,
            encoder.name,
            encoder.choices,
            name=encoder.title,
            store=self.study.store,
            device=device,
            threads=self.threads,
            cluster=self.cluster,
            audio=self.root,
            sequences=kind == "sequence",
        )

        def digest_recordings() -> str:
            """Return a fingerprint of the recordings of the segments, by size and time."""
            if not self.segments.exists():
                return "nothing"
            paths = sorted(set(read_segments(self.segments).paths))
            return digest([(path, fingerprint(self.root / path)) for path in paths])

        return self.step(
            kind,
            encoder.title,
            options=joined_fingerprint(encoder.joined_encoder, device),
            inputs=[self.segments, digest_recordings],
            make=make,
            after=[self.segment],
        )

    def fold_step(self, embeds: Sequence[Step]) -> Step:
        """Return the step that splits the segments which all encoders embedded into folds."""
        corpus = self.corpus
        tables = [embed.table for embed in embeds]
        known = corpus.known_corpus
        options: dict[str, Any] = {
            "count": corpus.folds,
            "default": DEFAULT_FOLDS if known is None else known.folds,
            "group_duplicates": corpus.group_duplicates,
        }
        folder = self.folder("fold")
        make = partial(
            fold_files, self.segments, folder, tables, file=corpus.fold_file, **options
        )

        def digest_shared() -> str:
            """Return a fingerprint of the segments that all tables have."""
            segments = [table_segments(path) for path in tables if path.exists()]
            if not segments:
                return "nothing"
            return digest(sorted(frozenset.intersection(*segments)))

        inputs: list[Input] = [self.segments, *optional(corpus.fold_file)]
        inputs.append(digest_shared)
        if corpus.group_duplicates:
            inputs += tables
        after = [self.segment, *embeds]
        return self.step("fold", options=options, inputs=inputs, make=make, after=after)

    def evaluate_step(self, embed: Step) -> Step:
        """Return the step that evaluates one encoder."""
        protocol = self.study.protocol
        make = partial(
            evaluate_files,
            [embed.table],
            self.folder("evaluate", embed.encoder),
            protocol,
            choice=self.choice,
            threads=self.threads,
            device=self.device,
            cluster=self.cluster,
            figure=False,
        )
        return self.step(
            "evaluate",
            embed.encoder,
            options={**asdict(protocol), "corpus": self.corpus.known_name},
            inputs=[embed.table, *self.fold_files],
            make=make,
            after=[embed, self.fold],
        )

    def baseline_step(
        self, kind: str, embed: Step, sequence: Step | None = None
    ) -> Step:
        """Return the step of one baseline on one encoder, or on the audio."""
        protocol = self.study.protocol
        encoder = "" if kind in AUDIO_KINDS else embed.encoder
        whole = self.study.baselines
        options = replace(
            whole,
            train=(kind,) if kind in whole.train else (),
            per_k=kind == PER_K,
            init=whole.init if kind == "end-to-end" else None,
            published=whole.published if kind == PUBLISHED else "",
        )
        sequences = [sequences_path(step.table) for step in optional(sequence)]
        networks = self.folder("networks", encoder)

        def make(progress: Progress) -> None:
            train_baseline_files(
                [embed.table],
                self.folder(kind, encoder),
                options,
                protocol,
                choice=self.choice,
                sequences=sequences or None,
                segments=self.segments,
                audio=self.root,
                context=TrainingContext(
                    protocol.seed, self.device, self.threads, networks, progress
                ),
            )

        inputs = [embed.table, *sequences, *self.fold_files]
        after = [embed, *optional(sequence), self.fold]
        if kind in AUDIO_KINDS:
            inputs += [self.segments, *optional(options.init)]
            after.insert(0, self.segment)
        key = _deciding_options(protocol, options, kind)
        key["corpus"] = self.corpus.known_name
        return self.step(
            kind, encoder, options=key, inputs=inputs, make=make, after=after
        )


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
        make=partial(report_files, study, kept, keys, processes),
        after=kept,
        record_folder=keys.parent,
    )
