"""The page of `tilegym report` in a real browser: Debian's Chromium, driven by Selenium."""

from __future__ import annotations

import re
import shutil
from itertools import product
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from _tilegym_cli.app import app
from tests.reports import CPU, HOSTILE, row, run, saved

if TYPE_CHECKING:
    from collections.abc import Iterator

    from selenium.webdriver import Chrome

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
OPS = ("rms_norm", "softmax")
DTYPES = ("bfloat16", "float32")
BACKENDS = (("cutile", False, 0.2), ("torch", False, 1.5), ("eager", True, 0.5), ("compile", True, 0.25))


@pytest.fixture(scope="module")
def browser(tmp_path_factory, request) -> Iterator[Chrome]:
    """A browser, the same for all tests of this file."""
    missing = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    if missing:
        reason = f"not installed: {', '.join(missing)} (Debian: apt-get install chromium chromium-driver)"
        if request.config.getoption("--require-browser"):
            pytest.fail(f"--require-browser: {reason}", pytrace=False)
        pytest.skip(reason)
    from selenium.webdriver import Chrome, ChromeOptions, ChromeService

    options = ChromeOptions()
    options.binary_location = shutil.which("chromium")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    driver = Chrome(options=options, service=ChromeService(shutil.which("chromedriver")))
    yield driver
    driver.quit()


def page(folder, *runs):
    """The address of the page about some runs."""
    out = folder / "report.html"
    done = CliRunner().invoke(app, ["report", "--out", str(out), *map(str, saved(folder, *runs))])
    assert done.exit_code == 0, done.output
    return out.as_uri()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A page with two ops, dtypes, directions and devices, two backends and two peers, and a history."""
    rows = [
        row(backend, time if backend == "cutile" else time * factor, op=op, dtype=dtype, direction=direction, peer=peer)
        for (backend, peer, time), (factor, op), dtype, direction in product(
            BACKENDS, enumerate(OPS, start=1), DTYPES, ("forward", "backward")
        )
    ]
    rows.append(row("eager", None, case="2x2", peer=True, error="wrong: it is not what the reference says"))
    older = run(rows[:-1], date="2026-11-01T00:00:00+00:00")
    return page(tmp_path_factory.mktemp("page"), older, run(rows), run(rows[:8], device=CPU))


@pytest.fixture
def opened(browser, address):
    """The page on a desktop's screen in the light, just opened; in the end, its console must be empty."""
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    )
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "light"}]}
    )
    browser.get("about:blank")
    browser.get(address)
    yield browser
    assert browser.get_log("browser") == []


def one(browser, selector):
    return browser.find_element("css selector", selector)


def column(browser, key):
    """What the visible rows have in a column."""
    return browser.execute_script(
        """
        const index = document.querySelector(`th[data-key="${arguments[0]}"]`).cellIndex;
        return [...document.querySelectorAll("#speed-table tbody tr")]
          .filter((row) => row.offsetParent).map((row) => row.cells[index].innerText.trim());
        """,
        key,
    )


def numbers(browser, key):
    """The figures of a column; None where there is none."""
    found = [re.match(r"[\d,.]+", text) for text in column(browser, key)]
    return [float(match[0].replace(",", "")) if match else None for match in found]


def choose(browser, name, value):
    from selenium.webdriver.support.ui import Select

    Select(one(browser, f"select[name={name}]")).select_by_visible_text(value)


def visible(browser, selector, name):
    """The values of a `data-` attribute among the elements that are shown."""
    return set(
        browser.execute_script(
            """
            return [...document.querySelectorAll(arguments[0])]
              .filter((found) => found.checkVisibility()).map((found) => found.dataset[arguments[1]]);
            """,
            selector,
            name,
        )
    )


def test_it_loads_whole_and_its_console_is_empty(opened):
    assert opened.title == "TileGym report"
    assert len(column(opened, "op")) == 41
    assert one(opened, "#shown").text == "41 of 41 measurements"
    assert visible(opened, ".points circle", "op") == set(OPS)
    assert visible(opened, "table.bars", "op") == {"rms_norm"}  # the first is open
    assert len(opened.find_elements("css selector", ".trend")) == 16


@pytest.mark.parametrize(("key", "first"), [("time", "ascending"), ("rate", "descending"), ("best", "descending")])
def test_a_button_sorts_its_column_by_number_both_ways(opened, key, first):
    button = one(opened, f"th[data-key={key}] button")
    button.click()
    assert one(opened, "th[aria-sort]").get_attribute("aria-sort") == first
    there = numbers(opened, key)
    known = [value for value in there if value is not None]
    assert known == sorted(known, reverse=first == "descending")
    assert len(set(known)) >= 3
    assert there[len(known) :] == [None] * (41 - len(known))
    assert None in there
    button.click()
    back = numbers(opened, key)
    assert back[: len(known)] == known[::-1]
    assert back[len(known) :] == there[len(known) :]
    assert len(opened.find_elements("css selector", "th[aria-sort]")) == 1


def test_the_keyboard_sorts_too_and_text_as_text(opened):
    from selenium.webdriver.common.keys import Keys

    button = one(opened, "th[data-key=backend] button")
    button.send_keys(Keys.ENTER)
    assert column(opened, "backend") == sorted(column(opened, "backend"))
    assert opened.switch_to.active_element == button
    button.send_keys(Keys.SPACE)
    assert column(opened, "backend")[0] == "torch"
    assert opened.execute_script("return getComputedStyle(document.activeElement).outlineStyle") == "solid"


@pytest.mark.parametrize(
    ("name", "value", "count"),
    [("op", "softmax", 21), ("dtype", "float32", 20), ("device", "Test CPU", 8), ("direction", "backward", 20)],
)
def test_a_filter_hides_what_is_of_another_kind_in_tables_and_charts(opened, name, value, count):
    choose(opened, name, value)
    assert len(column(opened, "op")) == count
    assert one(opened, "#shown").text == f"{count} of 41 measurements"
    for selector in ("#speed-table tbody tr", ".points circle"):
        assert visible(opened, selector, name) == {value}
    opened.execute_script("for (const found of document.querySelectorAll('details')) found.open = true")
    for selector in ("table.bars", ".history tbody tr"):
        assert visible(opened, selector, name) <= {value}
    one(opened, "form button").click()
    assert len(column(opened, "op")) == 41


def test_peers_can_be_left_out_and_words_found(opened):
    one(opened, "input[name=peers]").click()
    assert set(column(opened, "backend")) == {"cutile", "torch"}
    one(opened, "input[name=find]").send_keys("cutile SOFTMAX")
    assert set(column(opened, "backend")) == {"cutile"}
    assert set(column(opened, "op")) == {"softmax"}
    one(opened, "input[name=find]").send_keys(" nothing")
    assert column(opened, "op") == []
    assert one(opened, "#nothing").is_displayed()


def test_the_address_keeps_what_was_chosen(opened, address):
    from selenium.webdriver.support.ui import WebDriverWait

    choose(opened, "op", "softmax")
    one(opened, "th[data-key=rate] button").click()
    kept = opened.current_url
    assert kept == f"{address}#?op=softmax&sort=rate-descending"
    opened.back()
    WebDriverWait(opened, 10).until(lambda _: opened.find_elements("css selector", "th[aria-sort]") == [])
    assert set(column(opened, "op")) == {"softmax"}
    opened.back()
    WebDriverWait(opened, 10).until(lambda _: set(column(opened, "op")) == set(OPS))
    opened.get("about:blank")
    opened.get(kept)
    assert set(column(opened, "op")) == {"softmax"}
    assert numbers(opened, "rate")[0] == 2000.0
    one(opened, "nav a[href='#roofline']").click()
    assert set(column(opened, "op")) == {"softmax"}
    opened.get(f"{address}#?op=unheard_of&sort=nonsense")
    assert len(column(opened, "op")) == 41


def test_a_phone_scrolls_tables_but_not_the_page(opened):
    opened.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True}
    )
    opened.execute_script("for (const found of document.querySelectorAll('details')) found.open = true")
    assert opened.execute_script("return [innerWidth, document.documentElement.scrollWidth]") == [360, 360]
    frame = one(opened, ".scroll.tall")
    assert opened.execute_script("return arguments[0].scrollWidth - arguments[0].clientWidth", frame) > 100
    right = "return Math.max(...[...document.querySelectorAll('h2, p, label, summary, svg.roofline, dl')]"
    assert opened.execute_script(f"{right}.map((found) => found.getBoundingClientRect().right))") <= 360


def luminance(colour):
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_schemes_can_be_read(opened, scheme):
    opened.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    colour = "const found = getComputedStyle(document.querySelector(arguments[0])); return found[arguments[1]]"
    page_colour = luminance(opened.execute_script(colour, "body", "backgroundColor"))
    frame = luminance(opened.execute_script(colour, ".scroll", "backgroundColor"))
    assert (page_colour < 0.05) == (frame < 0.05) == (scheme == "dark")
    for selector in ("body", ".lead", "nav a", "td small", ".faster", ".slower", ".note:not(:empty)", "label", "dt"):
        text = luminance(opened.execute_script(colour, selector, "color"))
        for behind in (page_colour, frame):
            assert (max(text, behind) + 0.05) / (min(text, behind) + 0.05) >= 4.5, selector


def test_the_skip_link_comes_first_and_leads_to_the_content(opened):
    from selenium.webdriver.common.keys import Keys

    one(opened, "body").send_keys(Keys.TAB)
    assert opened.switch_to.active_element.text == "Skip to content"
    opened.switch_to.active_element.send_keys(Keys.ENTER)
    assert opened.switch_to.active_element.tag_name == "main"


def test_without_scripts_everything_is_there(opened, address):
    opened.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        opened.get("about:blank")
        opened.get(address)
        assert not one(opened, "#filters").is_displayed()
        assert len(opened.find_elements("css selector", "#speed-table tbody tr:not([hidden])")) == 41
    finally:
        opened.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_hostile_names_are_text(opened, tmp_path):
    wild = dict.fromkeys(("op", "case", "dtype"), HOSTILE)
    rows = [row(HOSTILE, 0.2, **wild), row("eager", 0.3, peer=True, **wild), row("x", None, error=HOSTILE, **wild)]
    opened.get(page(tmp_path, run(rows, versions={HOSTILE: HOSTILE}, commit=HOSTILE)))
    choose(opened, "op", HOSTILE)
    assert opened.title == "TileGym report"
    assert column(opened, "case") == [HOSTILE] * 3
    assert opened.find_elements("css selector", "img") == []
