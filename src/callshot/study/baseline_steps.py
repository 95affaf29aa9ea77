"""The rivals of a study → steps: a training for each rival and encoder.

Networks are kept by what decides their weights (`networks`, beside the steps): a step that runs again, after a kill or
another line of the study, trains only those that are not there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from callshot.baselines.run import BaselineOptions
from callshot.corpus.segment_table import SEGMENTS
from callshot.corpus.segments import audio_root
from callshot.fewshot.protocol import Protocol
from callshot.records import Progress
from callshot.study.file import CorpusPart, Study
from callshot.study.step_cache import Input, Step, maybe, safe_name
from callshot.study.train_baselines import Sources, train_baseline_files
from callshot.tables.embedding_tables import sequences_path
from callshot.tables.fold_files import FOLDS, FOLDS_INFO

EMBEDDINGS = "embeddings.parquet"
AT_K, PUBLISHED = "logistic-shots", "published"
DECIDE: Mapping[str, tuple[str, ...]] = {  # which choices reach the numbers of a kind
    "logistic": ("strength",),
    AT_K: ("strength", "draws", "spread"),
    "recurrent": ("cell", "seeds"),
    "end-to-end": (),
    PUBLISHED: ("published",),
}
DRAWN = (
    "shots",
    "whole_pool",
    "shared_draws",
    "sampler",
)  # what of a protocol reaches logistic regression at every k
RESAMPLED = ("draws", "bootstraps")  # and with draws for every query


def plan_baselines(
    study: Study,
    corpus: CorpusPart,
    cut: Step,
    embeds: Sequence[Step],
    sequences: Sequence[Step],
    fold: Step,
    device: str,
    threads: int | None,
) -> list[Step]:
    """Return a step for every rival of a corpus: on each encoder, or on the audio."""
    asked = study.training
    kinds = [
        *(kind for kind in asked.kinds if kind != "end-to-end"),
        *([AT_K] if asked.shots else []),
    ]
    behind = {step.encoder: step for step in sequences}
    steps = []
    for kind in kinds:
        for embed in embeds:
            extra = [behind[embed.encoder]] if kind == "recurrent" else []
            steps.append(_step(study, corpus, kind, embed, cut, fold, extra, device, threads))
    heard = [
        *(["end-to-end"] if "end-to-end" in asked.kinds else []),
        *([PUBLISHED] if asked.published else []),
    ]
    return [
        *steps,
        *(_step(study, corpus, kind, embeds[0], cut, fold, [], device, threads) for kind in heard),
    ]


def _step(
    study: Study,
    corpus: CorpusPart,
    kind: str,
    embed: Step,
    cut: Step,
    fold: Step,
    extra: Sequence[Step],
    device: str,
    threads: int | None,
) -> Step:
    alone = kind in ("end-to-end", PUBLISHED)
    encoder, table = "" if alone else embed.encoder, embed.folder / EMBEDDINGS
    folder = study.work / kind / corpus.name / safe_name(encoder)
    training = _only(study.training, kind)
    paths = [sequences_path(step.folder / EMBEDDINGS) for step in extra]
    sources = Sources(paths or None, cut.folder / SEGMENTS, audio_root(corpus.audio))

    def make(progress: Progress) -> Sequence[str]:
        found = train_baseline_files(
            [table],
            folder,
            training,
            study.protocol,
            sources=sources,
            folds_dir=fold.folder,
            categories=corpus.categories,
            corpus=corpus.name,
            device=device,
            threads=threads,
            keep=study.work / "networks" / corpus.name / safe_name(encoder),
            progress=progress,
        )
        return found.files

    inputs: list[Input] = [
        table,
        *paths,
        fold.folder / FOLDS,
        fold.folder / FOLDS_INFO,
        *maybe(corpus.categories),
    ]
    inputs += [cut.folder / SEGMENTS, *maybe(training.init)] if alone else []
    options = _options(study.protocol, training, kind) | {
        "corpus": None if corpus.known is None else corpus.known.name
    }
    after = [cut, embed, *extra, fold] if alone else [embed, *extra, fold]
    return Step(kind, corpus.name, encoder, folder, folder, options, inputs, make, after)


def _only(training: BaselineOptions, kind: str) -> BaselineOptions:
    """Return the training of one kind, with no more of the choices than it has."""
    kinds = (kind,) if kind in training.kinds else ()
    init, published = (
        training.init if kind == "end-to-end" else None,
        training.published if kind == PUBLISHED else "",
    )
    return replace(training, kinds=kinds, shots=kind == AT_K, init=init, published=published)


def _options(protocol: Protocol, training: BaselineOptions, kind: str) -> dict[str, Any]:
    chosen, drawn = asdict(training), asdict(protocol)
    told = {name: chosen[name] for name in DECIDE[kind]}
    if kind == AT_K:
        named = DRAWN if training.spread == "shared" else (*DRAWN, *RESAMPLED)
        told |= {f"protocol {name}": drawn[name] for name in named}
    if kind not in ("logistic", AT_K):
        told |= {"torch": _torch()}
    return told if kind == "logistic" else {**told, "seed": protocol.seed}


def _torch() -> str:
    """Return torch's version, with which networks differ in their last digits; none where it is not there."""
    try:
        return version("torch")
    except PackageNotFoundError:
        return ""


def baseline_folders(steps: Sequence[Step], corpus: str) -> list[Path]:
    """Return where the rivals of a corpus are told of."""
    return [step.folder for step in steps if step.corpus == corpus]
