"""Nothing is lost, in Chromium: dead servers, two tabs, two reviewers, reloads, exports."""

import polars as pl

from review_pages import PANEL_MS, expect, settle, wait_until


def test_a_decision_is_saved_only_when_the_server_has_answered_yes(visit):
    with visit(silent=False) as seen:
        page = seen.page
        number = seen.shown()
        held = []
        page.route("**/api/decisions", lambda route: held.append(route))
        page.keyboard.press("y")
        expect(page, "#saved").to_have_text("1 decision not saved yet")
        page.keyboard.press("PageUp")
        expect(page, "#verdict").to_have_text("yes · saving…")
        expect(page, "#verdict").to_have_attribute("data-state", "pending")
        wait_until(page, lambda: held)
        held.pop().continue_()
        expect(page, "#verdict").to_have_text("yes · saved")
        seen.settle()
        assert seen.item(number)["decision"]["action"] == "confirm"
        page.keyboard.press("PageDown")
        seen.settle()
        refusal = {"status": 409, "json": {"error": "this call is settled"}}
        # The latest route counts; without any in between, a request could pass.
        page.route("**/api/decisions", lambda route: route.fulfill(**refusal))
        page.keyboard.press("y")
        expect(page, "#notes").to_have_text("Not saved: this call is settled")
        page.keyboard.press("PageUp")
        expect(page, "#verdict").to_have_text("not reviewed")


def test_two_tabs_follow_each_other(visit, server):
    with visit() as seen:
        first = seen.page
        second = first.context.new_page()
        second.goto(server.address)
        settle(second)
        second.locator("#mode-grid").click()
        settle(second)
        expect(second, ".tile").to_have_count(24)
        number = seen.shown()
        seen.press("n")
        expect(second, f"#tile-{number}").to_have_attribute("data-action", "reject")
        expect(second, "#done-count").to_contain_text("1 of 24")
        settle(second)
        second.locator(".tile").nth(1).click()
        second.keyboard.press("y")
        expect(first, "#done-count").to_contain_text("2 of 24")
        settle(second)
        second.keyboard.press("u")
        expect(first, "#done-count").to_contain_text("1 of 24")
        seen.settle()
        first.keyboard.press("PageUp")
        expect(first, "#verdict").to_have_text("no · saved")
        settle(second)
        second.keyboard.press("u")
        expect(first, "#verdict").to_have_text("not reviewed")


def test_exports_say_who_and_when_and_a_reload_keeps_the_place(visit):
    with visit() as seen:
        page = seen.page
        seen.press("y", "n", "y")
        for count in (2, 3):
            seen.settle(PANEL_MS)
            with page.expect_download() as waiting:
                page.locator("[data-format=csv]").click()
            table = pl.read_csv(waiting.value.path())
            assert len(table) == count
            assert "reviewer" in table.columns
            seen.settle(PANEL_MS)
            page.get_by_label("with rejected calls").check()
        seen.press("u", "u", "u")

        page.locator("#order").select_option("time")
        seen.settle()
        page.keyboard.press("f")
        page.locator("#filter-label").select_option("trumpet")
        expect(page, "#shown").to_contain_text("8 calls")
        page.keyboard.press("Escape")
        page.locator("#main").focus()
        seen.settle()
        seen.press("y", "PageDown", "PageDown")
        number = seen.shown()
        page.reload()
        seen.settle()
        expect(page, "#shown").to_have_text("7 calls: not reviewed, trumpet")
        assert seen.shown() == number
        expect(page, "#order").to_have_value("time")
        seen.press("u")
        assert seen.get("/api/progress")["done"] == 0


def test_reviewers_disagree_and_one_settles(visit):
    with visit(reviewer="Ann") as ann, visit(reviewer="Ben") as seen:
        ann.press("y")
        page = seen.page
        assert seen.shown() == 0
        seen.press("n")
        seen.settle(PANEL_MS)
        page.locator("#settle").click()
        expect(page, "#others").to_contain_text("Ann: yes")
        expect(page, "#others").to_have_class("conflict")
        seen.settle()
        page.keyboard.press("y")
        expect(page, "#done").to_be_visible()
        expect(page, "#settle").to_have_count(0)
        seen.settle()
        assert seen.get("/api/progress")["agreement"]["conflicts"] == []


def test_a_killed_server_loses_nothing_and_the_page_goes_on(visit, server):
    with visit(silent=False) as seen:
        page = seen.page
        seen.press("y")
        server.kill()
        order = seen.shown()
        page.keyboard.press("n")
        page.keyboard.press("y")
        expect(page, "#saved").to_have_text("2 decisions not saved yet")
        expect(page, "#banner").to_contain_text("The server does not answer.")
        expect(page, "#banner").to_contain_text("kept in this browser")
        page.keyboard.press("PageUp")
        expect(page, "#verdict").to_have_text("yes · saving…")
        server.start()
        expect(page, "#saved").to_have_text("All saved")
        expect(page, "#banner").to_be_hidden()
        expect(page, "#verdict").to_have_text("yes · saved")
        seen.settle()
        assert seen.item(order)["decision"]["action"] == "reject"
        assert seen.get("/api/progress")["done"] == 3
        server.kill()
        page.keyboard.press("PageDown")
        expect(page, "#verdict").to_have_text("not reviewed")
        page.keyboard.press("n")
        expect(page, "#saved").to_have_text("1 decision not saved yet")
        context = page.context
        page.close()
        server.start()
        later = context.new_page()
        later.goto(server.address)
        expect(later, "#done-count").to_contain_text("4 of 24")
        seen.page = later
        seen.settle()
        assert seen.get("/api/progress")["done"] == 4
        stopped = server.interrupt()
        assert f"everything is saved in {server.scan / 'review'}" in stopped
        assert "next: callshot learn" in stopped
        assert "Traceback" not in stopped, stopped
        server.start()
