"""A study → its steps, in the order in which they run.

segment ─→ embed (each encoder) ─→ fold ─→ evaluate (each encoder) ─→ report
   ╰───────────────────────────────↗  ╰──→ baselines (each kind and encoder) ─↗
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from importlib.metadata import PackageNotFoundError, version
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
    """Return every step of a study, in the order in which they run; the report is of all corpora.

    `processes` draw figures; the cluster embeds and evaluates. These, `device` and `threads` change
    how long a step takes, not whether it has to run. Without a device, that of the study is used.
    """
    device = device or study.device
    steps = []
    for corpus in study.corpora:
        steps += CorpusPlan(study, corpus, device, threads, cluster).list_steps()
    order = {kind: number for number, kind in enumerate(FIRST_KINDS)}
    steps.sort(key=lambda step: order.get(step.kind, len(order)))

    keys = study.work / "report" / REPORT_KEYS
    # The report reads neither sequences nor folds, which are in the evaluations too.
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


@dataclass(frozen=True)
class CorpusPlan:
    """The steps of a corpus; networks are stored, so that only missing ones are trained again."""

    study: Study
    corpus: StudyCorpus
    device: str
    threads: int | None
    cluster: Cluster | None

    def list_steps(self) -> list[Step]:
        """Return all steps of the corpus."""
        training = self.study.baselines
        steps = [self.segment, *self.sequences.values(), *self.embeds, self.fold]
        kinds = ["evaluate"]  # of measurements on the vectors of an encoder
        kinds += [kind for kind in training.train if kind != "end-to-end"]
        if training.per_k:
            kinds.append(PER_K)
        for kind in kinds:
            for number, embed in enumerate(self.embeds):
                step = self.plan_measurement(kind, embed)
                steps.append(measure_once(step, embed, self.embeds[:number]))
        # These read audio: they are measured once, beside the first encoder.
        if "end-to-end" in training.train:
            steps.append(self.plan_measurement("end-to-end", self.embeds[0]))
        if training.published:
            steps.append(self.plan_measurement(PUBLISHED, self.embeds[0]))
        return steps

    @cached_property
    def segment(self) -> Step:
        """The step that cuts recordings into segments."""
        corpus = self.corpus
        annotation_options = corpus.reading["annotation_options"]
        fingerprint_input = partial(
            fingerprint,
            excluded=annotation_options.exclude,
            follow_links=annotation_options.follow_links,
        )
        places = [corpus.audio, *optional(corpus.reading["annotations"])]
        return self.make_step(
            "segment",
            make=partial(
                segment_files, corpus.audio, **corpus.reading, threads=self.threads
            ),
            options={
                **asdict(corpus.reading["options"]),
                **describe_annotation_options(annotation_options),
                "format": corpus.reading["format"],
                "corpus": corpus.known_name,
            },
            inputs=[partial(fingerprint_input, place) for place in places],
        )

    @cached_property
    def embeds(self) -> list[Step]:
        """The steps that embed the segments, one for each encoder."""
        return [self.plan_embedding(one, "embed") for one in self.study.encoders]

    @cached_property
    def sequences(self) -> dict[str, Step]:
        """The steps that make sequences, by the title of the encoder, if a baseline needs them."""
        if "recurrent" not in self.study.baselines.train:
            return {}
        return {
            one.title: self.plan_embedding(one, "sequence")
            for one in self.study.encoders
        }

    @cached_property
    def fold(self) -> Step:
        """The step that splits the segments which all encoders embedded into folds."""
        corpus = self.corpus
        known = corpus.reading["corpus"]
        tables = [embed.table for embed in self.embeds]
        options: dict[str, Any] = {
            "count": corpus.folds,
            "default": DEFAULT_FOLDS if known is None else known.folds,
            "group_duplicates": corpus.group_duplicates,
        }
        inputs: list[Input] = [self.segments, *optional(corpus.fold_file)]
        inputs.append(self.digest_shared)
        if corpus.group_duplicates:
            inputs += tables
        return self.make_step(
            "fold",
            make=partial(
                fold_files,
                self.segments,
                tables=tables,
                file=corpus.fold_file,
                **options,
            ),
            options=options,
            inputs=inputs,
            after=[self.segment, *self.embeds],
        )

    @property
    def segments(self) -> Path:
        """The table of segments."""
        return self.segment.folder / SEGMENTS

    def plan_embedding(self, encoder: StudyEncoder, kind: str) -> Step:
        """Return the step that makes an encoder's vectors, or its sequences (kind `sequence`)."""
        device = network_device(self.device) if encoder.joined_encoder.gpu else "cpu"
        return self.make_step(
            kind,
            encoder.title,
            make=partial(
                embed_files,
                self.segments,
                encoder=encoder.name,
                choices=encoder.choices,
                name=encoder.title,
                store=self.study.store,
                device=device,
                threads=self.threads,
                cluster=self.cluster,
                audio=audio_root(self.corpus.audio),
                sequences=kind == "sequence",
            ),
            options=joined_fingerprint(encoder.joined_encoder, device),
            inputs=[self.segments, self.digest_recordings],
            after=[self.segment],
            file=EMBEDDINGS,
        )

    def plan_measurement(self, kind: str, embed: Step) -> Step:
        """Return the step that evaluates one encoder, or one baseline on it or on the audio."""
        protocol = self.study.protocol
        encoder = "" if kind in AUDIO_KINDS else embed.encoder
        sequences = [self.sequences[encoder]] if kind == "recurrent" else []
        tables = [embed.table, *(sequences_path(step.table) for step in sequences)]
        files = [self.fold.folder / name for name in (FOLDS, FOLDS_INFO)]
        inputs = [*tables, *files, *optional(self.corpus.categories)]
        after = [embed, *sequences, self.fold]
        shared = {
            "protocol": protocol,
            # The folds, categories and name of the corpus, as `read_dataset` takes them.
            "choice": {
                "folds_dir": self.fold.folder,
                "categories": self.corpus.categories,
                "corpus": self.corpus.name,
            },
            "device": self.device,
            "threads": self.threads,
        }
        if kind == "evaluate":
            make: Callable[..., Any] = partial(
                evaluate_files, cluster=self.cluster, figure=False
            )
            deciding = asdict(protocol)
        else:
            options = _select_kind(self.study.baselines, kind)
            if kind in AUDIO_KINDS:
                inputs += [self.segments, *optional(options.init)]
                after.insert(0, self.segment)
            make = partial(
                train_baseline_files,
                options=options,
                sequences=tables[1:],  # where the baseline needs them
                segments=self.segments,
                audio=audio_root(self.corpus.audio),
                networks=self.find_folder("networks", encoder),
            )
            deciding = _deciding_options(protocol, options, kind)
        return self.make_step(
            kind,
            encoder,
            make=partial(make, [embed.table], **shared),
            options={**deciding, "corpus": self.corpus.known_name},
            inputs=inputs,
            after=after,
        )

    def make_step(
        self,
        kind: str,
        encoder: str = "",
        *,
        make: Callable[..., Any],
        options: Mapping[str, Any],
        inputs: Sequence[Input],
        after: Sequence[Step] = (),
        file: str = "",
    ) -> Step:
        """Return a step of this corpus, whose `make` writes to its own folder, or a file in it."""
        folder = self.find_folder(kind, encoder)
        return Step(
            kind=kind,
            corpus=self.corpus.name,
            encoder=encoder,
            folder=folder,
            options=options,
            inputs=inputs,
            make=partial(make, out=folder / file),
            after=after,
        )

    def find_folder(self, kind: str, encoder: str) -> Path:
        """Return the folder of one kind of files of this corpus and an encoder."""
        return self.study.work / kind / self.corpus.name / folder_name(encoder)

    def digest_recordings(self) -> str:
        """Return a fingerprint of the recordings of the segments, by size and time."""
        if not self.segments.exists():
            return "nothing"
        root = audio_root(self.corpus.audio)
        paths = sorted(set(read_segments(self.segments).paths))
        return digest([(path, fingerprint(root / path)) for path in paths])

    def digest_shared(self) -> str:
        """Return a fingerprint of the segments that all tables have."""
        tables = [embed.table for embed in self.embeds]
        embedded = [table_segments(path) for path in tables if path.exists()]
        if not embedded:
            return "nothing"
        return digest(sorted(frozenset.intersection(*embedded)))


def _select_kind(training: BaselineOptions, kind: str) -> BaselineOptions:
    """Return the options of baselines without all kinds but one."""
    return replace(
        training,
        train=(kind,) if kind in training.train else (),
        per_k=kind == PER_K,
        init=training.init if kind == "end-to-end" else None,
        published=training.published if kind == PUBLISHED else "",
    )


def _deciding_options(
    protocol: Protocol, options: BaselineOptions, kind: str
) -> dict[str, Any]:
    """Return the options that change the numbers of a kind of baseline, by name."""
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
