"""The baselines of a study → steps: one training for each kind and encoder.

Networks are stored by what decides their weights (`networks`, beside the steps): a step that runs
again, after a kill or a changed line of the study, trains only those that are missing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from callshot.baselines.options import BaselineOptions
from callshot.baselines.run import TrainingContext
from callshot.corpus.segment_table import SEGMENTS
from callshot.corpus.segments import audio_root
from callshot.fewshot.protocol import Protocol
from callshot.records import Progress
from callshot.study.file_steps import DatasetChoice
from callshot.study.steps import Input, Step, folder_name, optional
from callshot.study.study_file import CorpusPart, Study
from callshot.study.train_baselines import (
    TrainingInputs,
    baseline_files,
    train_baseline_files,
)
from callshot.tables.embedding_tables import sequences_path
from callshot.tables.fold_files import FOLDS, FOLDS_INFO

EMBEDDINGS = "embeddings.parquet"
PER_K = "logistic-per-k"
PUBLISHED = "published"
AUDIO_KINDS = ("end-to-end", PUBLISHED)
DECIDING_OPTIONS: Mapping[
    str, tuple[str, ...]
] = {  # options that change the numbers of a kind
    "logistic": ("C",),
    PER_K: ("C", "draws", "spread"),
    "recurrent": ("cell", "seeds"),
    "end-to-end": (),
    PUBLISHED: ("published",),
}
# Options of the protocol that change logistic regression at every k; with draws per query more.
SHARED_OPTIONS = ("shots", "whole_pool", "shared_draws", "sampler")
PER_QUERY_OPTIONS = (*SHARED_OPTIONS, "draws", "bootstraps")


@dataclass(frozen=True)
class BaselinePlanner:
    """Makes the steps of the baselines of one corpus."""

    study: Study
    corpus: CorpusPart
    segment: Step
    fold: Step
    device: str
    threads: int | None

    def steps(self, embeds: Sequence[Step], sequences: Sequence[Step]) -> list[Step]:
        """Return a step for every baseline: on each encoder, or once on the audio."""
        options = self.study.baselines
        kinds = [kind for kind in options.train if kind != "end-to-end"]
        if options.per_k:
            kinds.append(PER_K)
        sequence_steps = {step.encoder: step for step in sequences}
        steps = []
        for kind in kinds:
            for embed in embeds:
                sequence = (
                    sequence_steps[embed.encoder] if kind == "recurrent" else None
                )
                steps.append(self.step(kind, embed, sequence))
        if "end-to-end" in options.train:
            steps.append(self.step("end-to-end", embeds[0]))
        if options.published:
            steps.append(self.step(PUBLISHED, embeds[0]))
        return steps

    def step(self, kind: str, embed: Step, sequence: Step | None = None) -> Step:
        """Return the step of one baseline on one encoder."""
        reads_audio = kind in AUDIO_KINDS
        encoder = "" if reads_audio else embed.encoder
        work = self.study.work
        folder = work / kind / self.corpus.name / folder_name(encoder)
        table = embed.folder / EMBEDDINGS
        options = _options_of_kind(self.study.baselines, kind)
        choice = DatasetChoice(
            folds_dir=self.fold.folder,
            categories=self.corpus.categories,
            corpus=self.corpus.name,
        )
        files = (
            [] if sequence is None else [sequences_path(sequence.folder / EMBEDDINGS)]
        )
        segments = self.segment.folder / SEGMENTS
        inputs = TrainingInputs(files or None, segments, audio_root(self.corpus.audio))

        def make(progress: Progress) -> Sequence[str]:
            context = TrainingContext(
                self.study.protocol.seed,
                self.device,
                self.threads,
                work / "networks" / self.corpus.name / folder_name(encoder),
                progress,
            )
            results = train_baseline_files(
                [table],
                folder,
                options,
                self.study.protocol,
                choice=choice,
                inputs=inputs,
                context=context,
            )
            return baseline_files(results)

        step_inputs: list[Input] = [table, *files]
        step_inputs += [self.fold.folder / FOLDS, self.fold.folder / FOLDS_INFO]
        step_inputs += optional(self.corpus.categories)
        after = [embed, self.fold] if sequence is None else [embed, sequence, self.fold]
        if reads_audio:
            step_inputs += [segments, *optional(options.init)]
            after.insert(0, self.segment)
        key = _deciding_options(self.study.protocol, options, kind)
        key["corpus"] = self.corpus.known_name
        return Step(
            kind, self.corpus.name, encoder, folder, key, step_inputs, make, after
        )


def _options_of_kind(options: BaselineOptions, kind: str) -> BaselineOptions:
    """Return the options of one kind alone."""
    return replace(
        options,
        train=(kind,) if kind in options.train else (),
        per_k=kind == PER_K,
        init=options.init if kind == "end-to-end" else None,
        published=options.published if kind == PUBLISHED else "",
    )


def _deciding_options(
    protocol: Protocol, options: BaselineOptions, kind: str
) -> dict[str, Any]:
    """Return the options that change the numbers of a kind."""
    values = asdict(options)
    deciding = {name: values[name] for name in DECIDING_OPTIONS[kind]}
    if kind == PER_K:
        names = SHARED_OPTIONS if options.spread == "shared" else PER_QUERY_OPTIONS
        settings = asdict(protocol)
        deciding |= {f"protocol {name}": settings[name] for name in names}
    if kind not in ("logistic", PER_K):
        deciding["torch"] = _torch_version()
    if kind != "logistic":
        deciding["seed"] = protocol.seed
    return deciding


def _torch_version() -> str:
    """Return torch's version, which changes the last digits of networks; empty without torch."""
    try:
        return version("torch")
    except PackageNotFoundError:
        return ""
