"""The page in Chromium, opened from disk with the network off: what people do with it, and what must not happen."""

import re
import shutil
from contextlib import contextmanager

import pytest

from pages import HOSTILE, LONG, QUOTED, make_study, write_study

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
LAPTOP, PHONE = {"width": 1280, "height": 800}, {"width": 360, "height": 740}


@pytest.fixture(scope="session")
def browser():
    if CHROMIUM is None:
        pytest.skip(
            "no Chromium on this machine: the page was not tried in a browser (apt-get install chromium)"
        )
    api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: the page was not tried"
    )
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def study(tmp_path_factory):
    return make_study(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="session")
def progress(study, tmp_path_factory):
    return write_study(
        tmp_path_factory.mktemp("page") / QUOTED.replace("/", "∕").replace(".wav", ".html"), study
    )


@pytest.fixture
def visit(browser, progress):
    """Open the page; afterwards nothing was asked of a network, and nobody complained."""

    @contextmanager
    def opened(**options):
        context = browser.new_context(offline=True, **{"viewport": LAPTOP, **options})
        page, asked, said = context.new_page(), [], []
        context.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on(
            "dialog", lambda dialog: (said.append(f"dialog: {dialog.message}"), dialog.dismiss())
        )
        page.goto(progress.as_uri())
        yield page
        context.close()
        assert {url.partition("#")[0] for url in asked if not url.startswith("data:")} == {
            progress.as_uri()
        }
        assert said == []

    return opened


DRAWN = "document.querySelector('#curves-panel canvas').toDataURL()"
READ = """(name) => {
    const rows = [...document.querySelectorAll(`[data-testid="${name}-row"]`)];
    const k = document.querySelector(`[data-testid="${name}-k"]`).textContent;
    const values = (row) => [...row.cells].slice(1).map((cell) => cell.textContent);
    return [k, Object.fromEntries(rows.map((row) => [row.dataset.name, values(row)]))];
}"""
WATCH = f"""(name) => {{
    const read = {READ}, seen = (window.seen = {{}});
    const readout = document.querySelector(`[data-testid="${{name}}-readout"]`);
    const note = () => {{ const [k, rows] = read(name); seen[k] = rows; }};
    window.watch = new MutationObserver(note);
    window.watch.observe(readout, {{ childList: true }});
}}"""


def read_rows(page, panel="curves"):
    """Return the shot in the readout, and the mean and interval of every row, as text."""
    k, rows = page.evaluate(READ, panel)
    return int(k.removeprefix("k = ")), rows


def wait_for(page, script, most_ms=5000):
    """Return the value of a script as soon as it has one; Playwright's own way needs `eval`, which the page forbids."""
    for _ in range(most_ms // 20):
        if (value := page.evaluate(script)) is not None:
            return value
        page.wait_for_timeout(20)
    raise AssertionError(f"still nothing after {most_ms} ms: {script}")


def expected(point):
    return [f"{point.mean:.4f}", f"{point.p01:.4f} – {point.p99:.4f}"]


def pick(points, **wanted):
    """Return the point that has these values."""
    (found,) = [
        p for p in points if all(getattr(p, name) == value for name, value in wanted.items())
    ]
    return found


def hover_everywhere(page, panel="curves"):
    """Move the mouse over all of a chart; return what the readout said at each shot."""
    over = page.locator(f"#{panel}-panel .u-over")
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    page.evaluate(WATCH, panel)
    page.mouse.move(box["x"] + 1, box["y"] + 30)
    page.mouse.move(box["x"] + box["width"] - 2, box["y"] + 30, steps=40)
    seen = page.evaluate("() => { window.watch.disconnect(); return window.seen; }")
    return {int(k.removeprefix("k = ")): rows for k, rows in seen.items()}


def drag(page, panel, start, end):
    over = page.locator(f"#{panel}-panel .u-over")
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    page.mouse.move(box["x"] + start * box["width"], box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], box["y"] + 60, steps=6)
    page.mouse.up()


def test_hover_reads_every_point_of_every_curve(visit, study):
    curve = study["all_results"][0].evaluation.curve
    with visit() as page:
        assert (
            page.get_by_test_id("curves-spread").locator("option:checked").inner_text() == "shared"
        )
        page.get_by_test_id("curves-spread").select_option(label="per-query")
        seen = hover_everywhere(page)
    assert sorted(seen) == [1, 2, 3, 4, 5, 10, 20]
    for k, rows in seen.items():
        for encoder in ("mfcc", "birdnet-v2.4"):
            point = pick(
                curve, encoder=encoder, k=k, metric="map", scoring="all", spread="per-query"
            )
            assert rows[encoder] == expected(point)
        assert rows["LR on mfcc"][0] == "0.7600"
        assert rows["chance"][0] == f"{curve[0].chance:.4f}"


def test_metric_spread_and_corpus_can_be_switched(visit, study):
    with visit() as page:
        for name, corpus in (("reserve", 0), ("aviary", 1)):
            page.get_by_test_id("curves-corpus").select_option(label=name)
            curve = study["all_results"][corpus].evaluation.curve
            for metric, key in (("AUROC", "auroc"), ("accuracy", "accuracy"), ("mAP", "map")):
                for spread in ("shared", "per-query"):
                    page.get_by_test_id("curves-metric").select_option(label=metric)
                    page.get_by_test_id("curves-spread").select_option(label=spread)
                    k, rows = read_rows(page)
                    point = pick(
                        curve, encoder="mfcc", k=k, metric=key, scoring="all", spread=spread
                    )
                    assert rows["mfcc"] == expected(point)


def test_reduced_scoring_has_no_classes_to_choose(visit, study):
    with visit() as page:
        page.get_by_test_id("curves-label").select_option(label="trumpet")
        page.get_by_test_id("curves-metric").select_option(label="reduced mAP")
        assert page.get_by_test_id("curves-label").is_disabled()
        k, rows = read_rows(page)
        curve = study["all_results"][0].evaluation.curve
        assert rows["mfcc"] == expected(
            pick(curve, encoder="mfcc", k=k, metric="map", scoring="reduced", spread="shared")
        )
        page.get_by_test_id("curves-metric").select_option(label="mAP")
        assert page.get_by_test_id("curves-heading").inner_text().startswith("AP of trumpet")


def test_a_class_shows_its_own_curve(visit, study):
    points = study["all_results"][0].evaluation.per_class
    with visit() as page:
        for label in ("trumpet", HOSTILE, LONG):
            page.get_by_test_id("curves-label").select_option(label=label)
            k, rows = read_rows(page)
            assert rows["mfcc"] == expected(
                pick(points, encoder="mfcc", k=k, metric="map", spread="shared", label=label)
            )
            assert "LR on mfcc" not in rows
            assert "chance" in rows
            assert label in page.get_by_test_id("curves-heading").inner_text()


def test_an_encoder_can_be_left_out_with_its_rivals(visit):
    with visit() as page:
        before = page.evaluate(DRAWN)
        page.locator("[data-testid=curves-encoder][value=mfcc]").uncheck()
        _, rows = read_rows(page)
        assert set(rows) == {"birdnet-v2.4", "LR on birdnet-v2.4", "GRU on birdnet-v2.4", "chance"}
        assert page.evaluate(DRAWN) != before
        page.locator("[data-testid=curves-encoder][value='birdnet-v2.4']").uncheck()
        assert set(read_rows(page)[1]) == {"chance"}


def test_other_classifiers_are_shown_where_they_are_chosen_and_have_a_curve(visit, study):
    corpus_results = study["all_results"][0]
    with visit() as page:
        k, before = read_rows(page)
        ticks = page.get_by_test_id("curves-rule")
        assert [ticks.nth(i).is_checked() for i in range(ticks.count())] == [False, False]
        drawn = page.evaluate(DRAWN)
        ticks.nth(0).check()
        ticks.nth(1).check()
        assert page.evaluate(DRAWN) != drawn
        _, rows = read_rows(page)
        for classifier, name in (("cosine", "cosine"), ("logistic", "logistic at k")):
            for encoder in ("mfcc", "birdnet-v2.4"):
                wanted = {
                    "classifier": classifier,
                    "encoder": encoder,
                    "scoring": "all",
                    "metric": "map",
                }
                point = pick(corpus_results.others.curve, **wanted, spread="shared", k=k)
                assert rows[f"{name} on {encoder}"] == expected(point)
        page.get_by_test_id("curves-encoder").nth(0).uncheck()
        assert "cosine on mfcc" not in read_rows(page)[1]
        page.get_by_test_id("curves-spread").select_option(label="per-query")
        assert [ticks.nth(i).is_disabled() for i in range(2)] == [False, True]
        assert "logistic at k on birdnet-v2.4" not in read_rows(page)[1]
        page.get_by_test_id("curves-label").select_option(label="trumpet")
        assert [ticks.nth(i).is_disabled() for i in range(2)] == [True, True]
        page.get_by_test_id("curves-label").select_option(index=0)
        page.get_by_test_id("curves-spread").select_option(label="shared")
        page.get_by_test_id("curves-encoder").nth(0).check()
        for i in range(2):
            ticks.nth(i).uncheck()
        assert read_rows(page)[1] == before


def test_dragging_zooms_and_a_double_click_or_the_button_shows_all_again(visit):
    with visit() as page:
        reset = page.get_by_test_id("curves-reset")
        assert reset.is_hidden()
        drag(page, "curves", 0.24, 0.55)
        assert reset.inner_text() == "k = 5 to 10: show all"
        assert sorted(hover_everywhere(page)) == [5, 10]
        page.get_by_test_id("curves-metric").select_option(label="AUROC")
        assert reset.inner_text() == "k = 5 to 10: show all"
        page.locator("#curves-panel .u-over").dblclick()
        assert reset.is_hidden()
        drag(page, "curves", 0.55, 0.05)
        assert reset.inner_text() == "k = 1 to 10: show all"
        reset.click()
        assert reset.is_hidden()


def test_logarithmic_k_keeps_the_values(visit):
    with visit() as page:
        plain = hover_everywhere(page)
        page.get_by_test_id("curves-log").check()
        assert hover_everywhere(page) == plain
        drag(page, "curves", 0.02, 0.5)
        assert page.get_by_test_id("curves-reset").inner_text() == "k = 1 to 4: show all"


def test_arrow_keys_move_the_cursor_and_plus_and_escape_zoom(visit):
    with visit() as page:
        chart = page.get_by_test_id("curves-chart")
        assert read_rows(page)[0] == 10  # the last shot up to k* = 16
        chart.focus()
        told = []
        for key in (
            "ArrowLeft",
            "ArrowRight",
            "ArrowRight",
            "ArrowRight",
            "Home",
            "ArrowLeft",
            "End",
        ):
            page.keyboard.press(key)
            told.append(read_rows(page)[0])
        assert told == [5, 10, 20, 20, 1, 1, 20]
        page.keyboard.press("+")
        assert page.get_by_test_id("curves-reset").inner_text() == "k = 5 to 20: show all"
        page.keyboard.press("Escape")
        assert page.get_by_test_id("curves-reset").is_hidden()


def test_the_readout_is_announced_and_the_focus_is_seen(visit):
    with visit() as page:
        assert page.get_by_test_id("curves-readout").get_attribute("aria-live") == "polite"
        page.get_by_test_id("curves-rule").last.focus()
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.dataset.testid") == "curves-chart"
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_differences_are_those_of_the_chapter(visit, study):
    rows = study["all_results"][0].differences
    with visit() as page:
        seen = hover_everywhere(page, "differences")
        page.get_by_test_id("differences-spread").select_option(label="per-query")
        k, own = read_rows(page, "differences")
        said = page.get_by_test_id("differences-readout").inner_text()
    for k_seen, told in seen.items():
        d = pick(rows, k=k_seen, metric="map", scoring="all", spread="shared")
        assert told["birdnet-v2.4 less mfcc"] == [f"{d.mean:+.4f}", f"{d.p01:+.4f} – {d.p99:+.4f}"]
    d = pick(rows, k=k, metric="map", scoring="all", spread="per-query")
    assert own["birdnet-v2.4 less mfcc"][0] == f"{d.mean:+.4f}"
    assert "larger in 93.8 % of the samples" in said


def test_a_table_sorts_by_value_up_down_and_back_and_its_foot_stays(visit):
    with visit() as page:
        table = page.locator("[data-testid=table-results]").first
        column = "#table-0-0 ~ div tbody tr > :nth-child(2)"
        written = page.locator(column).all_inner_texts()
        heading = table.locator("th[data-column='1']")
        heading.locator("button").click()
        assert page.locator(column).all_inner_texts() == sorted(written, key=float)
        assert heading.get_attribute("aria-sort") == "ascending"
        page.keyboard.press("Enter")
        assert page.locator(column).all_inner_texts() == sorted(written, key=float, reverse=True)
        assert heading.get_attribute("aria-sort") == "descending"
        table.locator("th[data-column='0'] button").click()
        assert heading.get_attribute("aria-sort") == "none"
        shots = page.locator("#table-0-0 ~ div tbody tr > :nth-child(1)").all_inner_texts()
        assert [re.sub(r"\D", "", shot) for shot in shots] == ["1", "2", "3", "4", "5", "10", "20"]
        assert table.locator("tfoot th").inner_text() == "LR"
        for _ in range(2):
            table.locator("th[data-column='0'] button").click()
        assert page.locator(column).all_inner_texts() == written


def test_rows_without_a_number_stay_at_the_end(visit):
    with visit() as page:
        page.locator("#left-out summary").first.click()
        table = page.locator("[data-testid=table-rejects]").first
        heading = table.locator("th[data-column='1'] button")
        for first in ("1", "199"):
            heading.click()
            rows = table.locator("tbody tr > :nth-child(2)").all_inner_texts()
            assert rows[0] == first
            assert rows[-1] == ""


def test_hostile_names_stay_text(visit):
    with visit() as page:
        page.locator("summary").evaluate_all(
            "all => all.forEach((one) => (one.parentElement.open = true))"
        )
        assert page.get_by_text(HOSTILE, exact=True).count() > 0
        assert page.get_by_text(QUOTED, exact=True).count() > 0
        assert page.evaluate("document.scripts.length") == 6
        page.get_by_test_id("curves-label").select_option(label=HOSTILE)
        assert page.evaluate("document.scripts.length") == 6
        assert page.locator("b").count() == 0


@pytest.mark.parametrize(
    "viewport", [PHONE, {"width": 768, "height": 1024}, LAPTOP], ids=["phone", "tablet", "laptop"]
)
def test_nothing_is_wider_than_the_screen_and_no_control_lies_on_another(visit, viewport):
    with visit(viewport=viewport, has_touch=True) as page:
        page.get_by_test_id("curves-label").select_option(label=LONG)
        page.locator("details").evaluate_all("all => all.forEach((one) => (one.open = true))")
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
        boxes = [
            one.bounding_box()
            for one in page.locator(
                ".panel select, .panel .tick, .panel .chart, .panel .readout, nav a"
            ).all()
        ]
        for i, a in enumerate(boxes):
            assert a["x"] >= 0
            assert a["x"] + a["width"] <= viewport["width"]
            for b in boxes[:i]:
                apart_x = a["x"] + a["width"] <= b["x"] + 0.5 or b["x"] + b["width"] <= a["x"] + 0.5
                apart_y = (
                    a["y"] + a["height"] <= b["y"] + 0.5 or b["y"] + b["height"] <= a["y"] + 0.5
                )
                assert apart_x or apart_y


def test_fingers_tap_for_values_drag_to_zoom_and_tap_twice_to_see_all(visit):
    with visit(viewport=PHONE, has_touch=True, is_mobile=True) as page:
        over = page.locator("#curves-panel .u-over")
        over.scroll_into_view_if_needed()
        box = over.bounding_box()
        page.touchscreen.tap(box["x"] + 0.97 * box["width"], box["y"] + 50)
        assert read_rows(page)[0] == 20
        swipe(page, box, 0.05, 0.5)
        assert page.get_by_test_id("curves-reset").inner_text() == "k = 1 to 10: show all"
        for _ in range(2):
            page.touchscreen.tap(box["x"] + 0.5 * box["width"], box["y"] + 50)
        assert page.get_by_test_id("curves-reset").is_hidden()


def swipe(page, box, start, end, steps=8):
    """Drag a finger sideways, as the browser itself would tell it."""
    session = page.context.new_cdp_session(page)

    def touch(kind, share=None):
        x = None if share is None else box["x"] + share * box["width"]
        points = [] if x is None else [{"x": x, "y": box["y"] + 80}]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", start)
    for i in range(1, steps + 1):
        touch("touchMove", start + (end - start) * i / steps)
    touch("touchEnd")


def test_dark_and_light_are_followed_at_once(visit):
    background = "getComputedStyle(document.body).backgroundColor"
    with visit(color_scheme="light") as page:
        light, drawn = page.evaluate(background), page.evaluate(DRAWN)
        page.emulate_media(color_scheme="dark")
        wait_for(page, f"{background} !== '{light}' || null")
        wait_for(page, f"{DRAWN} !== '{drawn}' || null")
        assert page.evaluate("getComputedStyle(document.body).color") == "rgb(230, 229, 225)"


def test_paper_is_white_also_where_the_screen_is_dark(visit):
    ink, dark, light = (
        "getComputedStyle(document.body).color",
        "rgb(230, 229, 225)",
        "rgb(29, 31, 33)",
    )
    with visit(color_scheme="dark") as page:
        assert page.evaluate(ink) == dark
        page.evaluate(
            "dispatchEvent(new Event('beforeprint'))"
        )  # the charts are drawn anew before the media changes
        assert page.evaluate(ink) == light
        page.emulate_media(media="print", color_scheme="dark")
        assert page.evaluate(ink) == light
        assert page.locator(".controls").first.is_hidden()
        page.emulate_media(media="screen", color_scheme="dark")
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert page.evaluate(ink) == dark


def test_without_scripts_the_answer_and_the_tables_are_there(visit):
    with visit(java_script_enabled=False) as page:
        assert page.locator(".lead").first.is_visible()
        assert page.locator("noscript p").first.is_visible()
        assert page.locator("[data-testid=table-results] tbody tr").count() == 14
        assert "the tables have these values" in page.locator("#differences noscript").inner_text()


def test_a_picture_is_drawn_and_grows(visit):
    with visit(viewport=PHONE) as page:
        picture = page.locator("figure.picture img")
        picture.scroll_into_view_if_needed()
        assert (
            wait_for(page, "document.querySelector('figure.picture img').naturalWidth || null")
            == 1200
        )
        assert picture.bounding_box()["width"] < 360
        page.get_by_role("button", name="Enlarge").click()
        assert picture.bounding_box()["width"] == 1200
        assert page.evaluate("document.documentElement.scrollWidth") == 360


def test_the_first_paint_is_soon(visit, record_property):
    with visit() as page:
        first = wait_for(page, "performance.getEntriesByName('first-paint')[0]?.startTime ?? null")
        record_property("first_paint_ms", first)
        assert first <= 2000
