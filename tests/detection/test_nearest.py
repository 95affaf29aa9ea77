"""Windows belong to the nearest mean; a scan takes this rule where it finds more."""

from dataclasses import replace

import numpy as np
import pytest
import soundfile as sf
from sklearn.covariance import ledoit_wolf

from callshot.detection.background import (
    WITHOUT_CALLS,
    Background,
    BackgroundRecording,
    false_alarm_factor,
    find_appearance_scores,
    make_windows,
    split_background,
)
from callshot.detection.detector import limit_alarms
from callshot.detection.learn import learn
from callshot.detection.nearest import (
    BACKGROUND,
    FURTHER_PASSES,
    NearestMeanDetector,
    Site,
    find_quiet,
    make_nearest_detector,
    measure_site,
    read_site,
    write_site,
)
from callshot.detection.scan import scan
from callshot.detection.scan_files import scan_files
from callshot.review.sources import SourceOptions, open_source
from rows_of_spans import DIMENSION, make_small_model

RATE_HZ = 16000
THRESHOLDS = (3 / 7, 4 / 9)  # of classes of 3 and 4 examples: n / (2 n + 1)


def make_random_site(rng):
    return Site(rng.uniform(0.5, 2.0, DIMENSION), rng.normal(0, 1, DIMENSION), 30)


def literal_root(value):
    return float(np.sign(value)) * abs(float(value)) ** 0.5


def literal_decision(window, means, site, others=(), thresholds=THRESHOLDS):
    """Return the class of a window, −1 for background, and its scores, mean by mean."""
    z = np.array([literal_root(v) for v in np.float32(window)]) / site.scale
    b = site.background
    scores = [(z - b) @ (c - b) / ((c - b) @ (c - b)) for c in (*means, *others)]
    distances = [((z - c) ** 2).sum() for c in (*means, *others)]
    best = int(np.argmin(distances))
    is_call = best < len(means) and scores[best] > thresholds[best]
    return (best if is_call else BACKGROUND), scores[: len(means)]


def literal_means(model, site):
    roots = np.vectorize(literal_root)(model.examples.matrix) / site.scale
    label = np.array(model.examples.label)
    return [roots[label == name].mean(axis=0) for name in model.classes]


def test_a_window_belongs_to_the_nearest_mean():
    rng = np.random.default_rng(0)
    model = make_small_model(rng)
    site = make_random_site(rng)
    detector = make_nearest_detector(model, site)
    means = literal_means(model, site)
    np.testing.assert_allclose(detector.means, means, rtol=1e-5)
    windows = rng.normal(0, 4, (200, DIMENSION))
    found, scores = detector.search_once([windows[:90], windows[90:]], detector.means)
    for window, own_scores, label in zip(windows, scores, found, strict=True):
        expected, expected_scores = literal_decision(window, means, site)
        np.testing.assert_allclose(own_scores, expected_scores, rtol=1e-5, atol=1e-6)
        assert label == expected
    half_way = replace(detector, thresholds=np.full(2, 0.5))
    found, _ = half_way.search_once([windows], detector.means)
    for window, label in zip(windows, found, strict=True):
        z = site.transform(window[None])[0]
        distances = [np.linalg.norm(z - mean) for mean in (site.background, *means)]
        assert label == int(np.argmin(distances)) - 1
    assert set(found) == {BACKGROUND, 0, 1}


def make_background(rng, count, places=4):
    """Return windows without calls of some recordings, the last of them like the first class."""
    vectors = rng.normal(0, 1, (count, DIMENSION)).astype(np.float32)
    vectors[-3:, 0] += [2.0, 6.0, 9.0]
    names = [f"{n % places}.wav" for n in range(count)]
    recordings = [
        BackgroundRecording(f"{n}.wav", count, origin=WITHOUT_CALLS, place=str(n))
        for n in range(places)
    ]
    windows = make_windows(names, np.arange(count) * 3.0, 3.0, vectors)
    return Background(tuple(recordings), windows, 3.0, 3.0)


def test_known_background_and_rejected_detections_are_means_of_their_own():
    rng = np.random.default_rng(5)
    background = make_background(rng, 40)
    model = replace(make_small_model(rng), background=background)
    rejected = model.examples.take(np.array([0, 4]))
    rejected = replace(rejected, matrix=rng.normal(2, 1, (2, DIMENSION)))
    model = replace(model, rejected=rejected)
    site = make_random_site(rng)
    detector = make_nearest_detector(model, site)
    sounds = (background.vectors, rejected.matrix)
    others = [
        np.mean([site.transform(z[None])[0] for z in one], axis=0) for one in sounds
    ]
    windows = rng.normal(0, 4, (200, DIMENSION))
    found, _ = detector.search_once([windows], detector.means)
    means = literal_means(model, site)
    expected = [literal_decision(window, means, site, others)[0] for window in windows]
    assert found.tolist() == expected
    alone = [literal_decision(window, means, site)[0] for window in windows]
    assert expected != alone


def count_events(background, is_active):
    """Return how many stretches of active windows there are, recording by recording."""
    times = {}
    starts_s = background.windows.spans.frame["start_s"]
    for name, start_s, active in zip(
        background.windows.recording, starts_s, is_active, strict=True
    ):
        if active:
            times.setdefault(name, []).append(start_s)
    return sum(
        start_s - background.hop_s not in own
        for own in times.values()
        for start_s in own
    )


def test_events_are_counted_as_scores_fall():
    rng = np.random.default_rng(2)
    names = np.repeat(["0.wav", "1.wav"], 30)
    start_s = np.delete(np.arange(66), [3, 17, 30, 31, 40, 55]) * 3.0
    order = rng.permutation(60)
    recordings = tuple(BackgroundRecording(f"{n}.wav", 30) for n in range(2))
    windows = make_windows(names[order], start_s[order], 3.0, np.zeros((60, 1)))
    background = Background(recordings, windows, 3.0, 3.0)
    scores = rng.integers(0, 12, 60).astype(float)  # some are the same
    scores[rng.random(60) < 0.2] = -np.inf
    appear = find_appearance_scores(scores, background)
    levels = sorted({*scores} - {-np.inf}, reverse=True)
    most = [count_events(background, scores >= level) for level in levels]
    for number, level in enumerate(levels):
        assert (appear >= level).sum() == max(most[: number + 1])
    assert len(find_appearance_scores(np.full(60, -np.inf), background)) == 0


def test_few_events_of_known_background_are_taken_for_calls():
    """The literal way: search each part with the others, and count events above each score."""
    rng = np.random.default_rng(6)
    background = make_background(rng, 80)
    background.vectors[rng.permutation(80)[:20], 0] += 5.0
    model = replace(make_small_model(rng), background=background)
    site = Site(np.ones(DIMENSION), np.zeros(DIMENSION), 10)
    detector = make_nearest_detector(model, site)
    means = literal_means(model, site)
    label = np.full(80, BACKGROUND)
    scores = np.zeros((80, 2))
    vectors = background.vectors.astype(float)

    def score(windows, known):
        """Return standard deviations of the known background towards each class mean."""
        inverse = np.linalg.inv(ledoit_wolf(known)[0])
        towards = model.means - known.mean(axis=0)
        lengths = np.sqrt(np.diag(towards @ inverse @ towards.T))
        return (windows - known.mean(axis=0)) @ inverse @ towards.T / lengths

    for inside in split_background(background):
        roots = site.transform(vectors[~inside]).mean(axis=0)
        for row in np.flatnonzero(inside):
            label[row], _ = literal_decision(vectors[row], means, site, [roots])
        scores[inside] = score(vectors[inside], vectors[~inside])
    windows = rng.normal(0, 3, (300, DIMENSION))
    before, _ = detector.search_once([windows], detector.means)
    numbers = set()
    for allowed in (0.1, 1.5, 3, 1000):
        aim_per_h = allowed / background.hours
        limited = limit_alarms(detector, model, background, aim_per_h)
        expected = before.copy()
        for number in range(2):
            own = np.where(label == number, scores[:, number], -np.inf)
            limit = literal_threshold(background, own, max(1, allowed))
            is_low = score(windows, vectors)[:, number] <= limit
            expected[(before == number) & is_low] = BACKGROUND
        found, _ = limited.search_once([windows[:7], windows[7:]], detector.means)
        np.testing.assert_array_equal(found, expected)
        numbers.add(np.count_nonzero(found != BACKGROUND))
    assert len(numbers) > 2


def literal_threshold(background, scores, allowed):
    """Return the score that `allowed` events exceed, by counting them at each score."""
    appear = []
    for level in sorted({*scores} - {-np.inf}, reverse=True):
        events = count_events(background, scores >= level)
        appear += [level] * (events - len(appear))
    if len(appear) <= allowed:
        return -np.inf
    if len(appear) == 1:
        return appear[0]
    tail = 10
    while tail < 3 * allowed:
        tail += 1
    *above, base = appear[: tail + 1]
    mean_excess = sum(one - base for one in above) / len(above)
    return base + mean_excess * np.log(len(above) / allowed)


def test_more_is_found_where_more_false_alarms_are_allowed():
    """Thresholds fall to what as many events of the held-out background exceed, half at most."""
    rng = np.random.default_rng(7)
    background = make_background(rng, 400)
    model = replace(make_small_model(rng), background=background)
    site = Site(np.ones(DIMENSION), np.zeros(DIMENSION), 10)
    detector = make_nearest_detector(model, site)
    means = literal_means(model, site)
    vectors = background.vectors.astype(float)
    lowest = [one / 2 for one in THRESHOLDS]
    own = np.full((400, 2), -np.inf)
    for inside in split_background(background):
        roots = site.transform(vectors[~inside]).mean(axis=0)
        for row in np.flatnonzero(inside):
            number, scores = literal_decision(
                vectors[row], means, site, [roots], lowest
            )
            if number != BACKGROUND:
                own[row, number] = scores[number]
    seen = set()
    for allowed in (4, *range(5, 80, 5), 1000):
        lowered = detector.allow(background, allowed / background.hours)
        expected = []
        for number, threshold in enumerate(THRESHOLDS):
            reached = literal_threshold(background, own[:, number], allowed)
            expected.append(min(threshold, max(threshold / 2, reached)))
        if allowed < 5:
            expected = THRESHOLDS
        np.testing.assert_allclose(lowered.thresholds, expected)
        seen.add(tuple(lowered.thresholds))
    assert len(seen) > 2


def test_an_aim_is_missed_by_more_where_false_alarms_are_in_few_recordings():
    rng = np.random.default_rng(8)
    background = make_background(
        rng, 400
    )  # every fourth window is of the same recording
    nothing = np.full(400, BACKGROUND)
    assert np.isclose(false_alarm_factor(nothing, background, 8, 2), np.exp(1.96 / 4))
    spread = nothing.copy()
    spread[100:132] = 0  # eight in each recording, which do not follow each other
    assert np.isclose(
        false_alarm_factor(spread, background, 32, 1), np.exp(1.96 / 32**0.5)
    )
    gathered = nothing.copy()
    gathered[100:228:4] = 0
    squares = 24**2 + 3 * 8**2
    deviation = (squares * 4 / 3) ** 0.5 / 32
    expected = np.exp(1.96 * deviation)
    assert np.isclose(false_alarm_factor(gathered, background, 32, 1), expected)


def test_windows_that_follow_each_other_are_one_false_alarm():
    names = np.repeat(["0.wav", "1.wav"], 30)
    recordings = tuple(BackgroundRecording(f"{n}.wav", 30) for n in range(2))
    start_s = np.tile(np.arange(30) * 3.0, 2)
    windows = make_windows(names, start_s, 3.0, np.zeros((60, 1)))
    background = Background(recordings, windows, 3.0, 3.0)
    found = np.full(60, BACKGROUND)
    found[[3, 4, 5, 29, 30, 31]] = 0  # the recording ends between 29 and 30
    found[[6, 40]] = 1
    events = np.array([3, 2])
    variance = np.square(events - 2.5).sum() * 2 / 5**2
    factor = false_alarm_factor(found, background, 1000, 2)
    assert np.isclose(factor, np.exp(1.96 * variance**0.5))


def test_distances_are_those_of_scaled_roots():
    rng = np.random.default_rng(1)
    site = make_random_site(rng)
    detector = make_nearest_detector(make_small_model(rng), site)
    scaled = detector.means * site.scale
    windows = np.sign(scaled) * scaled**2
    expected = [[np.linalg.norm(a - b) for b in detector.means] for a in detector.means]
    np.testing.assert_allclose(detector.distances(windows), expected, atol=1e-3)


def test_each_recording_is_searched_again_with_means_that_moved():
    """The literal way: decide, move each mean half-way to what was found, decide again."""
    rng = np.random.default_rng(2)
    model = make_small_model(rng)
    site = make_random_site(rng)
    detector = make_nearest_detector(model, site)
    windows = rng.normal(0, 4, (60, DIMENSION)).astype(np.float32)
    windows[20:40, 0] += 6.0
    base = literal_means(model, site)
    first = [literal_decision(window, base, site) for window in windows]
    labels = [label for label, _ in first]
    for _ in range(FURTHER_PASSES):
        means = [mean.copy() for mean in base]
        for number in (0, 1):
            own = [
                w for w, label in zip(windows, labels, strict=True) if label == number
            ]
            if own:
                here = np.mean([site.transform(w[None])[0] for w in own], axis=0)
                means[number] = (base[number] + here) / 2
        again = [literal_decision(window, means, site) for window in windows]
        present = {label for label in labels if label != BACKGROUND}
        chosen = [
            two if two[0] in present else one
            for one, two in zip(first, again, strict=True)
        ]
        labels = [label for label, _ in chosen]
    found, scores, plain_scores = detector.search([windows[:17], windows[17:]])
    assert found.tolist() == labels
    expected = np.array([scores for _, scores in chosen])
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)
    first_scores = np.array([scores for _, scores in first])
    np.testing.assert_allclose(plain_scores, first_scores, rtol=1e-5, atol=1e-5)
    assert len({label for label, _ in first}) == 3
    assert labels != [label for label, _ in first]


def test_the_quietest_sixth_of_a_recording_is_its_background():
    levels = np.array([-10.0, -50.0, -20.0, -40.0, -60.0, -30.0, -45.0, -5.0])
    every = np.arange(8)
    assert find_quiet(levels, every).tolist() == [4]
    assert find_quiet(np.tile(levels, 3), np.arange(24)).tolist() == [4, 12, 20, 1]
    assert find_quiet(levels, np.array([0, 7])).tolist() == [0]


def test_a_site_is_read_as_it_was_written(tmp_path):
    site = make_random_site(np.random.default_rng(4))
    write_site(site, tmp_path / "site.npz")
    copy = read_site(tmp_path / "site.npz")
    np.testing.assert_array_equal(copy.scale, site.scale)
    np.testing.assert_array_equal(copy.background, site.background)
    assert copy.quiet == 30


TONES_HZ = {"hoot": 500.0, "bark": 2500.0}


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """Return a folder of clips of two tones, and of recordings that are filled with these."""
    folder = tmp_path_factory.mktemp("full")
    rng = np.random.default_rng(0)

    def make_tone(label, seconds):
        frequency_hz = TONES_HZ[label] * rng.uniform(0.97, 1.03)
        time_s = np.arange(int(seconds * RATE_HZ)) / RATE_HZ
        tone = 0.3 * np.sin(2 * np.pi * frequency_hz * time_s)
        return tone + rng.normal(0, 0.003, len(time_s))

    for label in TONES_HZ:
        (folder / "clips" / label).mkdir(parents=True)
        for n in range(4):
            path = folder / "clips" / label / f"{n}.wav"
            sf.write(path, make_tone(label, 0.5), RATE_HZ)
    (folder / "recordings").mkdir()
    for number, label in enumerate(["hoot", "bark"] * 2):
        parts = []
        for _ in range(20):
            parts += [make_tone(label, 2.0), rng.normal(0, 0.003, RATE_HZ)]
        path = folder / "recordings" / f"{number}.wav"
        sf.write(path, np.concatenate(parts), RATE_HZ)
    return folder


def test_calls_that_fill_recordings_are_found_by_the_nearest_mean(full, tmp_path):
    clips = full / "clips"
    model = tmp_path / "model.npz"
    learn(clips, "mfcc", window_s=0.5, store=full / "store").write(model)
    out = tmp_path / "scan"
    result = scan_files(model, full / "recordings", out, formats=())
    assert isinstance(result.detector, NearestMeanDetector)
    assert result.false_alarms is None
    assert any("like the quiet windows" in note for note in result.notes)
    wanted = {"0.wav": "hoot", "1.wav": "bark", "2.wav": "hoot", "3.wav": "bark"}
    names = result.events.select("recording", "label").rows()
    assert {recording for recording, _ in names} == set(wanted)
    right = sum(wanted[recording] == label for recording, label in names)
    assert right >= 0.9 * len(names)
    seconds = (result.events["end_s"] - result.events["start_s"]).sum()
    assert seconds > 100  # of 160

    # An aim is kept to as before: by thresholds
    aimed = scan(model, out / "index", false_alarms=1.0)
    assert not isinstance(aimed.detector, NearestMeanDetector)
    assert len(aimed.events) < len(result.events)

    # A review computes the same scores from the files of the scan
    source = open_source(out, SourceOptions())
    scores = source.load_scores(tmp_path)
    ranking = scores.rank(source.items.frame["label"], scores.labels)
    difference = np.abs(ranking["score"] - source.items.frame["score"])
    assert np.median(difference) < 0.5
    assert scores.update({"hoot": [0]})


def test_a_scan_says_how_far_an_aim_can_be_missed(full, tmp_path):
    quiet = tmp_path / "quiet"
    quiet.mkdir()
    noise = np.random.default_rng(1).normal(0, 0.003, (2, 60 * RATE_HZ))
    for number, signal in enumerate(noise):
        sf.write(quiet / f"{number}.wav", signal, RATE_HZ)
    model = learn(
        full / "clips", "mfcc", window_s=0.5, background=quiet, store=full / "store"
    ).model
    index = tmp_path / "index"
    result = scan(model, full / "recordings", index, false_alarms=150.0)
    assert isinstance(result.detector, NearestMeanDetector)
    assert result.detector.limits is not None
    factor = result.detector.limits.factor
    assert np.isclose(factor, np.exp(1.96 / 10**0.5))  # ten are allowed, of two classes
    few = any("show little of what is no call" in note for note in result.notes)
    assert few == (result.detector.site.quiet < 30)
    limits = f"expect {150 / factor:.2g} to {150 * factor:.2g} false alarms per hour"
    assert any(limits in note for note in result.notes)
    strict = scan(model, index, false_alarms=1.0)
    assert strict.false_alarms == 30.0  # one in two minutes
    assert any("cannot show fewer than 30" in note for note in strict.notes)


def test_a_site_is_that_of_literal_sums(full, tmp_path):
    learned = learn(full / "clips", "mfcc", window_s=0.5, store=full / "store")
    result = scan(learned.model, full / "recordings", tmp_path / "index")
    examples = learned.model.examples.matrix
    site = measure_site(result.index, examples)
    everything = []
    quiet = []
    for recording in result.index.recordings:
        (block,) = result.index.read_recording(recording)
        roots = [[literal_root(value) for value in row] for row in block.matrix]
        everything += roots
        levels = block.spans.frame["rms_dbfs"].to_list()
        order = sorted(range(len(levels)), key=levels.__getitem__)
        quiet += [roots[row] for row in order[: round(len(levels) / 6)]]
    variance = np.var(everything, axis=0)
    roots = [[literal_root(value) for value in row] for row in examples]
    added = len(everything) * variance + 64 * np.var(roots, axis=0)
    scale = np.sqrt(added / (len(everything) + 64))
    np.testing.assert_allclose(site.scale, scale, rtol=1e-4)
    expected = np.mean(quiet, axis=0) / scale
    np.testing.assert_allclose(site.background, expected, rtol=1e-3, atol=1e-4)
    assert site.quiet == len(quiet)
