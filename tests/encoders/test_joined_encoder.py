"""Encoders are joined: their vectors stand side by side, and are scaled by a stated rule."""

import numpy as np
import pytest

from callshot.api import evaluate
from callshot.encoders.embed import EmbedOptions, embed
from callshot.encoders.joined_encoder import find_joined_encoder, joined_fingerprint
from callshot.encoders.workers import Workers
from callshot.errors import OptionError
from callshot.fewshot.classifiers import CENTROID
from callshot.fewshot.episodes import plan_episodes, transform_split
from callshot.fewshot.folds import choose_folds, count_classes
from callshot.spans import concat_spans
from callshot.vectors import Vectors
from rows_of_spans import make_row, make_spans
from sounds import record, record_badly

NAMES = [
    "mfcc",
    "mfcc[speed=auto]",
    "mfcc[speed=auto,band=auto]",
    "mfcc[band=300-1000]+mfcc",
    "birdnet-v2.4[band=0-900.5,speed=1+2]+birdnet-v2.4[band=auto]",
    "birdnet-v2.4[hop_s=1,pooling=max,speed=1+2+4]",
    "birdnet-v2.4[speed=2+4]+mfcc[n_fft=512,scale=none]",
    "birdnet-v2.4[speed=2+4,scale=equal]",
    "birdnet-v2.4[speed=2]+mfcc+birdnet-v2.4[speed=4]",
]


@pytest.mark.parametrize("name", NAMES)
def test_the_name_in_results_finds_the_same_views_again(name):
    joined_encoder = find_joined_encoder(name)
    assert joined_encoder.name == name
    assert find_joined_encoder(joined_encoder.name) == joined_encoder


def test_choices_are_of_all_encoders_and_brackets_of_one():
    joined_encoder = find_joined_encoder(
        "mfcc[speed=2]+random", {"speed": "0.5+1", "pooling": "max"}
    )
    speeds = [(spec.name, spec.speed, spec.pooling) for spec in joined_encoder.specs]
    assert speeds == [("mfcc", 2, "max"), ("random", 0.5, "max"), ("random", 1, "max")]


@pytest.mark.parametrize(
    ("name", "choices", "dimensions"),
    [
        ("mfcc", {}, ()),
        ("mfcc", {"speed": "2+4"}, ()),
        ("mfcc", {"speed": "2+4", "scale": "equal"}, (40, 40)),
        ("birdnet-v2.4+mfcc", {}, (1024, 40)),
        ("birdnet-v2.4+mfcc", {"scale": "none"}, ()),
    ],
)
def test_only_different_encoders_are_scaled_unless_the_user_decides(
    name, choices, dimensions
):
    assert find_joined_encoder(name, choices).scaled_dimensions == dimensions


def test_the_path_of_a_model_may_contain_a_plus():
    choices = {"rate_hz": "16000", "window_s": "1", "dimension": "4"}
    (spec,) = find_joined_encoder("onnx:a+b/c.onnx", choices).specs
    assert spec.options["path"].endswith("a+b/c.onnx")
    joined = find_joined_encoder(
        "mfcc+onnx:c.onnx[rate_hz=16000,window_s=1,dimension=4]"
    )
    assert joined.scaled_dimensions == (40, 4)


@pytest.mark.parametrize(
    ("name", "choices", "message"),
    [
        ("mfcc+mfcc", {}, "mfcc is joined with itself"),
        ("mfcc", {"speed": "2+2"}, r"mfcc\[speed=2\] is joined with itself"),
        ("mfcc+mfc", {}, "unknown name 'mfc'; did you mean mfcc"),
        ("mfcc+", {}, "unknown name ''"),
        ("mfcc[speed]", {}, r"expected options like \[speed=2,pooling=max\], got 'spe"),
        ("mfcc+random", {"n_fft": "512"}, "random: no option 'n_fft'"),
        ("mfcc+random", {"scale": "half"}, "scale: expected one of equal, none"),
        ("mfcc", {"speed": "2+fast"}, "speed: expected a value like 1.0, got 'fast'"),
    ],
)
def test_a_wrong_name_is_an_error(name, choices, message):
    with pytest.raises(OptionError, match=message):
        find_joined_encoder(name, choices)


def test_every_view_and_the_scale_are_in_the_fingerprint():
    names = ["mfcc", "mfcc[speed=2]", "mfcc[speed=2+4]", "mfcc[speed=4+2]"]
    names += ["mfcc[speed=2+4,scale=equal]", "mfcc+random", "random+mfcc"]
    prints = [joined_fingerprint(find_joined_encoder(name)) for name in names]
    assert all(prints.count(one) == 1 for one in prints)


# Embedding


def make_segment(path, start_s=0.0, end_s=1.0):
    return make_row(path, start_s, end_s, channel_rule="mean", peak_dbfs=-3.0)


@pytest.fixture
def audio(tmp_path):
    for n in range(3):
        record(tmp_path / f"r{n}.wav", seconds=4, rate=16000, seed=n)
    segments = [
        make_segment(f"r{n}.wav", start, start + 1.5)
        for n in range(3)
        for start in (0.0, 1.0)
    ]
    return make_spans(segments, tmp_path)


def embed_as(audio, name, **choices):
    options = EmbedOptions(choices, audio.root / "store", threads=1)
    return embed(audio, name, options)


def test_a_joined_encoder_has_the_vectors_of_its_views_and_encodes_none_again(
    audio, monkeypatch
):
    names = ("mfcc", "mfcc[speed=2]", "random")
    views = [embed_as(audio, name)[0].matrix for name in names]
    monkeypatch.setattr(Workers, "submit", None)
    joined, rejects = embed_as(audio, "mfcc[speed=1+2]+random")
    assert rejects == []
    assert joined.encoder == "mfcc[speed=1+2]+random"
    assert joined.joined_dimensions == (40, 40, 40)
    np.testing.assert_array_equal(joined.matrix, np.concatenate(views, axis=1))
    options = EmbedOptions({}, audio.root / "store")
    with pytest.raises(OptionError, match="joined encoders have no sequence in common"):
        embed(audio, "mfcc+random", options, write_sequences=lambda *_: None)


def test_a_segment_that_one_view_rejects_is_left_out_once(audio):
    record_badly(audio.root / "bad.wav", "text")
    bad = make_spans([make_segment("bad.wav")], audio.root)
    short = make_spans([make_segment("r0.wav", 0.0, 0.001)], audio.root)
    all_audio = concat_spans([bad, audio, short])
    # Without padding, MFCC needs 400 samples: at speed 0.1, 16 samples are 160
    joined, rejects = embed_as(all_audio, "mfcc[padding=none,speed=0.1]+random")
    assert [reject.row for reject in rejects] == [1, 8]
    assert joined.segment == tuple(audio["segment"])


# Scales


def equalise_literally(support, vectors, dimensions):
    """Divide each encoder by the root mean square of all pairwise distances."""
    first = 0
    scaled = []
    for dimension in dimensions:
        side = support[:, first : first + dimension]
        squares = [((x - y) ** 2).sum() for x in side for y in side]
        scaled.append(vectors[:, first : first + dimension] / np.sqrt(np.mean(squares)))
        first += dimension
    return np.concatenate(scaled, axis=1)


def make_joined_table(factor, joined_dimensions=(4, 4)):
    """Return a table in which the second encoder is noise of any scale."""
    rng = np.random.default_rng(1)
    label = ["roar", "rumble"] * 30
    signal = rng.normal(size=(60, 4)) + [[2.0 * (one == "roar")] for one in label]
    noise = rng.normal(size=(60, 4)) * factor
    return Vectors.from_columns(
        "joined",
        np.concatenate([signal, noise], axis=1),
        [f"s{n:02}" for n in range(60)],
        [f"r{n // 4}" for n in range(60)],
        label,
        [()] * 60,
        joined_dimensions=joined_dimensions,
    )


def score(table, **options):
    result = evaluate(
        table, shots=[1, 5], spread="shared", permutations=0, shared_draws=50, **options
    )
    return result.curve.filter(metric="map")["mean"].to_list()


@pytest.mark.parametrize("classifier", ["centroid", "whitened"])
def test_the_unit_of_a_scaled_view_does_not_matter(classifier):
    options = {"classifiers": (classifier,)}
    expected = score(make_joined_table(1.0), **options)
    assert score(make_joined_table(1000.0), **options) == pytest.approx(expected)
    if classifier == "centroid":
        as_it_is = score(make_joined_table(1000.0, joined_dimensions=()), **options)
        assert as_it_is[1] < expected[1] - 0.1


def test_the_evaluation_scales_by_the_support_side_of_each_split():
    table = make_joined_table(1.0)
    folds = choose_folds(table.spans)
    counts = count_classes(table.label, folds, table.recording)
    episodes = plan_episodes(table, folds, counts)
    for number in range(folds.count):
        side = episodes.vectors[episodes.fold != number]
        np.testing.assert_allclose(
            transform_split(episodes, CENTROID, number).vectors,
            equalise_literally(side, episodes.vectors, (4, 4)),
            rtol=1e-9,
        )
