"""The baselines of a study → steps: one training for each kind and encoder.

Networks are stored by what decides their weights (`networks`, beside the steps): a step that runs
again, after a kill or a changed line of the study, trains only those that are missing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from pathlib import Path
from typing import Any

from callshot.baselines.options import BaselineOptions
from callshot.baselines.run import TrainingContext
from callshot.corpus.segment_table import SEGMENTS
from callshot.corpus.segments import audio_root
from callshot.fewshot.protocol import Protocol
from callshot.records import Progress
from callshot.study.equal_encoders import measure_once
from callshot.study.file_steps import DatasetChoice
from callshot.study.steps import Input, Step, folder_name, optional
from callshot.study.study_file import Study, StudyCorpus
from callshot.study.train_baselines import (
    TrainingInputs,
    baseline_files,
    train_baseline_files,
)
from callshot.tables.fold_files import FOLDS, FOLDS_INFO
from callshot.tables.sequence_tables import sequences_path

EMBEDDINGS = "embeddings.parquet"
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


@dataclass(frozen=True)
class BaselinePlanner:
    """Makes the steps of the baselines of one corpus."""

    study: Study
    corpus: StudyCorpus
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
        for kind, (number, embed) in product(kinds, enumerate(embeds)):
            sequence = None
            if kind == "recurrent":
                sequence = sequence_steps[embed.encoder]
            step = self.step(kind, embed, sequence)
            table, earlier = list_tables(embeds[: number + 1])
            steps.append(measure_once(step, table, earlier))
        if "end-to-end" in options.train:
            steps.append(self.step("end-to-end", embeds[0]))
        if options.published:
            steps.append(self.step(PUBLISHED, embeds[0]))
        return steps

    def step(self, kind: str, embed: Step, sequence: Step | None = None) -> Step:
        """Return the step of one baseline on one encoder."""
        corpus = self.corpus
        reads_audio = kind in AUDIO_KINDS
        encoder = "" if reads_audio else embed.encoder
        folder = self._folder(kind, encoder)
        table = embed.folder / EMBEDDINGS
        options = _options_of_kind(self.study.baselines, kind)
        sequences = [
            sequences_path(step.folder / EMBEDDINGS) for step in optional(sequence)
        ]
        segments = self.segment.folder / SEGMENTS
        training = TrainingInputs(sequences or None, segments, audio_root(corpus.audio))
        networks = self._folder("networks", encoder)
        make = partial(self._train, table, folder, options, training, networks)
        inputs: list[Input] = [table, *sequences, *dataset_inputs(corpus, self.fold)]
        after = [embed, *optional(sequence), self.fold]
        if reads_audio:
            inputs += [segments, *optional(options.init)]
            after.insert(0, self.segment)
        key = _deciding_options(self.study.protocol, options, kind)
        key["corpus"] = corpus.known_name
        return Step(
            kind=kind,
            corpus=corpus.name,
            encoder=encoder,
            folder=folder,
            options=key,
            inputs=inputs,
            make=make,
            after=after,
        )

    def _folder(self, kind: str, encoder: str) -> Path:
        return self.study.work / kind / self.corpus.name / folder_name(encoder)

    def _train(
        self,
        table: Path,
        folder: Path,
        options: BaselineOptions,
        inputs: TrainingInputs,
        networks: Path,
        progress: Progress,
    ) -> Sequence[str]:
        """Train the baseline of a step; return the names of its files."""
        protocol = self.study.protocol
        results = train_baseline_files(
            [table],
            folder,
            options,
            protocol,
            choice=dataset_choice(self.corpus, self.fold),
            inputs=inputs,
            context=TrainingContext(
                protocol.seed, self.device, self.threads, networks, progress
            ),
        )
        return baseline_files(results)


def list_tables(embeds: Sequence[Step]) -> tuple[Path, list[tuple[str, Path]]]:
    """Return the table of the last encoder, and the names and tables of those before it."""
    *earlier, last = embeds
    named = [(embed.encoder, embed.folder / EMBEDDINGS) for embed in earlier]
    return last.folder / EMBEDDINGS, named


def dataset_choice(corpus: StudyCorpus, fold: Step) -> DatasetChoice:
    """Return the choice of the folds that a step made, and of the categories of a corpus."""
    return DatasetChoice(
        folds_dir=fold.folder, categories=corpus.categories, corpus=corpus.name
    )


def dataset_inputs(corpus: StudyCorpus, fold: Step) -> list[Path]:
    """Return the files of that choice."""
    folds = [fold.folder / FOLDS, fold.folder / FOLDS_INFO]
    return [*folds, *optional(corpus.categories)]


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
    deciding = {name: getattr(options, name) for name in DECIDING_OPTIONS[kind]}
    if kind == PER_K:
        spreads = options.spreads(protocol)
        names = [name for spread in spreads for name in PER_K_OPTIONS[spread]]
        deciding |= {f"protocol {name}": getattr(protocol, name) for name in names}
        deciding["spread"] = spreads
    else:
        deciding["protocol total_samples"] = _total_samples(protocol)
    if kind not in ("logistic", PER_K):
        deciding["torch"] = _torch_version()
    if kind != "logistic" or _total_samples(protocol):
        deciding["seed"] = protocol.seed
    return deciding


def _total_samples(protocol: Protocol) -> int:
    """Return the samples of baselines trained on all labels; 0 without the spread `total`."""
    return protocol.total_samples if "total" in protocol.spreads else 0


def _torch_version() -> str:
    """Return torch's version, which changes the last digits of networks; empty without torch."""
    try:
        return version("torch")
    except PackageNotFoundError:
        return ""
