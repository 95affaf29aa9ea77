"""callshot in Python: the same steps and the same option names as on the command line.

segment → embed → evaluate → compare, train_baselines; `callshot.pipeline.run` does all of them.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from callshot import pipeline
from callshot.baselines.options import BaselineOptions, check_trainable
from callshot.baselines.run import BaselineResults
from callshot.baselines.training import TrainingContext
from callshot.corpus.mixing import SNRS_DB
from callshot.corpus.options import (
    Renames,
    SegmentationOptions,
    read_source,
)
from callshot.corpus.segment_table import read_segments
from callshot.corpus.segments import segment_corpus
from callshot.encoders.embed import (
    BackgroundMix,
    EmbedOptions,
)
from callshot.encoders.spec import format_options
from callshot.errors import OptionError, check_options
from callshot.fewshot.dataset import Dataset
from callshot.fewshot.protocol import Protocol, make_protocol
from callshot.jobs import Cluster
from callshot.records import Evaluation, Folds, Progress, Segmentation, no_progress
from callshot.spans import Spans
from callshot.storage import to_path
from callshot.tables.read_dataset import (
    Data,
    check_same_data,
    collect_queries,
    collect_tables,
    group_tables,
    make_dataset,
    resolve_folds,
)
from callshot.vectors import Vectors

Segments = Segmentation | Spans | Path | str


def segment(
    audio: Path | str,
    annotations: Path | str | None = None,
    *,
    corpus: str | None = None,
    format: str = "auto",
    columns: Mapping[str, str] | None = None,
    tiers: Sequence[str] = (),
    label: str | None = None,
    rename: Renames | None = None,
    time_unit: str | None = None,
    follow_links: bool = False,
    threads: int | None = None,
    progress: Progress = no_progress,
    **options: Any,
) -> Segmentation:
    """Cut recordings into segments by their annotations.

    Parameters
    ----------
    audio : path
        Folder of the recordings, or one recording.
    annotations : path, optional
        Annotation file or folder of annotation files; found beside the recordings by default.
    corpus : str, optional
        A known corpus: ldc2010s05 or elephant-voices.
    format : str
        auto, csv, raven, audacity, textgrid, folders, or a format of crowsetta.
    columns : mapping, optional
        Our name of a column → its name in the file, e.g. {"label": "Species"}.
    tiers : sequence of str
        The TextGrid tiers that hold calls.
    label : str, optional
        The label of the rows that have none.
    rename : path or mapping, optional
        New labels by old ones, or a CSV file with label,new_label; calls whose new label is empty
        are left out.
    time_unit : str, optional
        The unit of times in tables, "s" or "ms"; by default by the names of columns, or seconds.
    follow_links : bool
        Read files behind links that lead outside the folder.
    threads, progress
        Threads that read audio, all cores by default; a function that gets shares of the work.
    **options
        Fields of `callshot.corpus.options.SegmentationOptions`: min_length_s, with_collar,
        collar_s, channel, rate_hz, peak_dbfs, source_rate_hz.

    Returns
    -------
    Segmentation
        `.segments`, and `.rejects` with a reason for each annotation that is none.

    Raises
    ------
    InputError
        If there are no recordings or annotations, or if annotations contradict each other.
    OptionError
        If an option is unknown or out of its range.

    Examples
    --------
    >>> import soundfile, tempfile
    >>> import numpy as np
    >>> folder = Path(tempfile.mkdtemp())
    >>> soundfile.write(folder / "a.wav", np.full(64000, 0.5), 16000)
    >>> _ = (folder / "a.txt").write_text("0.5\\t2.0\\trumble\\n")
    >>> segment(folder, collar_s=0.25).segments["label"]
    ['rumble']
    """
    check_options(options, SegmentationOptions)
    given = {
        "corpus": corpus,
        "format": format,
        "columns": columns,
        "tiers": tiers,
        "label": label,
        "rename": rename,
        "time_unit": time_unit,
        "follow_links": follow_links,
    }
    reading = read_source(given | options)
    return segment_corpus(
        audio,
        **reading | {"annotations": annotations},
        threads=threads,
        progress=progress,
    )


def embed(
    segments: Segments,
    encoder: str,
    *,
    encoder_options: Mapping[str, object] | None = None,
    name: str | None = None,
    audio: Path | str | None = None,
    site: Path | str | None = None,
    snr_db: Sequence[float] = SNRS_DB,
    store: Path | None = None,
    device: str = "cpu",
    threads: int | None = None,
    cluster: Cluster | None = None,
    progress: Progress = no_progress,
) -> Vectors:
    """Embed segments with a frozen encoder; vectors in the store are not computed again.

    Parameters
    ----------
    segments : Segmentation, Spans, or path
        The result of `segment` or `read_segments`, or the path of a segments.parquet.
    encoder : str
        Name of an encoder, such as "birdnet-v2.4"; `list_encoders` lists them.
    encoder_options : mapping, optional
        Options of the encoder that differ from its defaults, e.g. {"padding": "right"}.
    name : str, optional
        Name of the encoder in results; its own, with options that are not the defaults, if None.
    audio : path, optional
        Folder of the recordings, where it is not the one that the segments name.
    site : path, optional
        Recordings of another site. Each segment is mixed into background of the site once at each
        ratio of `snr_db`, and its vector is the mean.
    snr_db : sequence of float
        Signal-to-noise ratios in dB, for `site`.
    store : Path, optional
        Folder that stores embeddings; the user's cache by default.
    device, threads, progress
        cpu or cuda; the number of threads; a function that gets shares of the work.
    cluster : Cluster, optional
        Workers that embed the segments, of `callshot.open_cluster`; not with `site`.

    Returns
    -------
    Vectors
        One row per segment; segments that could not be read are left out.

    Raises
    ------
    InputError
        If no segment could be embedded.

    Examples
    --------
    >>> import soundfile, tempfile
    >>> import numpy as np
    >>> folder = Path(tempfile.mkdtemp())
    >>> soundfile.write(folder / "a.wav", np.sin(np.arange(64000) / 9), 16000)
    >>> _ = (folder / "a.txt").write_text("0.5\\t2.0\\trumble\\n")
    >>> embed(segment(folder), "mfcc", store=folder / "store").matrix.shape
    (1, 40)
    """
    if isinstance(segments, Path | str):
        segments = read_segments(to_path(segments))
    spans = segments.segments if isinstance(segments, Segmentation) else segments
    mix = None if site is None else BackgroundMix(to_path(site), snr_db)
    texts = format_options(encoder_options)
    options = EmbedOptions(texts, store, device, threads, cluster)
    table, _ = pipeline.embed(
        spans, encoder, options, name=name, audio=audio, mix=mix, progress=progress
    )
    return table


def evaluate(
    X: Data,
    y: Sequence[str] | None = None,
    *,
    groups: Sequence[Any] | None = None,
    shots: str | Sequence[int] = "1-40",
    spread: str = "all",
    folds: Folds | int | None = None,
    queries: Data | None = None,
    centre: bool = False,
    categories: Mapping[str, str] | None = None,
    group_duplicates: bool = False,
    corpus: str = "corpus",
    threads: int | None = None,
    device: str = "auto",
    cluster: Cluster | None = None,
    progress: Progress = no_progress,
    **options: Any,
) -> Evaluation:
    """Measure how well a parameter-free classifier does with k examples per class.

    Parameters
    ----------
    X : Vectors, sequence of Vectors, or array of shape (segments, dimensions)
        The vectors; several tables are several encoders over the same segments.
    y : sequence of str, optional
        With an array: the label of each row.
    groups : sequence, optional
        With an array: the recording of each row. No recording is on both sides of a fold. Without
        it, every row is a recording of its own.
    shots : str or sequence of int
        Examples per class: "1-40", "1,2,5,10", "all", or numbers.
    spread : str
        Where intervals come from: per-query (the paper's bootstrap), shared (which calls were
        labelled), total (which calls were labelled, and which recorded), or all.
    folds : Folds or int, optional
        Given folds, or how many to build; 5 by default. With queries, given folds are theirs.
    queries : Vectors, sequence of Vectors, or tuple of arrays (X, y) or (X, y, groups)
        Another corpus that the queries are from, by the same encoders; X has the examples. The
        result is a `TransferEvaluation`, with the curves within both corpora and the difference.
    centre : bool
        With queries: add curves on vectors minus the mean of their own corpus.
    categories : mapping, optional
        Label → category: adds the reduced scoring over categories.
    group_duplicates : bool
        Whether recordings that share a segment with the same vector count as one recording.
    corpus : str
        Name of the corpus in the results; with queries, of theirs.
    threads, device, progress
        Threads, all cores by default; they change the time, not the numbers. Where sweeps run: cpu,
        cuda, or auto, the GPU if there is one. A function that gets shares of the work.
    cluster : Cluster, optional
        Workers that sweep, of `callshot.open_cluster`.
    **options
        Further fields of `Protocol`: draws, bootstraps, shared_draws, total_samples,
        permutations, repeat_folds, seed, sampler, score, classifiers.

    Returns
    -------
    Evaluation
        Frames `.curve`, `.values`, `.per_class`, `.confusion`, `.chance_test`, `.partitions`,
        `.sensitivity`, `.sensitivity_means`, `.duplicates`, `.differences`, `.budget`, and
        `.plot()`.

    Raises
    ------
    InputError
        If the data allow no evaluation.
    OptionError
        If an option is unknown or out of its range.

    Examples
    --------
    >>> import numpy as np
    >>> y = ["rumble", "roar"] * 20
    >>> X = np.random.default_rng(0).normal(size=(40, 8)) + [[3.0 * (one == "roar")] for one in y]
    >>> recordings = [f"recording {i // 4}" for i in range(40)]
    >>> result = evaluate(X, y, groups=recordings, shots="1,5", spread="shared")
    >>> result.curve.filter(metric="map", spread="shared").select("k", "mean").rows()
    [(1, 1.0), (5, 1.0)]
    """
    protocol = make_protocol(shots=shots, spread=spread, **options)
    tables = collect_tables(X, y, groups)
    query_set = None
    if queries is None:
        if centre:
            raise OptionError(
                "centre: needs queries; inside one corpus it does nothing"
            )
        dataset = make_dataset(corpus, tables, folds, group_duplicates, categories)
    else:
        # Given folds are those of the queries; a number of folds is for both corpora.
        source_folds = None if isinstance(folds, Folds) else folds
        dataset = make_dataset("source", tables, source_folds, group_duplicates)
        name = "target" if corpus == "corpus" else corpus
        query_tables = collect_queries(queries)
        query_set = make_dataset(
            name, query_tables, folds, group_duplicates, categories
        )
    return pipeline.evaluate(
        dataset,
        protocol,
        queries=query_set,
        centre=centre,
        threads=threads,
        device=device,
        cluster=cluster,
        progress=progress,
    )


def train_baselines(
    X: Data,
    y: Sequence[str] | None = None,
    *,
    groups: Sequence[Any] | None = None,
    against: Evaluation | None = None,
    folds: Folds | int | None = None,
    categories: Mapping[str, str] | None = None,
    group_duplicates: bool = False,
    train: str | Sequence[str] = ("logistic",),
    context: TrainingContext | None = None,
    **options: Any,
) -> BaselineResults:
    """Train classifiers on all labels of the support sides, and score them on the same queries.

    Parameters
    ----------
    X, y, groups
        As in `evaluate`.
    against : Evaluation, optional
        The result of `evaluate` on the same data: its folds are used, and crossovers are found.
    folds, categories, group_duplicates
        As in `evaluate`.
    train : sequence of str
        The kinds of baselines. From vectors alone, that is logistic regression; networks read
        sequences or audio: see the command `callshot baselines`.
    context : TrainingContext, optional
        Seed, threads and progress.
    **options
        Further fields of `BaselineOptions`: per_k, draws, spread, C.

    Returns
    -------
    BaselineResults
        Frames `.baselines`, `.refinement`, `.crossovers`, and evaluations `.per_k`.

    Raises
    ------
    InputError
        If the data allow no training.
    OptionError
        If an option is unknown or out of its range.

    Examples
    --------
    >>> import numpy as np
    >>> y = ["rumble", "roar"] * 20
    >>> X = np.random.default_rng(0).normal(size=(40, 8)) + [[3.0 * (one == "roar")] for one in y]
    >>> train_baselines(X, y, folds=2).baselines.select("name", "metric", "value").rows()
    [('LR', 'map', 1.0), ('LR', 'auroc', 1.0)]
    """
    check_options(options, BaselineOptions)
    kinds = (train,) if isinstance(train, str) else tuple(train)
    baseline_options = BaselineOptions(kinds, **options)
    if baseline_options.needs_torch or baseline_options.published:
        raise OptionError(
            "train: networks read sequences or audio; use callshot baselines"
        )
    check_trainable(baseline_options)
    tables = collect_tables(X, y, groups)
    if group_duplicates:
        tables = group_tables(tables)
    protocol = Protocol()
    corpus = "corpus"
    if against is not None:
        check_same_data(tables, against)
        protocol = Protocol(**against.settings)
        folds = against.folds
        corpus = against.corpus
    dataset = Dataset(corpus, tables, resolve_folds(tables, folds), categories)
    return pipeline.train(
        dataset, baseline_options, protocol, against=against, context=context
    )
