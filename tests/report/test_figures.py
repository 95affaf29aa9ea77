import errno
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from callshot.errors import OptionError, OutputError
from callshot.records import Baseline, ClassCount, Curve, Embeddings, Evaluation, Folds
from callshot.report.figures import draw_sweep, sweep
from callshot.report.figures.figure_io import blank
from callshot.report.figures.style import STYLE

PDF, PNG = b"%PDF-1.", b"\x89PNG\r\n\x1a\n"


def make_evaluation(
    shots=(1, 2, 3), encoders=("mfcc",), spreads=("per-query", "shared"), best=2
) -> Evaluation:
    keys = [(e, m, p) for e in encoders for p in spreads for m in ("map", "auroc", "accuracy")]
    curve = [make_point(*key, k, best) for key in keys for k in shots]
    classes = [ClassCount("rumble", 9, 7, True), ClassCount("roar", 9, best, True)]
    segments = Embeddings(
        "mfcc", np.zeros((2, 1)), ["a", "b"], ["a", "b"], ["rumble", "roar"], [()] * 2
    )
    folds = Folds(np.array([0, 1]), 2, "given")
    return Evaluation("reserve", best, 18, curve, [], [], [], [], classes, folds, segments, [])


def make_point(encoder, metric, spread, k, best) -> Curve:
    mean = k / (k + 1)
    levels = (mean - 0.1, mean - 0.05, mean, mean + 0.05, mean + 0.1)
    return Curve(
        "reserve",
        encoder,
        "centroid",
        "all",
        metric,
        spread,
        k,
        mean,
        *levels,
        0.12,
        k <= best,
        1 + (k <= best),
        0,
    )


def drawn(monkeypatch, evaluation, **options):
    """Return the figure, before it is rendered."""
    monkeypatch.setattr(sweep, "render", lambda plate, _: plate)
    plate = draw_sweep(evaluation, Path("nowhere"), **options)
    with blank() as figure:
        plate.compose(figure)
    return figure


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Write a sweep, once, and return the paths."""
    return draw_sweep(make_evaluation(), tmp_path_factory.mktemp("sweep") / "made" / "sweep.v1")


def test_a_sweep_is_written_as_pdf_and_png_and_nothing_else(written):
    assert [path.name for path in written] == ["sweep.v1.pdf", "sweep.v1.png"]
    assert written[0].read_bytes().startswith(PDF)
    assert written[1].read_bytes().startswith(PNG)
    assert len(list(written[0].parent.iterdir())) == 2


def test_fonts_are_embedded_as_outlines(written):
    assert b"/FontFile2" in written[0].read_bytes()
    assert b"/Type3" not in written[0].read_bytes()


def test_neither_date_nor_version_is_in_the_files(written):
    assert b"CreationDate" not in written[0].read_bytes()
    assert b"matplotlib.org" not in written[1].read_bytes()


@pytest.mark.parametrize("encoders", [1, 3, 4, 5])
@pytest.mark.parametrize("shots", [(3,), (1, 2, 5, 10, 2651)])
def test_every_encoder_has_a_panel_and_all_share_the_axes(monkeypatch, encoders, shots):
    names = [f"encoder {n}" for n in range(encoders)]
    figure = drawn(monkeypatch, make_evaluation(shots, names))
    panels = [at for at in figure.axes if at.get_title(loc="left")]
    assert [at.get_title(loc="left") for at in panels] == names
    assert len({at.get_ylim() for at in panels}) == 1
    assert len({at.get_xlim() for at in figure.axes}) == 1


def test_the_foot_shows_new_exemplars_and_names_k_star(monkeypatch):
    figure = drawn(monkeypatch, make_evaluation(best=2))
    foot = figure.axes[-1]
    assert [bar.get_height() for bar in foot.patches] == [2, 2, 1]
    assert [text.get_text() for text in foot.texts] == ["k* = 2"]
    assert foot.lines[0].get_xdata()[0] == 1.5  # between the second shot and the third


def test_where_every_shot_is_complete_k_star_is_named_and_no_line_drawn(monkeypatch):
    foot = drawn(monkeypatch, make_evaluation(best=9)).axes[-1]
    assert [text.get_text() for text in foot.texts] == ["k* = 9"]
    assert not foot.lines


def test_boxes_go_from_quartile_to_quartile_and_whiskers_from_the_1st_to_the_99th_percentile(
    monkeypatch,
):
    evaluation = make_evaluation(spreads=("per-query",))
    panel = drawn(monkeypatch, evaluation).axes[0]
    points = [c for c in evaluation.curve if c.metric == "map"]
    boxes = [(box.get_y(), box.get_y() + box.get_height()) for box in panel.patches]
    assert np.allclose(boxes, [(c.p25, c.p75) for c in points])
    whiskers = [path[:, 1] for path in panel.collections[0].get_segments()]
    assert np.array_equal(whiskers, [(c.p01, c.p99) for c in points])
    assert any(np.array_equal(line.get_ydata(), [c.mean for c in points]) for line in panel.lines)


def test_a_band_and_its_legend_are_there_only_beside_another_spread(monkeypatch):
    def legend(**options):
        figure = drawn(monkeypatch, make_evaluation(), **options)
        return [text.get_text() for text in figure.legends[0].get_texts()]

    assert [text.split(":")[0] for text in legend()] == ["per-query", "shared", "chance"]
    assert [text.split(":")[0] for text in legend(spread="shared")] == ["shared", "chance"]


def test_names_are_shown_as_they_are_and_shortened_where_they_are_long(monkeypatch):
    names = ("a $x^{2$ name", "象", "y" * 300, "z\x1b\n")
    figure = drawn(monkeypatch, make_evaluation(encoders=names))
    titles = [at.get_title(loc="left") for at in figure.axes[:4]]
    assert titles[:2] == ["a $x^{2$ name", "象"]
    assert titles[2].startswith("yyy")
    assert len(titles[2]) < 50
    assert titles[3] == "z� "


@pytest.mark.parametrize(
    ("shots", "labels"),
    [
        (range(1, 41), "1 5 10 15 20 25 30 35 40"),
        ((1, 2, 5, 10), "1 2 5 10"),
        (range(1, 101), "1 10 20 30 40 50 60 70 80 90 100"),
        ((*range(1, 60), 100000, 200000), "1 5 10 15 20 25 30 35 40 45 50 55 100000"),
    ],
)
def test_shots_are_numbered_as_far_as_there_is_room(monkeypatch, shots, labels):
    foot = drawn(monkeypatch, make_evaluation(shots)).axes[-1]
    assert [label.get_text() for label in foot.get_xticklabels()] == labels.split()


def make_rivals(*values, metric="map", scoring="all", corpus="reserve") -> list[Baseline]:
    kinds = (
        ("mfcc", "logistic", "LR"),
        ("mfcc", "recurrent", "GRU"),
        ("", "end-to-end", "AERD"),
        ("b", "logistic", "LR"),
    )
    return [
        Baseline(corpus, *kind, scoring, metric, v) for kind, v in zip(kinds, values, strict=False)
    ]


def rival_names(panel):
    return [text.get_text() for text in panel.texts if text.get_gid() == "rival"]


def test_rivals_are_named_lines_in_the_panels_of_their_encoders(monkeypatch):
    figure = drawn(
        monkeypatch,
        make_evaluation(encoders=("mfcc", "b")),
        baselines=make_rivals(0.3, 0.4, 0.95, 0.5),
    )
    one, other = figure.axes[:2]
    assert rival_names(one) == ["LR", "GRU", "AERD"]
    assert rival_names(other) == ["AERD", "LR"]
    levels = {line.get_ydata()[0] for line in one.lines if list(line.get_xdata()) == [0, 1]}
    assert {0.3, 0.4, 0.95} <= levels
    assert 0.5 not in levels
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    assert [w.split()[0] for w in words] == [
        "per-query:",
        "shared:",
        "chance",
        "logistic",
        "recurrent",
        "end-to-end",
    ]


def test_an_axis_reaches_as_far_as_its_rivals(monkeypatch):
    low, high = (
        drawn(monkeypatch, make_evaluation(), baselines=make_rivals(0.05, 0.995)).axes[0].get_ylim()
    )
    assert low < 0.05
    assert high > 0.995


@pytest.mark.parametrize("other", [{"metric": "auroc"}, {"scoring": "reduced"}, {"corpus": "park"}])
def test_a_rival_of_another_metric_scoring_or_corpus_is_not_drawn(monkeypatch, other):
    figure = drawn(monkeypatch, make_evaluation(), baselines=make_rivals(0.3, 0.4, 0.5, **other))
    assert rival_names(figure.axes[0]) == []
    assert len(figure.legends[0].get_texts()) == 3


def test_a_rival_without_a_value_is_not_drawn(monkeypatch):
    figure = drawn(monkeypatch, make_evaluation(), baselines=make_rivals(float("nan"), 0.4))
    assert rival_names(figure.axes[0]) == ["GRU"]


def test_names_of_rivals_that_score_alike_do_not_cover_each_other(monkeypatch):
    figure = drawn(monkeypatch, make_evaluation(), baselines=make_rivals(0.5, 0.5, 0.501))
    heights = sorted(t.get_position()[1] for t in figure.axes[0].texts if t.get_gid() == "rival")
    assert all(b - a > 7 for a, b in pairwise(heights))


def test_a_spread_that_was_not_evaluated_gives_way_to_the_one_that_was(monkeypatch):
    figure = drawn(monkeypatch, make_evaluation(spreads=("shared",)), spread="per-query")
    assert figure.legends[0].get_texts()[0].get_text().startswith("shared: mean, quartiles")


def test_a_metric_that_is_not_there_is_named_with_those_that_are(tmp_path):
    with pytest.raises(OptionError, match="no curve of recall; there are map, auroc, accuracy"):
        draw_sweep(make_evaluation(), tmp_path / "sweep", metric="recall")


def test_a_name_in_a_script_that_the_font_lacks_is_no_reason_to_warn(tmp_path):
    assert len(draw_sweep(make_evaluation(encoders=("象",)), tmp_path / "sweep")) == 2


def test_a_full_disk_leaves_the_earlier_figure(tmp_path, monkeypatch):
    (tmp_path / "sweep.pdf").write_bytes(PDF)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OutputError, match="the disk is full"):
        draw_sweep(make_evaluation(shots=(1, 2)), tmp_path / "sweep")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_equal_evaluations_give_equal_bytes_in_another_process_whatever_its_settings_and_these_stay(
    written, tmp_path
):
    code = (
        "import sys, runpy; from pathlib import Path; import callshot.report.figures;"
        "assert 'matplotlib' not in sys.modules;"
        "import matplotlib; matplotlib.rcParams['axes.facecolor'] = 'red';"
        "t = runpy.run_path(sys.argv[1]); t['draw_sweep'](t['make_evaluation'](), Path(sys.argv[2]));"
        "assert 'matplotlib.pyplot' not in sys.modules; assert matplotlib.rcParams['axes.facecolor'] == 'red'"
    )
    subprocess.run([sys.executable, "-c", code, __file__, tmp_path / "there"], check=True)
    there = [(tmp_path / f"there.{kind}").read_bytes() for kind in ("pdf", "png")]
    assert [path.read_bytes() for path in written] == there


def test_the_style_is_one_that_matplotlib_knows():
    import matplotlib

    assert set(STYLE) <= set(matplotlib.rcParams)
