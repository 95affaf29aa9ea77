"""Tables of embeddings, with their sequences or their audio → what rivals score on them, in a directory.

rivals.csv       what each scored, trained on all labels of the support side of every split
refinement.csv   what gradient steps from the centroid bring, up to logistic regression
crossings.csv    where the centroid passes a rival, and logistic regression at the same k the centroid
curve.csv …      logistic regression at every k, as an evaluation's
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from callshot.baselines.run import (
    BaselineOptions,
    Progress,
    Signal,
    check_trainable,
    score_aerd_package,
    sweep_logistic_per_k,
    train_end_to_end,
    train_logistic,
    train_recurrent,
)
from callshot.corpus.audio import load_audio
from callshot.corpus.known_corpora import CORPORA
from callshot.corpus.segment_table import read_segments
from callshot.errors import InputError, OptionError
from callshot.fewshot.crossover import find_crossovers
from callshot.fewshot.protocol import Protocol
from callshot.files import describe_file
from callshot.records import Baseline, Crossover, Evaluation, RefinementStep, no_progress
from callshot.report.output_folder import open_output_folder
from callshot.report.provenance import describe_evaluation
from callshot.report.results import (
    PROVENANCE,
    WRITERS,
    merge,
    read_baselines,
    read_refinement,
    read_results,
    write_baselines,
    write_crossovers,
    write_refinement,
)
from callshot.tables.dataset import Dataset, EncoderDataset, read_dataset
from callshot.tables.embedding_tables import read_sequences, sequences_path

BASELINES, REFINEMENT, CROSSOVERS = "rivals.csv", "refinement.csv", "crossings.csv"
MARK = "callshot rivals"  # what a directory of theirs says it is of
HEARD_HZ = 16_000  # what the end-to-end rival hears


@dataclass(frozen=True)
class Sources:
    """What rivals are trained on beside vectors: sequences (of each table) and segments with the folder of their audio.

    Without a path, sequences lie beside their table, and the table of segments knows its audio.
    """

    sequences: Sequence[Path] | None = None
    segments: Path | None = None
    audio: Path | None = None


@dataclass(frozen=True)
class BaselineResults:
    """What rivals did: `swept` is logistic regression at every k."""

    baselines: list[Baseline] = field(default_factory=list)
    refinement: list[RefinementStep] = field(default_factory=list)
    swept: Evaluation | None = None
    crossovers: list[Crossover] = field(default_factory=list)
    networks: list[dict[str, Any]] = field(default_factory=list)  # what is told of each

    @property
    def files(self) -> list[str]:
        """The names of the files that tell it."""
        told = {
            BASELINES: True,
            REFINEMENT: self.refinement,
            CROSSOVERS: self.crossovers,
            PROVENANCE: True,
        }
        return [
            *(name for name, there in told.items() if there),
            *(WRITERS if self.swept is not None else ()),
        ]


def train_baseline_files(
    paths: Sequence[Path],
    out: Path,
    training: BaselineOptions,
    protocol: Protocol,
    *,
    sources: Sources | None = None,
    against: Path | None = None,
    fold_file: Path | None = None,
    folds: int | None = None,
    folds_dir: Path | None = None,
    categories: Path | None = None,
    corpus: str | None = None,
    device: str = "cpu",
    threads: int | None = None,
    keep: Path | None = None,
    progress: Progress = no_progress,
) -> BaselineResults:
    """Train rivals on tables of embeddings and write what they score to a directory.

    `against` are results of `evaluate_files`: the same folds are taken, and crossings are told. See `read_ground` for
    the other choices of a ground. `keep` is a folder for networks, so that none is trained twice.
    """
    if not training.kinds and not training.shots and not training.published:
        raise OptionError(
            "rival: nothing to train; name one, or ask for logistic regression at every k"
        )
    check_trainable(training, device)
    rule = None
    if against is not None:
        rule = read_rule(against, paths, protocol, categories)
        _refuse_choices(against, rule.corpus, corpus, (folds, fold_file, folds_dir))
        corpus, fold_file = rule.corpus, against / "folds.csv"
    with open_output_folder(
        out, (BASELINES, REFINEMENT, CROSSOVERS, *WRITERS), PROVENANCE, mark=MARK
    ) as staging:
        dataset = read_dataset(
            paths,
            folds=folds,
            fold_file=fold_file,
            folds_dir=folds_dir,
            categories=categories,
            corpus=corpus,
            known=CORPORA,
        )
        found = _train(
            dataset,
            paths,
            training,
            protocol,
            sources or Sources(),
            device,
            threads,
            keep,
            progress,
        )
        if rule is not None:
            trained = () if found.swept is None else found.swept.values
            found = replace(
                found,
                crossovers=find_crossovers(
                    rule.values, found.baselines, trained, rule.complete_shots
                ),
            )
        options, measured = (
            _options(training, device, found.networks),
            found.swept or next(dataset.per_encoder()).empty_evaluation(),
        )
        told = describe_evaluation(measured, protocol, dataset.files, options)
        staging.write(lambda folder: _write(found, folder), told)
    return found


def protocol_of_results(against: Path | None, changes: Mapping[str, Any]) -> Protocol:
    """Return the protocol of earlier results, with changes."""
    return Protocol(**changes) if against is None else Protocol(**{**_told(against)[0], **changes})


def read_rule(
    against: Path, paths: Sequence[Path], protocol: Protocol, categories: Path | None
) -> Evaluation:
    """Return what the centroid did in earlier results; refused where that was another contest.

    The tables must be those that were evaluated, the draws those of the same seed and sampler, the categories the same.
    """
    drawn, inputs = _told(against)
    rule = read_results(against).under(["centroid"])
    if not rule.curve:
        raise InputError(
            f"{against}: has no curve of the centroid; name a directory that callshot evaluate wrote"
        )
    for name in ("seed", "sampler"):
        if getattr(protocol, name) != drawn[name]:
            found = (
                f"{getattr(protocol, name)} are other draws than those of {against} ({drawn[name]})"
            )
            raise OptionError(
                f"{name}: {found}, and only the same can be compared; leave the option out"
            )
    for role, path in [
        *(("table", path) for path in paths),
        *([("categories", categories)] if categories else []),
    ]:
        if describe_file(path)["sha256"] not in {
            one["sha256"] for one in inputs if one["role"] == role
        }:
            raise InputError(
                f"{path}: not a file that {against} was made from (its sha256 differs); evaluate it first"
            )
    return rule


def _refuse_choices(against: Path, name: str, corpus: str | None, folds: Sequence[object]) -> None:
    """Refuse what earlier results have chosen already."""
    if any(choice is not None for choice in folds):
        raise OptionError(f"folds: those of {against} are taken; leave the option out")
    if corpus not in (None, name):
        raise OptionError(f"corpus: {against} calls it {name!r}; leave the option out")


def _told(against: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the protocol and the inputs of earlier results."""
    try:
        told = json.loads((against / PROVENANCE).read_text(encoding="utf-8"))
        drawn: dict[str, Any] = {
            name: tuple(x) if isinstance(x, list) else x for name, x in told["protocol"].items()
        }
        return asdict(Protocol(**drawn)), [
            {"role": str(x["role"]), "sha256": x["sha256"]} for x in told["inputs"]
        ]
    except OSError as error:
        raise InputError(
            f"{against / PROVENANCE}: {error.strerror}; name a directory that callshot evaluate wrote"
        ) from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise InputError(
            f"{against / PROVENANCE}: not the provenance of an evaluation; evaluate again"
        ) from None


def read_baseline_results(folder: Path) -> BaselineResults:
    """Return what `train_files` wrote, but for crossings."""
    refinement = folder / REFINEMENT
    return BaselineResults(
        read_baselines(folder / BASELINES),
        read_refinement(refinement) if refinement.exists() else [],
        read_results(folder) if (folder / "curve.csv").exists() else None,
    )


def _train(
    dataset: Dataset,
    paths: Sequence[Path],
    training: BaselineOptions,
    protocol: Protocol,
    sources: Sources,
    device: str,
    threads: int | None,
    keep: Path | None,
    progress: Progress,
) -> BaselineResults:
    """Train every rival that is asked for, on every encoder; the end-to-end one once."""
    plots = list(dataset.per_encoder())
    frames, signals = _read_inputs(plots, paths, training, sources, threads)
    more: dict[str, Any] = {"seed": protocol.seed, "device": device, "threads": threads}
    each = [kind for kind in training.kinds if kind != "end-to-end"]
    parts = (
        len(plots) * (len(each) + training.shots)
        + ("end-to-end" in training.kinds)
        + bool(training.published)
    )

    def heard(share: float, what: str) -> None:
        progress(share / parts, what)

    baselines, refinement, swept, networks = (
        list[Baseline](),
        list[RefinementStep](),
        list[Evaluation](),
        list[dict[str, Any]](),
    )
    for n, plot in enumerate(plots):
        if "logistic" in each:
            fitted, refined = train_logistic(plot, training, threads=threads, progress=heard)
            baselines, refinement = [*baselines, *fitted], [*refinement, *refined]
        if training.shots:
            swept.append(
                sweep_logistic_per_k(plot, training, protocol, threads=threads, progress=heard)
            )
        if "recurrent" in each:
            trained, told = train_recurrent(
                plot, training, frames[n], folder=keep, progress=heard, **more
            )
            baselines, networks = [*baselines, *trained], [*networks, told]
    if "end-to-end" in training.kinds:
        trained, told = train_end_to_end(
            plots[0], training, signals, folder=keep, progress=heard, **more
        )
        baselines, networks = [*baselines, *trained], [*networks, told]
    if training.published:
        baselines += score_aerd_package(plots[0], training.published, signals)
    return BaselineResults(
        baselines, refinement, merge(swept) if swept else None, networks=networks
    )


def _read_inputs(
    plots: Sequence[EncoderDataset],
    paths: Sequence[Path],
    training: BaselineOptions,
    sources: Sources,
    threads: int | None,
) -> tuple[list[list[Signal]], list[Signal]]:
    """Return the sequences of each encoder, and the audio, where they are asked for: before anything is trained."""
    frames, signals = list[list[Signal]](), list[Signal]()
    if "recurrent" in training.kinds:
        beside = sources.sequences or [sequences_path(path) for path in paths]
        frames = [
            read_sequences(path, plot.segments) for plot, path in zip(plots, beside, strict=True)
        ]
    if "end-to-end" in training.kinds or training.published:
        signals = list(_listen(plots[0], sources, threads))
    return frames, signals


def _listen(plot: EncoderDataset, sources: Sources, threads: int | None) -> Iterator[Signal]:
    """Yield the audio of every row of the episodes."""
    if sources.segments is None:
        raise OptionError(
            "segments: the end-to-end rival hears the audio; name the table of segments"
        )
    table, facts = read_segments(sources.segments)
    known = {segment.segment: replace(segment, rate_hz=HEARD_HZ) for segment in table}
    if missing := [name for name in plot.segments if name not in known]:
        raise InputError(
            f"{sources.segments}: no segment {missing[0]!r}, which {plot.table.source} has"
        )
    root = sources.audio or Path(facts.get("audio", ""))
    wanted = [known[name] for name in plot.segments]
    order = sorted(range(len(wanted)), key=lambda n: (wanted[n].path, wanted[n].start_s))
    found: dict[int, Signal] = {}
    for n, signal in load_audio(root, [wanted[n] for n in order], threads=threads):
        if isinstance(signal, InputError):
            raise InputError(f"{wanted[order[n]].path}: cannot be heard any more ({signal})")
        found[order[n]] = signal
    return (found[n] for n in range(len(wanted)))


def _options(
    training: BaselineOptions, device: str, networks: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    told: dict[str, Any] = {
        "training": asdict(replace(training, init=None)) | {"init": str(training.init or "")}
    }
    if set(training.kinds) - {"logistic"} or training.published:
        told |= {"device": device, "torch": version("torch"), "networks": list(networks)}
    return told


def _write(found: BaselineResults, folder: Path) -> list[str]:
    write_baselines(found.baselines, folder / BASELINES)
    if found.refinement:
        write_refinement(found.refinement, folder / REFINEMENT)
    if found.crossovers:
        write_crossovers(found.crossovers, folder / CROSSOVERS)
    if found.swept is not None:
        for name, write in WRITERS.items():
            write(found.swept, folder / name)
    return [name for name in found.files if name != PROVENANCE]
