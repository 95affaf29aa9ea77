"""Vectors of another tool become an index without audio, on which learn, scan and find work."""

from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

import callshot
from callshot.detection.index.import_index import import_index
from callshot.detection.nearest import find_roots, measure_site
from callshot.errors import InputError, OptionError
from callshot.review.sources import SourceOptions, open_source
from sounds import record
from test_cli import run

WINDOW_S = 0.5
DIMENSION = 24
ROARS = [*range(20, 30), *range(200, 220), *range(300, 310)]
BARKS = [*range(60, 75), *range(400, 415)]


def make_vectors():
    """Noise with two kinds of calls at known windows."""
    vectors = np.random.default_rng(0).normal(0, 1, (500, DIMENSION))
    vectors[ROARS, :8] += 8
    vectors[BARKS, 8:16] += 8
    return vectors.astype(np.float32)


def write_annotations(path):
    """Annotate some of the calls."""
    spans = [(10, 12.5, "roar"), (13, 14, "roar"), (30, 32, "bark"), (200, 203, "bark")]
    rows = [f"night,{start_s},{end_s},{label}" for start_s, end_s, label in spans]
    path.write_text("\n".join(["recording,start_s,end_s,label", *rows]))
    return path


@pytest.fixture
def night(tmp_path):
    """An index of one recording, annotations of some of its calls, and its vectors."""
    vectors = make_vectors()
    np.save(tmp_path / "night.npy", vectors)
    source = tmp_path / "night.npy"
    index, notes = import_index(source, tmp_path / "index", "aves", window_s=WINDOW_S)
    assert notes == []
    annotations = write_annotations(tmp_path / "calls.csv")
    return SimpleNamespace(
        folder=tmp_path, index=index, annotations=annotations, vectors=vectors
    )


def read_windows(index):
    """Return recording, start, end and vector of all windows."""
    windows = []
    for block in index.read_blocks():
        places = block.spans.frame.select("recording", "start_s", "end_s").rows()
        windows += zip(places, block.matrix.tolist(), strict=True)
    return windows


def test_an_index_has_the_windows_of_the_tool_in_order_of_time(tmp_path):
    """A CSV gives the times of arrays; files of BirdNET-Analyzer have them."""
    vectors = np.arange(8, dtype=np.float32).reshape(4, 2)
    places = [("b", 3.0), ("a", 3.0), ("b", 0.0), ("a", 0.0)]
    np.save(tmp_path / "x.npy", vectors)
    rows = ["start_s,recording,end_s", *(f"{s},{name},{s + 3}" for name, s in places)]
    (tmp_path / "x.csv").write_text("\n".join(rows))
    for (name, start_s), vector in zip(places, vectors, strict=True):
        numbers = ",".join(map(str, vector))
        path = tmp_path / "birdnet" / f"{name}.birdnet.embeddings.txt"
        path.parent.mkdir(exist_ok=True)
        with path.open("a") as stream:
            stream.write(f"{start_s}\t{start_s + 3}\t{numbers}\n")
    expected = sorted(
        ((name, start_s, start_s + 3), vector.tolist())
        for (name, start_s), vector in zip(places, vectors, strict=True)
    )
    for source in ("x.npy", "birdnet"):
        index, _ = import_index(tmp_path / source, tmp_path / f"i{source}", "mine")
        assert read_windows(index) == expected
        settings = index.settings
        assert (settings.name, settings.window_s, settings.hop_s) == ("mine", 3.0, 3.0)
        assert settings.dimension == 2
    levels = [block.spans["rms_dbfs"] for block in index.read_blocks()]
    assert np.isnan(levels).all()


def test_recordings_are_added_and_replaced(night):
    source = night.folder / "night.npy"
    np.save(source, night.vectors[:30])
    np.save(night.folder / "dawn.npy", night.vectors[:1500])
    for path in (source, night.folder / "dawn.npy"):
        index, _ = import_index(path, night.index.folder, "aves", window_s=WINDOW_S)
    counts = {one.path: one.windows for one in index.recordings}
    assert counts == {"dawn": 500, "night": 30}
    np.testing.assert_array_equal(
        index.read_rows(index.recordings[1])["vector"], night.vectors[:30]
    )
    run("verify", night.index.folder)
    with pytest.raises(InputError, match="is an index of aves, not of perch"):
        import_index(source, night.index.folder, "perch", window_s=WINDOW_S)


def test_recordings_without_windows_are_noted(tmp_path):
    for name, text in (("a", "0.0\t3.0\t0.5,1.5\n"), ("b", "")):
        (tmp_path / f"{name}.birdnet.embeddings.txt").write_text(text)
    index, notes = import_index(tmp_path, tmp_path / "index", "birdnet")
    assert [one.path for one in index.recordings] == ["a"]
    assert notes == ["b: has no windows"]


@pytest.mark.parametrize("background", ["none", "auto"])
def test_an_example_is_the_mean_of_the_windows_whose_centre_it_contains(
    night, background
):
    result = callshot.learn(
        night.index.folder, annotations=night.annotations, background=background
    )
    frame = pl.read_csv(night.annotations)
    model = result.model
    assert result.rejects == []
    assert model.encoder == "aves"
    examples = model.examples
    expected = {}
    for _, start_s, end_s, label in frame.iter_rows():
        inside = [
            row
            for row in range(len(night.vectors))
            if start_s <= (row + 0.5) * WINDOW_S < end_s
        ]
        expected[label, start_s] = (night.vectors[inside].mean(axis=0), len(inside))
    spans = examples.spans
    for n, key in enumerate(zip(spans["label"], spans["start_s"], strict=True)):
        vector, count = expected.pop(key)
        np.testing.assert_allclose(examples.matrix[n], vector, rtol=1e-5, atol=1e-6)
        assert spans["windows"][n] == count
    assert not expected
    if background == "none":
        assert model.background is None
        return
    free = [
        row
        for row in range(len(night.vectors))
        if not any(
            row * WINDOW_S < end_s and (row + 1) * WINDOW_S > start_s
            for _, start_s, end_s, _ in frame.iter_rows()
        )
    ]
    np.testing.assert_array_equal(model.background.vectors, night.vectors[free])


def test_all_windows_are_the_background_where_levels_are_not_known(night):
    examples = night.vectors[:5]
    site = measure_site(night.index, examples)
    roots = find_roots(night.vectors)
    variances = (roots.var(axis=0), find_roots(examples).var(axis=0))
    scale = np.sqrt(np.average(variances, axis=0, weights=(len(roots), 64)))
    np.testing.assert_allclose(site.scale, scale)
    scaled_mean = roots.mean(axis=0) / scale
    np.testing.assert_allclose(site.background, scaled_mean)
    assert site.quiet == len(night.vectors)


def test_calls_are_found_without_audio(night, capsys):
    model = night.folder / "model.npz"
    out = night.folder / "scan"
    run(
        *("learn", night.index.folder, "-a", night.annotations, "--out", model),
        *("--background", "none"),
    )
    run("scan", model, night.index.folder, "--out", out)
    events = pl.read_csv(out / "events.csv")
    found = {"roar": set(), "bark": set()}
    for start_s, end_s, label in events.select("start_s", "end_s", "label").rows():
        rows = range(round(start_s / WINDOW_S), round(end_s / WINDOW_S))
        found[label].update(rows)
    for label, expected in (("roar", ROARS), ("bark", BARKS)):
        assert found[label] == set(expected)
    assert (out / "raven" / "night.Table.1.selections.txt").exists()
    assert not (out / "raven-all").exists()
    run("model", model)
    # Commands that need audio say so; the recordings may be elsewhere.
    record(night.folder / "audio" / "night", seconds=250, format="WAV")
    elsewhere = SourceOptions(recordings=night.folder / "audio")
    assert len(open_source(out, elsewhere).items) == len(events)
    run("review", out, "--no-browser", code=2)
    run("scan", model, night.index.folder, "--out", out, "--clips", 3, code=2)
    run("scan", model, night.folder, "--out", out, code=2)
    errors = capsys.readouterr().err.splitlines()
    assert sum("vectors of another tool and no audio" in line for line in errors) == 2
    assert sum("it takes no audio" in line for line in errors) == 1


def test_another_index_is_known_to_be_without_calls(night):
    quiet = np.delete(night.vectors, ROARS + BARKS, axis=0)
    np.save(night.folder / "quiet.npy", quiet)
    folder = night.folder / "quiet"
    options = {"annotations": night.annotations, "background": folder}
    import_index(night.folder / "quiet.npy", folder, "aves", window_s=WINDOW_S)
    model = callshot.learn(night.index.folder, **options).model
    np.testing.assert_array_equal(model.background.vectors, quiet)
    assert set(model.background.origins) == {"without calls"}
    result = callshot.scan(model, night.index)
    assert result.active == len(ROARS) + len(BARKS)
    other = night.folder / "other"
    import_index(night.folder / "quiet.npy", other, "perch", window_s=WINDOW_S)
    with pytest.raises(
        InputError, match=r"expected an index of aves .* got one of per"
    ):
        callshot.learn(night.index.folder, **options | {"background": other})


def test_a_span_is_found_again(night):
    found = callshot.find_windows(
        "night.wav@10-12.5", night.index, count=10, per_recording=10
    )
    rows = (found.windows["start_s"] / WINDOW_S).cast(pl.Int64)
    assert set(rows) <= set(ROARS)
    assert found.windows["rms_dbfs"].is_nan().all()
    with pytest.raises(InputError, match=r"no recording b\.wav under"):
        callshot.find_windows("b.wav@10-12", night.index)
    with pytest.raises(InputError, match="no window overlaps 900 to 901 s"):
        callshot.find_windows("night@900-901", night.index)


def test_a_model_scans_only_indexes_of_the_same_name(night):
    model = callshot.learn(night.index.folder, annotations=night.annotations).model
    source = night.folder / "night.npy"
    other, _ = import_index(source, night.folder / "o", "perch", window_s=WINDOW_S)
    with pytest.raises(InputError, match="index has perch, the model aves"):
        callshot.scan(model, other)
    np.save(source, night.vectors[:, 1:])
    shorter, _ = import_index(source, night.folder / "s", "aves", window_s=WINDOW_S)
    with pytest.raises(InputError, match="other dimension"):
        callshot.scan(model, shorter)
    longer, _ = import_index(source, night.folder / "l", "aves", window_s=1)
    with pytest.raises(InputError, match="aves: other dimension"):
        callshot.scan(model, longer)


def test_examples_are_added_to_a_model_of_the_same_name(night):
    lines = night.annotations.read_text().splitlines()
    parts = []
    for number, rows in enumerate((lines[1:3], lines[3:])):
        part = night.folder / f"{number}.csv"
        part.write_text("\n".join([lines[0], *rows]))
        parts.append(part)
    first = night.folder / "first.npz"
    index = night.index.folder
    callshot.learn(index, annotations=parts[0]).write(first)
    added = callshot.learn(index, annotations=parts[1], add=first)
    together = callshot.learn(index, annotations=night.annotations).model
    assert added.new == 2
    np.testing.assert_array_equal(added.model.means, together.means)
    np.testing.assert_array_equal(
        added.model.background.vectors, together.background.vectors
    )
    record(night.folder / "audio" / "a.wav")
    with pytest.raises(InputError, match="it takes no audio"):
        callshot.learn(night.folder / "audio", add=first)


def test_options_of_audio_are_refused(night):
    for options, match in (
        ({"window_s": 1.0}, "--window: .* has no audio"),
        ({"channel": "mean"}, "--channel: .* has no audio"),
        ({"encoder": "mfcc"}, "encoder: .* has vectors of aves"),
        ({"annotations": None}, "annotations: name those of"),
    ):
        settings = {"annotations": night.annotations, **options}
        with pytest.raises(OptionError, match=match):
            callshot.learn(night.index.folder, **settings)
    record(night.folder / "audio" / "a.wav")
    own = callshot.index_recordings(
        night.folder / "audio", night.folder / "own", "mfcc", window_s=1
    )
    with pytest.raises(InputError, match="an index of recordings"):
        callshot.learn(own.index.folder, annotations=night.annotations)


def test_examples_without_windows_are_left_out(night):
    with night.annotations.open("a") as stream:
        stream.write("\nnight,249.9,250.05,roar\nday,1,2,roar")
    result = callshot.learn(night.index.folder, annotations=night.annotations)
    assert len(result.model.examples) == 5  # a window overlaps the short one
    assert [reject.reason[:16] for reject in result.rejects] == ["no recording day"]
    night.annotations.write_text("recording,label,start_frame,end_frame\nnight,a,1,9")
    with pytest.raises(InputError, match="times in frames"):
        callshot.learn(night.index.folder, annotations=night.annotations)


def test_times_must_be_known_and_possible(tmp_path):
    source = tmp_path / "x.npy"
    np.save(source, np.eye(2, dtype=np.float32))
    with pytest.raises(OptionError, match=r"the times of .* are not known"):
        import_index(source, tmp_path / "index", "mine")
    times = tmp_path / "x.csv"
    header = "recording,start_s,end_s\na,0,1\n"
    for row, match in (
        ("", "expected a row for each vector"),
        ("a,2,2", "a: a window from 2 to 2 s: it does not end after its start"),
        ("a,2,x", "row 2"),
        ("a,-1,2", "from -1 to 2 s: .* starts before the recording"),
    ):
        times.write_text(header + row)
        with pytest.raises(InputError, match=match):
            import_index(source, tmp_path / "index", "mine")
    assert not (tmp_path / "index").exists()
    times.write_text(header + "a,1,2")
    with pytest.raises(OptionError, match="has the times; remove --window"):
        import_index(source, tmp_path / "index", "mine", times=times, window_s=1)
    run("import", source, "--index", tmp_path / "index", code=2)
    run("import", source, "--index", tmp_path / "i", "--out", "x.parquet", code=2)
    run("import", source, "--index", tmp_path / "index", "--encoder", "mine")
    assert len(callshot.open_index(tmp_path / "index")) == 2
