"""Examples become a model; adding examples in any order gives what learning at once gives."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import soundfile as sf

import callshot
from callshot.detection.learn import learn
from callshot.detection.model import load_model, write_model
from callshot.encoders.catalogue import find_encoder
from callshot.encoders.encode import open_encoder
from callshot.errors import InputError, OptionError
from callshot.records.table_files import write_parquet
from field_recordings import write_site
from rows_of_spans import list_rows


@pytest.fixture(scope="module")
def model(site, store):
    return learn(site, "mfcc", window_s=1.0, store=store).model


def test_a_model_has_every_example_once_with_file_and_time(model):
    assert model.classes == ("bark", "hoot", "trill")
    assert model.counts.tolist() == [6, 6, 6]
    assert model.examples.matrix.shape == (18, 40)
    assert set(model.examples.spans.paths) == {"a.wav", "b.wav", "c.wav"}
    assert model.examples.spans.durations_s == pytest.approx(np.full(18, 0.5), abs=0.01)


def test_an_example_is_the_vector_of_its_window_with_the_sound_around_it(site, model):
    """The literal way: read the file, take one second around the call, run the encoder."""
    encoder = open_encoder(find_encoder("mfcc"))
    for example, vector in zip(
        list_rows(model.examples.spans), model.examples.matrix, strict=True
    ):
        signal, rate_hz = sf.read(site / example.path, dtype="float32")
        centre_s = (example.start_s + example.end_s) / 2
        start = round((centre_s - 0.5) * rate_hz)
        expected = encoder.run(signal[start : start + rate_hz]).mean(axis=0)
        np.testing.assert_allclose(vector, expected, rtol=1e-5, atol=1e-4)


def test_progress_reaches_the_end_once(site, tmp_path):
    shares = []
    learn(
        site,
        "mfcc",
        window_s=1.0,
        store=tmp_path,
        progress=lambda share, what: shares.append(share),
    )
    assert sum(shares) == pytest.approx(1)


@pytest.mark.parametrize(
    "choices", [{"speed": "1"}, {"speed": "3"}, {"speed": "2", "band": "100-900"}]
)
def test_an_example_has_the_vector_that_an_index_has_there(tmp_path, store, choices):
    """A call in the middle of a window of an index; both are the same window."""
    site = tmp_path / "site"
    site.mkdir()
    rng = np.random.default_rng(0)
    sf.write(site / "a.wav", rng.normal(0, 0.1, 160000), 16000, subtype="FLOAT")
    (site / "a.txt").write_text("4.4\t4.6\thoot\n6.9\t8.1\tbark\n")
    index = callshot.index_recordings(
        site,
        tmp_path / "index",
        "mfcc",
        encoder_options=choices,
        window_s=3.0,
        dtype="float32",
    ).index
    model = learn(
        site, "mfcc", encoder_options=choices, window_s=3.0, store=store
    ).model
    [block] = index.read_blocks()
    hoot = model.examples.matrix[model.classes.index("hoot")]
    assert block.spans["start_s"][1] == 3.0
    np.testing.assert_allclose(hoot, block.matrix[1], rtol=1e-5, atol=1e-5)


def test_a_long_call_is_the_mean_of_its_windows_and_counts_once(tmp_path, store):
    site = write_site(tmp_path / "site", ("a",), call_s=1.0)
    model = learn(site, "mfcc", window_s=0.5, store=store).model
    assert set(model.examples.spans["windows"]) == {2}
    encoder = open_encoder(find_encoder("mfcc"))
    example = list_rows(model.examples.spans)[0]
    signal, _ = sf.read(site / "a.wav", dtype="float32")
    start = round(example.start_s * 16000)
    halves = [signal[start : start + 8000], signal[start + 8000 : start + 16000]]
    expected = np.mean([encoder.run(half).mean(axis=0) for half in halves], axis=0)
    np.testing.assert_allclose(model.examples.matrix[0], expected, rtol=1e-4, atol=1e-3)
    assert len(model.examples) == 6


def test_adding_in_any_order_gives_the_same_bytes_as_learning_at_once(
    tmp_path, site, store, model
):
    path = tmp_path / "model.npz"
    add = None
    for name in "bca":
        part = tmp_path / name / "site"
        part.mkdir(parents=True)
        for suffix in (".wav", ".txt"):
            shutil.copy(site / f"{name}{suffix}", part)
        encoder = "mfcc" if add is None else None
        window_s = 1.0 if add is None else None
        result = learn(part, encoder, add=add, window_s=window_s, store=store)
        assert result.new == 6
        result.write(path)
        add = path
    write_model(model, tmp_path / "at-once.npz")
    assert path.read_bytes() == (tmp_path / "at-once.npz").read_bytes()


def test_the_same_example_added_again_changes_nothing(tmp_path, site, store, model):
    path = tmp_path / "model.npz"
    write_model(model, path)
    result = learn(site, add=path, store=store)
    assert result.new == 0
    result.write(tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == path.read_bytes()


def test_examples_of_a_segment_table_are_embedded_as_they_were_cut(
    tmp_path, site, store
):
    segmentation = callshot.segment(site, min_length_s=0.1, collar_s=0.1)
    path = tmp_path / "segments.parquet"
    write_parquet(segmentation.segments.frame, path, {"audio": segmentation.audio})
    model = learn(path, "mfcc", store=store).model
    table = callshot.embed(segmentation, "mfcc", store=store)
    places = {one.segment: one for one in list_rows(segmentation.segments)}
    by_place = {
        (places[name].path, places[name].start_s): vector
        for name, vector in zip(table.segment, table.matrix, strict=True)
    }
    for example, vector in zip(
        list_rows(model.examples.spans), model.examples.matrix, strict=True
    ):
        expected = by_place[example.path, example.start_s]
        assert vector.tolist() == expected.tolist()


def test_a_silent_example_is_left_out_with_its_file_and_time(tmp_path, store):
    site = write_site(tmp_path / "site", ("a",))
    signal, rate_hz = sf.read(site / "a.wav")
    signal[: 3 * rate_hz] = 0.0
    sf.write(site / "a.wav", signal, rate_hz, subtype="FLOAT")
    result = learn(site, "mfcc", window_s=1.0, store=store)
    [reject] = result.rejects
    assert reject.reason.startswith("a.wav: silent from 1.")
    assert len(result.model.examples) == 5


def test_only_silence_is_one_line(tmp_path, store):
    (tmp_path / "site").mkdir()
    sf.write(tmp_path / "site" / "a.wav", np.zeros(32000), 16000)
    (tmp_path / "site" / "a.txt").write_text("0.5\t1.0\thoot\n")
    with pytest.raises(InputError, match=r"no call could be embedded .*silent from"):
        learn(tmp_path / "site", "mfcc", store=store)


def test_short_recordings_and_low_rates_are_noted(tmp_path, store):
    site = write_site(tmp_path / "site", ("a",), rate_hz=8000)
    result = learn(site, "mfcc", window_s=60.0, background="none", store=store)
    assert "a.wav: shorter than the window of 60 s; used whole" in result.notes
    low = "a.wav: at 8000 Hz it has nothing above 4000 Hz, and mfcc uses 100 to 8000 Hz"
    assert low in result.notes


def test_a_recording_without_a_whole_window_is_no_background(tmp_path, store):
    site = write_site(tmp_path / "site", ("b",))
    signal, rate_hz = sf.read(site / "b.wav")
    sf.write(site / "a.wav", signal[: rate_hz // 2], rate_hz)
    (site / "a.txt").write_text("0.1\t0.4\thoot\n")
    model = learn(site, "mfcc", window_s=1.0, store=store).model
    assert model.background is not None
    assert "a.wav" in model.examples.spans.paths
    assert [one.windows > 0 for one in model.background.recordings] == [False, True]


def test_other_encoders_versions_and_windows_are_refused(tmp_path, site, store, model):
    path = tmp_path / "model.npz"
    write_model(model, path)
    with pytest.raises(InputError, match=r"learned with mfcc, got random; use --enc"):
        learn(site, "random", add=path, window_s=1.0, store=store)
    with pytest.raises(InputError, match=r"learned with mfcc, got mfcc\[n_fft=512\]"):
        learn(site, "mfcc", add=path, encoder_options={"n_fft": 512}, store=store)
    with pytest.raises(InputError, match=r"window_s is 2.0, but .* use --window 1.0"):
        learn(site, add=path, window_s=2.0, store=store)
    fingerprint = {**model.fingerprint, "version": 99}
    write_model(replace(model, fingerprint=fingerprint), path)
    with pytest.raises(InputError, match=r"mfcc has changed .* \(version\); use the"):
        learn(site, add=path, store=store)


def test_options_that_do_not_fit_are_one_line(tmp_path, site, store):
    with pytest.raises(OptionError, match="encoder: name one"):
        learn(site)
    with pytest.raises(OptionError, match=r"window: expected 0.01 to 3600 s, got 0"):
        learn(site, "mfcc", window_s=0)
    with pytest.raises(OptionError, match=r"does not scale joined encoders"):
        learn(site, "mfcc+random", store=store)
    with pytest.raises(OptionError, match=r"has a fixed window; remove --window"):
        learn(site, "birdnet-v2.4", window_s=2.0, store=store)


def test_a_model_names_its_files_with_checksums_and_the_licence(model):
    roles = {role for role, _, _ in model.inputs}
    assert roles == {"annotations", "recording"}
    assert len(model.inputs) == 6
    assert model.licence == find_encoder("mfcc").licence


def test_the_classifier_of_a_file_names_the_examples(tmp_path, model):
    path = tmp_path / "model.npz"
    write_model(model, path)
    loaded = load_model(path)
    labels = loaded.examples.spans["label"]
    assert loaded.classifier.predict(model.examples.matrix).tolist() == labels


def test_labels_that_look_alike_and_filled_labels_are_noted(site, tmp_path, store):
    folder = tmp_path / "site"
    folder.mkdir()
    shutil.copy(site / "a.wav", folder)
    rows = ["a.wav,0,1,Bark", "a.wav,2,3,bark ", "a.wav,4,5,bark", "a.wav,6,7,"]
    table = "\n".join(["path,start_s,end_s,label", *rows, ""])
    (folder / "calls.csv").write_text(table)
    result = learn(folder, "mfcc", window_s=1.0, store=store, label="hoot")
    assert result.model.classes == ("Bark", "bark", "hoot")
    notes = "\n".join(result.notes)
    assert "'Bark' (1 call) and 'bark' (2 calls)" in notes
    assert "rows without a label" in notes
