"""The page of `walsh report` in Chromium: quiet, quick, accessible, on a desk and on a phone.

`make browser` installs what this needs, and runs it alone. Elsewhere these tests are skipped: they
measure time, so no others may run beside them.
"""

import os
import shutil

import pytest

from tests.helpers.records import fill, page_of

pytestmark = pytest.mark.browser

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
DESK, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
#: Requests and hosts of a page.
SIZES = {"none": (0, 1), "one": (1, 1), "some": (120, 6), "many": (10_000, 206)}


@pytest.fixture(scope="module")
def chromium():
    if "PYTEST_XDIST_WORKER" in os.environ:
        pytest.skip("these tests measure time, so they run alone: `make browser`")
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed; `make browser` installs it"
    )
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine (Debian: apt-get install chromium)")
    # Chromium's own sandbox does not work as root, for example in a container.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Return a function that writes a page of a size, once, and returns its address."""
    written = {}

    def write(size):
        if size not in written:
            folder = tmp_path_factory.mktemp(size)
            page = page_of(*fill(folder, *SIZES[size]))
            (folder / "report.html").write_text(page, "utf-8")
            written[size] = (folder / "report.html").as_uri()
        return written[size]

    return write


@pytest.fixture
def visit(chromium, address):
    """Return a function that opens a page; at the end nothing may have been said or loaded."""
    told, contexts = [], []

    def opened(size, viewport=DESK, **options):
        context = chromium.new_context(viewport=viewport, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: told.append(message.text))
        page.on("pageerror", lambda error: told.append(str(error)))
        page.on("dialog", lambda dialog: told.append(dialog.message))
        page.on("request", lambda request: told.append(request.url))
        page.goto(address(size))
        assert told.pop(0) == address(size)
        return page

    yield opened
    assert told == []
    for context in contexts:
        context.close()


def violations(page):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    found = axe.Axe().run(page).response["violations"]
    return [
        (violation["id"], [node["html"][:200] for node in violation["nodes"]])
        for violation in found
    ]


@pytest.mark.parametrize(
    ("viewport", "scheme"), [(DESK, "light"), (PHONE, "dark")], ids=["desk", "phone"]
)
def test_a_page_has_no_violations_and_no_part_outside_the_screen(visit, viewport, scheme):
    page = visit("some", viewport, color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    assert violations(page) == []


@pytest.mark.parametrize("size", ["none", "one"])
def test_a_page_about_nothing_is_sound_too(visit, size):
    page = visit(size, PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert violations(page) == []


@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
def test_ten_thousand_requests_open_in_two_seconds(visit, viewport):
    page = visit("many", viewport)
    taken = page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
    assert 0 < taken < 2000.0


def test_the_page_works_with_a_keyboard_and_no_javascript(visit):
    page = visit("some", java_script_enabled=False)
    assert page.get_by_role("heading", name="Needs your attention").is_visible()
    page.keyboard.press("Tab")
    assert page.locator("a.skip:focus").is_visible()
    line = page.locator("#new details").first
    assert not line.get_by_role("list").is_visible()
    line.locator("summary").focus()
    page.keyboard.press("Enter")
    assert line.get_by_role("list").is_visible()
    assert page.get_by_role("img").count() == 2


def test_what_is_new_is_printed_although_it_is_folded(visit):
    page = visit("some")
    headline = page.locator("#new li").first
    assert not headline.is_visible()
    page.emulate_media(media="print")
    assert headline.is_visible()
    assert not page.get_by_role("navigation").is_visible()
    assert page.pdf(format="A4").startswith(b"%PDF")
