"""The page in Chromium, opened from disk without a network: controls, charts, tables, print."""

import re
from contextlib import contextmanager
from itertools import combinations

import pytest

from callshot.report.page import format_change
from pages import HOSTILE, LONG, QUOTED, write_study
from review_pages import LAPTOP, use_own_page, use_page

PHONE = {"width": 360, "height": 740}
DARK_INK = "rgb(230, 229, 225)"
LIGHT_INK = "rgb(29, 31, 33)"


@pytest.fixture(scope="session")
def report(study, tmp_path_factory):
    name = QUOTED.replace("/", "∕").replace(".wav", ".html")
    return write_study(tmp_path_factory.mktemp("page") / name, study)


@pytest.fixture(scope="module")
def laptop(browser):
    """Keep one window for the tests that need no other: windows are slow to open."""
    context = browser.new_context(offline=True, viewport=LAPTOP)
    yield context
    context.close()


@pytest.fixture
def visit(browser, report, laptop):
    """Return a function that opens the page; after it, no request and no message was seen."""

    @contextmanager
    def open_page(open_folds=True, **options):
        opened = use_page(laptop)
        if options:
            window = {"offline": True, "viewport": LAPTOP, **options}
            opened = use_own_page(browser.new_context(**window))
        with opened as page:
            requests = []
            messages = []

            def note_request(request):
                requests.append(request.url)

            def note_message(message):
                messages.append(f"{message.type}: {message.text}")

            def dismiss(dialog):
                messages.append(f"dialog: {dialog.message}")
                dialog.dismiss()

            listeners = {"request": note_request, "console": note_message}
            listeners |= {"pageerror": lambda error: messages.append(str(error))}
            listeners |= {"dialog": dismiss}
            for event, listener in listeners.items():
                page.on(event, listener)
            page.goto(report.as_uri())
            if open_folds:
                page.locator("details.section").evaluate_all(OPEN)
            yield page
            for event, listener in listeners.items():
                page.remove_listener(event, listener)
        urls = {
            url.partition("#")[0] for url in requests if not url.startswith("data:")
        }
        assert urls == {report.as_uri()}
        assert messages == []

    return open_page


OPEN = "all => all.forEach((fold) => (fold.open = true))"
CANVAS = "document.querySelector('#curves-panel canvas').toDataURL()"
READ = """(name) => {
    const rows = [...document.querySelectorAll(`[data-testid="${name}-row"]`)];
    const k = document.querySelector(`[data-testid="${name}-k"]`).textContent;
    const values = (row) => [...row.cells].slice(1).map((cell) => cell.textContent);
    return [k, Object.fromEntries(rows.map((row) => [row.dataset.name, values(row)]))];
}"""
OBSERVE = f"""(name) => {{
    const read = {READ}, readouts = (window.readouts = {{}});
    const readout = document.querySelector(`[data-testid="${{name}}-readout"]`);
    const note = () => {{ const [k, rows] = read(name); readouts[k] = rows; }};
    window.observer = new MutationObserver(note);
    window.observer.observe(readout, {{ childList: true }});
}}"""
STOP = "() => { window.observer.disconnect(); return window.readouts; }"


def read_rows(page, panel="curves"):
    """Return the shot in the readout, and the mean and interval of every row, as text."""
    k, rows = page.evaluate(READ, panel)
    return int(k.removeprefix("k = ")), rows


def wait_for(page, script, timeout_ms=5000):
    """Return the value of a script once it is not null.

    Playwright's own function needs `eval`, which the page forbids.
    """
    for _ in range(timeout_ms // 20):
        value = page.evaluate(script)
        if value is not None:
            return value
        page.wait_for_timeout(20)
    raise AssertionError(f"null after {timeout_ms} ms: {script}")


def format_point(point):
    return ["{mean:.4f}".format(**point), "{p01:.4f} – {p99:.4f}".format(**point)]


NAMES = {"mfcc": "MFCC", "birdnet-v2.4": "BirdNET 2.4"}


def pick(points, **values):
    """Return the only point that has these values."""
    (point,) = points.filter(**values).to_dicts()
    return point


def hover_everywhere(page, panel="curves"):
    """Move the mouse over the whole chart; return the readout at each shot."""
    over = page.locator(f"#{panel}-panel .u-over")
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    page.evaluate(OBSERVE, panel)
    page.mouse.move(box["x"] + 1, box["y"] + 30)
    page.mouse.move(box["x"] + box["width"] - 2, box["y"] + 30, steps=40)
    readouts = page.evaluate(STOP)
    return {int(k.removeprefix("k = ")): rows for k, rows in readouts.items()}


def drag(page, panel, start, end):
    over = page.locator(f"#{panel}-panel .u-over")
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    page.mouse.move(box["x"] + start * box["width"], box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], box["y"] + 60, steps=6)
    page.mouse.up()


def choose(page, **labels):
    """Choose options of the panel of curves by their labels."""
    for name, label in labels.items():
        page.get_by_test_id(f"curves-{name}").select_option(label=label)


def test_curves_have_the_numbers_of_the_results(visit, study):
    first = study["all_results"][0].evaluation
    key = {"encoder": "mfcc", "metric": "map", "scoring": "all", "spread": "total"}
    with visit() as page:
        spread = page.get_by_test_id("curves-spread")
        assert spread.locator("option:checked").inner_text() == "total"
        choose(page, spread="per-query")
        readouts = hover_everywhere(page)
        assert sorted(readouts) == [1, 2, 3, 4, 5, 10, 20]
        for k, rows in readouts.items():
            for encoder, name in NAMES.items():
                place = key | {"spread": "per-query", "encoder": encoder, "k": k}
                assert rows[name] == format_point(pick(first.curve, **place))
            assert rows["LR on MFCC"][0] == "0.7600"
            assert rows["chance"][0] == f"{first.curve['chance'][0]:.4f}"
        for name, number in (("aviary", 1), ("reserve", 0)):
            evaluation = study["all_results"][number].evaluation
            classes = evaluation.per_class["label"].n_unique()
            accuracy = f"accuracy among these {classes} call types"
            for label, metric in ((accuracy, "accuracy"), ("mAP", "map")):
                for spread in ("shared", "total"):
                    choose(page, corpus=name, metric=label, spread=spread)
                    k, rows = read_rows(page)
                    place = key | {"metric": metric, "spread": spread, "k": k}
                    assert rows["MFCC"] == format_point(pick(evaluation.curve, **place))
        for label in ("trumpet", HOSTILE, LONG):
            choose(page, label=label)
            k, rows = read_rows(page)
            place = {"encoder": "mfcc", "metric": "map", "spread": "total"}
            point = pick(first.per_class, **place, k=k, label=label)
            assert rows["MFCC"] == format_point(point)
            assert "LR on MFCC" not in rows
            assert "chance" in rows
            assert label in page.get_by_test_id("curves-heading").inner_text()
        choose(page, metric="reduced mAP")
        assert page.get_by_test_id("curves-label").is_disabled()
        k, rows = read_rows(page)
        place = key | {"scoring": "reduced", "k": k}
        assert rows["MFCC"] == format_point(pick(first.curve, **place))
        choose(page, metric="mAP")
        heading = page.get_by_test_id("curves-heading").inner_text()
        assert heading.startswith(f"AP of {LONG[:9]}")


def test_classifiers_and_encoders_are_shown_if_they_are_checked(visit, study):
    others = study["all_results"][0].other_classifiers
    with visit() as page:
        k, before = read_rows(page)
        boxes = page.get_by_test_id("curves-classifier")
        assert [boxes.nth(i).is_checked() for i in range(boxes.count())] == [
            False,
            False,
        ]
        canvas = page.evaluate(CANVAS)
        boxes.nth(0).check()
        boxes.nth(1).check()
        assert page.evaluate(CANVAS) != canvas
        _, rows = read_rows(page)
        for classifier, shown in (("cosine", "cosine"), ("logistic", "logistic at k")):
            for encoder, name in NAMES.items():
                key = {"classifier": classifier, "encoder": encoder, "k": k}
                key |= {"scoring": "all", "metric": "map", "spread": "total"}
                point = pick(others.curve, **key)
                assert rows[f"{shown} on {name}"] == format_point(point)
        page.get_by_test_id("curves-encoder").nth(0).uncheck()
        assert "cosine on MFCC" not in read_rows(page)[1]
        page.get_by_test_id("curves-spread").select_option(label="per-query")
        assert [boxes.nth(i).is_disabled() for i in range(2)] == [False, True]
        assert "logistic at k on BirdNET 2.4" not in read_rows(page)[1]
        page.get_by_test_id("curves-label").select_option(label="trumpet")
        assert [boxes.nth(i).is_disabled() for i in range(2)] == [True, True]
        page.get_by_test_id("curves-label").select_option(index=0)
        page.get_by_test_id("curves-spread").select_option(label="total")
        page.get_by_test_id("curves-encoder").nth(0).check()
        for i in range(2):
            boxes.nth(i).uncheck()
        assert read_rows(page)[1] == before
        # An encoder is hidden with its baselines.
        canvas = page.evaluate(CANVAS)
        page.locator("[data-testid=curves-encoder][value=MFCC]").uncheck()
        names = {f"{prefix}BirdNET 2.4" for prefix in ("", "LR on ", "GRU on ")}
        assert set(read_rows(page)[1]) == {*names, "chance"}
        assert page.evaluate(CANVAS) != canvas
        page.locator("[data-testid=curves-encoder][value='BirdNET 2.4']").uncheck()
        assert set(read_rows(page)[1]) == {"chance"}


def test_keys_and_drags_zoom_and_move_the_cursor(visit):
    with visit() as page:
        reset = page.get_by_test_id("curves-reset")
        readout = page.get_by_test_id("curves-readout")
        assert reset.is_hidden()
        assert readout.get_attribute("aria-live") == "polite"
        page.get_by_test_id("curves-classifier").last.focus()
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.dataset.testid") == "curves-chart"
        style = "getComputedStyle(document.activeElement).outlineStyle"
        assert page.evaluate(style) == "solid"
        assert read_rows(page)[0] == 5  # that of the answer
        shots = []
        keys = "ArrowLeft ArrowRight ArrowRight Home ArrowLeft End"
        for key in keys.split():
            page.keyboard.press(key)
            shots.append(read_rows(page)[0])
        assert shots == [4, 5, 10, 1, 1, 20]
        page.keyboard.press("+")
        assert reset.inner_text() == "k = 5 to 20: show all"
        page.keyboard.press("Escape")
        assert reset.is_hidden()

        drag(page, "curves", 0.24, 0.55)
        assert reset.inner_text() == "k = 5 to 10: show all"
        assert sorted(hover_everywhere(page)) == [5, 10]
        choose(page, metric="AUROC")
        assert reset.inner_text() == "k = 5 to 10: show all"
        page.locator("#curves-panel .u-over").dblclick()
        assert reset.is_hidden()
        drag(page, "curves", 0.55, 0.05)
        assert reset.inner_text() == "k = 1 to 10: show all"
        reset.click()
        assert reset.is_hidden()
        plain = hover_everywhere(page)
        page.get_by_test_id("curves-log").check()
        assert hover_everywhere(page) == plain
        drag(page, "curves", 0.02, 0.5)
        assert reset.inner_text() == "k = 1 to 4: show all"


def test_paired_differences_are_those_of_the_corpus(visit, study):
    differences = study["all_results"][0].evaluation.differences
    first = differences.row(0, named=True)
    name = f"{NAMES[first['one']]} less {NAMES[first['other']]}"
    with visit() as page:
        readouts = hover_everywhere(page, "differences")
        page.get_by_test_id("differences-spread").select_option(label="per-query")
        k, rows = read_rows(page, "differences")
        text = page.get_by_test_id("differences-readout").inner_text()
    for shot, values in readouts.items():
        point = pick(differences, k=shot, metric="map", scoring="all", spread="mean")
        interval = "{p01:+.4f} – {p99:+.4f}".format(**point).replace("-", "−")
        assert values[name] == [format_change(point["mean"], 4), interval]
    point = pick(differences, k=k, metric="map", scoring="all", spread="per-query")
    assert rows[name][0] == format_change(point["mean"], 4)
    assert f"larger in {100 * point['wins']:.1f} % of the samples" in text


NAME_WIDTHS = """(lists) => lists.map((list) => {
    const style = getComputedStyle(list);
    const pen = document.createElement("canvas").getContext("2d");
    pen.font = style.font;
    const needed = pen.measureText(list.options[list.selectedIndex].text).width;
    return list.clientWidth - parseFloat(style.paddingLeft) - needed;
})"""
LINE_COUNTS = """(cells) => cells.map((cell) => {
    const range = document.createRange();
    range.selectNodeContents(cell);
    return new Set([...range.getClientRects()].map((box) => box.top)).size;
})"""


def test_a_table_sorts_up_down_and_back_and_its_foot_stays(visit):
    with visit() as page:
        table = page.locator("[data-testid=table-results]").first
        column = "#table-0-0 ~ div tbody tr > :nth-child(2)"
        original = page.locator(column).all_inner_texts()
        heading = table.locator("th[data-column='1']")
        heading.locator("button").click()
        assert page.locator(column).all_inner_texts() == sorted(original, key=float)
        assert heading.get_attribute("aria-sort") == "ascending"
        page.keyboard.press("Enter")
        assert page.locator(column).all_inner_texts() == sorted(
            original, key=float, reverse=True
        )
        assert heading.get_attribute("aria-sort") == "descending"
        table.locator("th[data-column='0'] button").click()
        assert heading.get_attribute("aria-sort") == "none"
        first = column.replace("child(2)", "child(1)")
        shots = " ".join(page.locator(first).all_inner_texts())
        assert re.findall(r"\d+", shots) == ["1", "2", "3", "4", "5", "10", "20"]
        assert table.locator("tfoot th").first.inner_text() == "LR"
        for _ in range(2):
            table.locator("th[data-column='0'] button").click()
        assert page.locator(column).all_inner_texts() == original
        # Rows without a number are sorted to the end.
        page.locator("#left-out details summary").first.click()
        table = page.locator("[data-testid=table-rejects]").first
        heading = table.locator("th[data-column='1'] button")
        for first in ("1", "199"):
            heading.click()
            rows = table.locator("tbody tr > :nth-child(2)").all_inner_texts()
            assert rows[0] == first
            assert rows[-1] == ""


def test_a_phone_shows_everything_whole_and_no_control_covers_another(visit):
    width = PHONE["width"]
    with visit(viewport=PHONE, has_touch=True, is_mobile=True) as page:
        page.get_by_test_id("curves-label").select_option(label=LONG)
        page.locator("details").evaluate_all(
            "all => all.forEach((node) => (node.open = true))"
        )
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        selector = ".panel select, .panel .tick, .panel .chart, .panel .readout, .card"
        boxes = [control.bounding_box() for control in page.locator(selector).all()]
        for box in boxes:
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width
        for a, b in combinations(boxes, 2):
            assert are_apart(a, b, "x", "width") or are_apart(a, b, "y", "height")
        # Names of encoders and numbers are whole.
        lines = page.locator(".matrix td").evaluate_all(LINE_COUNTS)
        assert set(lines) == {1}
        name = "BirdNET 2.4 (at automatic speed)"
        lists = page.locator(".field:has-text('Encoder') select")
        lists.evaluate_all(
            "(lists, name) => lists.forEach((list) => list.add(new Option(name, 0, true, true)))",
            name,
        )
        assert min(lists.evaluate_all(NAME_WIDTHS)) > 0
        # A tap shows values, a swipe zooms, a double tap shows all.
        over = page.locator("#curves-panel .u-over")
        over.scroll_into_view_if_needed()
        box = over.bounding_box()
        page.touchscreen.tap(box["x"] + 0.97 * box["width"], box["y"] + 50)
        assert read_rows(page)[0] == 20
        swipe(page, box, 0.05, 0.5)
        reset = page.get_by_test_id("curves-reset")
        assert reset.inner_text() == "k = 1 to 10: show all"
        for _ in range(20):  # on a busy machine two taps may be too far apart in time
            page.touchscreen.tap(box["x"] + 0.5 * box["width"], box["y"] + 50)
            if reset.is_hidden():
                break
        assert reset.is_hidden()


def are_apart(a, b, start, size):
    """Return whether two boxes do not overlap in one direction, by more than half a pixel."""
    return a[start] + a[size] <= b[start] + 0.5 or b[start] + b[size] <= a[start] + 0.5


def swipe(page, box, start, end, steps=8):
    """Drag a finger sideways, by events as a touch screen sends them."""
    session = page.context.new_cdp_session(page)

    def touch(kind, *shares):
        points = [
            {"x": box["x"] + share * box["width"], "y": box["y"] + 80}
            for share in shares
        ]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", start)
    for i in range(1, steps + 1):
        touch("touchMove", start + (end - start) * i / steps)
    touch("touchEnd")


A4_PX = 703  # the width of A4 without its margins of 12 mm
WIDER = """() => {
    const paper = document.documentElement.clientWidth + 1;
    const blocks = [...document.querySelectorAll("table, pre, svg, img, figure, p, dl, ul")];
    const wider = blocks.filter((one) => one.getBoundingClientRect().right > paper);
    return wider.map((one) => `${one.tagName} ${one.closest("details")?.id}`);
}"""


def test_a_print_is_white_with_the_content_of_all_folds_and_fits_the_paper(visit):
    ink = "getComputedStyle(document.body).color"
    paper = {"width": A4_PX, "height": 1000}
    with visit(open_folds=False, color_scheme="dark", viewport=paper) as page:
        assert page.evaluate(ink) == DARK_INK
        # The charts are drawn again before the medium changes.
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.evaluate(ink) == LIGHT_INK
        assert page.locator("details.section:not([open])").count() == 0
        assert page.locator("#differences-panel canvas").count() == 1
        page.emulate_media(media="print", color_scheme="dark")
        assert page.evaluate(ink) == LIGHT_INK
        assert page.locator(".controls").first.is_hidden()
        wait_for(page, f"({WIDER})().length === 0 || null")
        page.emulate_media(media="screen", color_scheme="dark")
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert page.evaluate(ink) == DARK_INK
        assert page.locator("details.section[open]").count() == 0


def test_the_first_screen_answers_and_folds_are_drawn_when_they_are_opened(visit):
    with visit(open_folds=False) as page:
        for locator in (page.locator(".lead"), page.locator(".first-curve canvas")):
            box = locator.first.bounding_box()
            assert box["y"] + box["height"] <= LAPTOP["height"]
        assert page.locator("details.section[open]").count() == 0
        assert page.locator("#curves-panel canvas").count() == 0
        summary = page.locator("#encoder > summary")
        summary.focus()
        page.keyboard.press("Enter")
        wait_for(page, "document.querySelector('#curves-panel canvas') ? true : null")
        assert page.get_by_test_id("curves-chart").is_visible()
        page.keyboard.press("Space")
        assert page.get_by_test_id("curves-chart").is_hidden()
        page.locator(".card").nth(2).click()
        assert page.locator("#labels").get_attribute("open") is not None
        assert page.locator("[data-testid=table-needs]").first.is_visible()
        page.locator("a[href='#curves-panel']").first.click()
        assert page.get_by_test_id("curves-chart").is_visible()


def test_a_cell_of_the_heat_map_lists_the_calls_behind_it(visit, study):
    confusion = study["all_results"][0].evaluation.confusion
    with visit() as page:
        page.get_by_test_id("confusion-encoder").select_option(label="MFCC")
        page.get_by_test_id("confusion-shot").select_option(label="5")
        table = page.get_by_test_id("confusion-table")
        cell = pick(confusion, encoder="mfcc", k=5, true="trumpet", predicted="rumble")
        share = 100 * cell["recall"]
        button = table.locator(f"[aria-label^='trumpet named rumble: {share:.1f}']")
        if share == round(share):
            button = table.locator("[aria-label^='trumpet named rumble']")
        button.focus()
        page.keyboard.press("Enter")
        listed = page.get_by_test_id("confusion-calls")
        assert "trumpet, named rumble" in listed.inner_text()
        segments = study["all_results"][0].evaluation.segments
        trumpets = {
            name
            for name, label in zip(segments["segment"], segments["label"], strict=True)
            if label == "trumpet"
        }
        names = listed.locator(".call").all_inner_texts()
        assert names
        assert set(names) <= trumpets


PLAYS = "player.currentTime > 0 && !player.error ? true : null"


def test_a_sound_plays_and_a_low_call_plays_faster(visit):
    with visit() as page:
        table = page.get_by_test_id("listen-table")
        assert table.locator("tbody tr").count() == 4
        assert table.locator("img").first.is_visible()
        table.get_by_role("button", name="Play:").first.click()
        assert wait_for(page, PLAYS)
        table.get_by_role("button", name="times faster").first.click()
        assert wait_for(page, PLAYS)
        assert page.evaluate("player.duration") < 0.3  # 0.5 s, at least 4 times faster


def map_place(page, call):
    """Return where a call is on the screen."""
    script = f"""() => {{
        const data = readData().corpora[0];
        const canvas = document.querySelector('[data-testid=map-canvas]');
        const box = canvas.getBoundingClientRect(), side = canvas.clientWidth;
        const [x, y] = data.encoder_calls[data.best].map[{call}];
        const scale = (side - 48) / 1000;
        return [box.x + 1 + 24 + x * scale, box.y + 1 + side - 24 - y * scale];
    }}"""
    return page.evaluate(script)


def test_points_of_the_map_are_chosen_by_keys_a_click_and_a_lasso(visit, study):
    segments = study["all_results"][0].evaluation.segments
    with visit() as page:
        canvas = page.get_by_test_id("map-canvas")
        listed = page.get_by_test_id("map-list")
        call = page.evaluate("Number(Object.keys(readData().corpora[0].clips)[0])")
        name = page.evaluate(f"readData().corpora[0].calls[{call}]")
        canvas.focus()
        for _ in range(call + 1):
            page.keyboard.press("ArrowRight")
        assert listed.locator(".call").inner_text() == name
        page.keyboard.press("Enter")
        assert wait_for(page, PLAYS)
        canvas.scroll_into_view_if_needed()
        page.mouse.click(*map_place(page, call))
        (chosen,) = listed.locator(".call").all_inner_texts()
        assert chosen in segments["segment"]
        box = canvas.bounding_box()
        corners = [(0.01, 0.01), (0.99, 0.01), (0.99, 0.99), (0.01, 0.99)]
        places = [
            (box["x"] + x * box["width"], box["y"] + y * box["height"])
            for x, y in corners
        ]
        page.mouse.move(*places[0])
        page.mouse.down()
        for place in places[1:]:
            page.mouse.move(*place, steps=4)
        page.mouse.up()
        assert listed.locator("strong").inner_text() == str(len(segments))
