"""A study → its steps, in the order in which they run.

    segment ─→ embed (each encoder) ─→ fold ─→ evaluate (each encoder) ─→ report
       ╰───────────────────────────────↗  ╰──→ baselines (each kind and encoder) ─↗

Each corpus has its own steps; the report is of all.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
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
from callshot.report.write_report import ReportOptions
from callshot.spans import Spans
from callshot.study.corpus_results import CorpusFolders, read_corpus_results
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
from callshot.study.train_baselines import (
    TrainingInputs,
    baseline_files,
    train_baseline_files,
)
from callshot.tables.embedding_tables import sequences_path, table_segments
from callshot.tables.fold_files import FOLDS, FOLDS_INFO

# In the order in which they run. Sequences come before vectors: in the store, most vectors come
# with them.
KINDS = ("segment", "sequences", "embeds", "fold", "evaluations", "baselines")
# Lists that are written if they have rows.
BESIDE_EMBEDDINGS = ("rejects", "duplicates")
MEASURED = ("evaluations", "baselines")
REPORT_KEYS = "keys.json"  # of files of the report that may serve again
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


@dataclass
class CorpusSteps:
    """The steps of one corpus."""

    corpus: StudyCorpus
    segment: Step
    fold: Step | None = None
    sequences: list[Step] = field(default_factory=list)
    embeds: list[Step] = field(default_factory=list)
    evaluations: list[Step] = field(default_factory=list)
    baselines: list[Step] = field(default_factory=list)


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
    planner = _Planner(study, device or study.device, threads, processes, cluster)
    corpora = [planner.corpus_steps(corpus) for corpus in study.corpora]
    steps = _steps_of_kinds(corpora, KINDS)
    return [*steps, planner.report_step(corpora)]


def _steps_of_kinds(corpora: Sequence[CorpusSteps], kinds: Sequence[str]) -> list[Step]:
    """Return the steps of all corpora, one kind after the other."""
    steps = []
    for kind, corpus in product(kinds, corpora):
        of_kind = getattr(corpus, kind)
        steps += of_kind if isinstance(of_kind, list) else [of_kind]
    return steps


@dataclass(frozen=True)
class _Planner:
    """Makes the steps of a study."""

    study: Study
    device: str
    threads: int | None
    processes: int = 1
    cluster: Cluster | None = None

    def corpus_steps(self, corpus: StudyCorpus) -> CorpusSteps:
        steps = CorpusSteps(corpus, self.segment_step(corpus))
        for encoder in self.study.encoders:
            if "recurrent" in self.study.baselines.train:
                steps.sequences.append(self.embed_step(steps, encoder, "sequence"))
            steps.embeds.append(self.embed_step(steps, encoder, "embed"))
        steps.fold = self.fold_step(steps)
        for number, embed in enumerate(steps.embeds):
            step = self.evaluate_step(corpus, embed, steps.fold)
            table, earlier = list_tables(steps.embeds[: number + 1])
            steps.evaluations.append(measure_once(step, table, earlier))
        steps.baselines = self.baseline_steps(steps, steps.fold)
        return steps

    def segment_step(self, corpus: StudyCorpus) -> Step:
        folder = self.study.work / "segment" / corpus.name
        annotation_options = corpus.annotation_options
        options = {
            **asdict(corpus.segmentation),
            **describe_annotation_options(annotation_options),
            "format": corpus.format,
            "corpus": corpus.known_name,
        }
        places = [corpus.audio, *optional(corpus.annotations)]
        inputs: list[Input] = [
            partial(
                fingerprint,
                place,
                annotation_options.exclude,
                follow_links=annotation_options.follow_links,
            )
            for place in places
        ]

        def make(progress: Progress) -> Sequence[str]:
            segment_files(
                corpus.audio,
                folder,
                corpus.annotations,
                options=corpus.segmentation,
                format=corpus.format,
                annotation_options=annotation_options,
                corpus=corpus.known_corpus,
                threads=self.threads,
                progress=progress,
            )
            return [SEGMENTS, REJECTS, SEGMENTS_INFO]

        return Step(
            kind="segment",
            corpus=corpus.name,
            encoder="",
            folder=folder,
            options=options,
            inputs=inputs,
            make=make,
        )

    def embed_step(self, steps: CorpusSteps, encoder: StudyEncoder, kind: str) -> Step:
        """Return the step of an encoder's vectors, or of its sequences.

        These are two steps: with sequences, some models give other last digits of vectors.
        """
        corpus = steps.corpus
        folder = self.study.work / kind / corpus.name / folder_name(encoder.title)
        source = steps.segment.folder / SEGMENTS
        device = network_device(self.device) if encoder.joined_encoder.gpu else "cpu"
        is_sequence = kind == "sequence"

        def make(progress: Progress) -> Sequence[str]:
            out = folder / EMBEDDINGS
            embed_files(
                source,
                out,
                encoder.name,
                encoder.choices,
                name=encoder.title,
                audio=audio_root(corpus.audio),
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

        recordings = partial(_recordings_digest, source, corpus.audio)
        options = joined_fingerprint(encoder.joined_encoder, device)
        return Step(
            kind=kind,
            corpus=corpus.name,
            encoder=encoder.title,
            folder=folder,
            options=options,
            inputs=[source, recordings],
            make=make,
            after=[steps.segment],
        )

    def fold_step(self, steps: CorpusSteps) -> Step:
        corpus = steps.corpus
        folder = self.study.work / "fold" / corpus.name
        source = steps.segment.folder / SEGMENTS
        tables = [embed.folder / EMBEDDINGS for embed in steps.embeds]
        default = (
            DEFAULT_FOLDS if corpus.known_corpus is None else corpus.known_corpus.folds
        )

        def make(progress: Progress) -> Sequence[str]:
            fold_files(
                source,
                folder,
                tables,
                count=corpus.folds,
                file=corpus.fold_file,
                default=default,
                group_duplicates=corpus.group_duplicates,
            )
            return [FOLDS, FOLDS_INFO]

        inputs: list[Input] = [source, *optional(corpus.fold_file)]
        inputs.append(partial(_shared_segments_digest, tables))
        if corpus.group_duplicates:
            inputs += tables
        options = {
            "count": corpus.folds,
            "default": default,
            "group_duplicates": corpus.group_duplicates,
        }
        after = [steps.segment, *steps.embeds]
        return Step(
            kind="fold",
            corpus=corpus.name,
            encoder="",
            folder=folder,
            options=options,
            inputs=inputs,
            make=make,
            after=after,
        )

    def evaluate_step(self, corpus: StudyCorpus, embed: Step, fold: Step) -> Step:
        folder = self.study.work / "evaluate" / corpus.name / folder_name(embed.encoder)
        table = embed.folder / EMBEDDINGS

        def make(progress: Progress) -> Sequence[str]:
            evaluate_files(
                [table],
                folder,
                self.study.protocol,
                choice=dataset_choice(corpus, fold),
                threads=self.threads,
                device=self.device,
                cluster=self.cluster,
                figure=False,
                progress=progress,
            )
            return [*RESULT_FILES, PROVENANCE]

        inputs = [table, *dataset_inputs(corpus, fold)]
        options = {**asdict(self.study.protocol), "corpus": corpus.known_name}
        return Step(
            kind="evaluate",
            corpus=corpus.name,
            encoder=embed.encoder,
            folder=folder,
            options=options,
            inputs=inputs,
            make=make,
            after=[embed, fold],
        )

    def baseline_steps(self, steps: CorpusSteps, fold: Step) -> list[Step]:
        """Return a step for every baseline: on each encoder, or once on the audio.

        Networks are stored by what decides their weights (`networks`, beside the steps): a step
        that runs again, after a kill or a changed line of the study, trains only those that are
        missing.
        """
        options = self.study.baselines
        kinds = [kind for kind in options.train if kind != "end-to-end"]
        if options.per_k:
            kinds.append(PER_K)
        sequence_steps = {step.encoder: step for step in steps.sequences}
        baselines = []
        for kind, (number, embed) in product(kinds, enumerate(steps.embeds)):
            sequence = None
            if kind == "recurrent":
                sequence = sequence_steps[embed.encoder]
            step = self.baseline_step(kind, steps, fold, embed, sequence)
            table, earlier = list_tables(steps.embeds[: number + 1])
            baselines.append(measure_once(step, table, earlier))
        kinds = ["end-to-end"] if "end-to-end" in options.train else []
        if options.published:
            kinds.append(PUBLISHED)
        first = steps.embeds[0]
        return baselines + [
            self.baseline_step(kind, steps, fold, first) for kind in kinds
        ]

    def baseline_step(
        self,
        kind: str,
        steps: CorpusSteps,
        fold: Step,
        embed: Step,
        sequence: Step | None = None,
    ) -> Step:
        """Return the step of one baseline on one encoder."""
        corpus = steps.corpus
        protocol = self.study.protocol
        reads_audio = kind in AUDIO_KINDS
        encoder = "" if reads_audio else embed.encoder
        place = Path(corpus.name) / folder_name(encoder)
        folder = self.study.work / kind / place
        table = embed.folder / EMBEDDINGS
        options = _options_of_kind(self.study.baselines, kind)
        sequences = [
            sequences_path(step.folder / EMBEDDINGS) for step in optional(sequence)
        ]
        segments = steps.segment.folder / SEGMENTS
        training = TrainingInputs(sequences or None, segments, audio_root(corpus.audio))

        def make(progress: Progress) -> Sequence[str]:
            networks = self.study.work / "networks" / place
            results = train_baseline_files(
                [table],
                folder,
                options,
                protocol,
                choice=dataset_choice(corpus, fold),
                inputs=training,
                context=TrainingContext(
                    protocol.seed, self.device, self.threads, networks, progress
                ),
            )
            return baseline_files(results)

        inputs: list[Input] = [table, *sequences, *dataset_inputs(corpus, fold)]
        after = [embed, *optional(sequence), fold]
        if reads_audio:
            inputs += [segments, *optional(options.init)]
            after.insert(0, steps.segment)
        key = _deciding_options(protocol, options, kind)
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

    def report_step(self, corpora: Sequence[CorpusSteps]) -> Step:
        study = self.study
        folders = [self._corpus_folders(steps) for steps in corpora]
        report = ReportOptions(
            title=study.title,
            shots=study.shots,
            confusion=study.confusion,
            spread=study.spread,
            protocol=study.protocol,
            commands=[f"callshot run {study.path.name}"],
            figures=study.figures,
            pdf=study.pdf,
            sounds=study.sounds,
            target=study.target,
        )

        record_folder = study.work / "report"
        keys = record_folder / REPORT_KEYS

        def make(progress: Progress) -> Sequence[str]:
            processes = self.processes if study.figures else 1
            is_first = not keys.exists()  # later, few figures change
            with open_workers(processes, start_now=is_first) as workers:
                results = {
                    folder.corpus: read_corpus_results(folder) for folder in folders
                }
                segments = {
                    steps.corpus.name: _read_corpus_segments(steps) for steps in corpora
                }
                return report_files(
                    results,
                    study.out,
                    report,
                    _describe_study(study, corpora),
                    segments=segments,
                    workers=workers,
                    keys=keys,
                    owner=study.owner,
                    progress=progress,
                )

        after = _steps_of_kinds(corpora, ("segment", "embeds", *MEASURED))
        inputs: list[Input] = [
            partial(_results_digest, after),
            *optional(study.references),
        ]
        options = {**asdict(report), "study": study.text}
        return Step(
            kind="report",
            corpus="",
            encoder="",
            folder=study.out,
            options=options,
            inputs=inputs,
            make=make,
            after=after,
            record_folder=record_folder,
        )

    def _corpus_folders(self, steps: CorpusSteps) -> CorpusFolders:
        return CorpusFolders(
            corpus=steps.corpus.name,
            corpora=self.study.corpus_names,
            segments=steps.segment.folder,
            tables=[embed.folder / EMBEDDINGS for embed in steps.embeds],
            results=[evaluation.folder for evaluation in steps.evaluations],
            baselines=[baseline.folder for baseline in steps.baselines],
            reference=self.study.protocol.reference,
            references=self.study.references,
            categories=steps.corpus.categories,
            known_corpus=steps.corpus.known_corpus,
        )


def _describe_study(study: Study, corpora: Sequence[CorpusSteps]) -> dict[str, object]:
    """Return what a study was, and where its numbers came from."""
    segments = {}
    for steps in corpora:
        segments[steps.corpus.name] = _read_json(steps.segment.folder / SEGMENTS_INFO)
    steps_of_kinds = _steps_of_kinds(corpora, MEASURED)
    measured = [step for step in steps_of_kinds if is_measured(step.folder)]
    return {
        "study": study.text,
        "title": study.title,
        "encoders": {embed.encoder: embed.options for embed in corpora[0].embeds},
        "licences": {
            encoder.title: encoder.joined_encoder.licence for encoder in study.encoders
        },
        "segments": segments,
        "steps": [_read_json(step.folder / PROVENANCE) for step in measured],
    }


def _read_corpus_segments(steps: CorpusSteps) -> Spans:
    segments = read_segments(steps.segment.folder / SEGMENTS)
    return replace(segments, root=audio_root(steps.corpus.audio))


def _read_json(path: Path) -> object:
    return json.loads(path.read_text(encoding="utf-8"))


def _recordings_digest(source: Path, audio: Path) -> str:
    """Return a fingerprint of the recordings that segments are cut from, by size and time."""
    if not source.exists():
        return "nothing"
    root = audio_root(audio)
    paths = sorted(set(read_segments(source).paths))
    return digest([(path, fingerprint(root / path)) for path in paths])


def _results_digest(steps: Sequence[Step]) -> str:
    """Return a fingerprint of the results of steps, by their records."""
    return digest(
        [sorted(step.read_record().get("files", {}).items()) for step in steps]
    )


def _shared_segments_digest(tables: Sequence[Path]) -> str:
    """Return a fingerprint of the segments that all tables have."""
    segments = [table_segments(path) for path in tables if path.exists()]
    if not segments:
        return "nothing"
    return digest(sorted(frozenset.intersection(*segments)))


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
