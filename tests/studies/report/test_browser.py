"""The page in a real browser, by the WebDriver protocol: no error, no request, nothing cut off."""

import base64
import json
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from annealtune.studies.records import Study
from annealtune.studies.report.writing import write_report

CHROMIUM, DRIVER = (
    next((found for name in names if (found := shutil.which(name))), None)
    for names in (("chromium", "chromium-browser", "google-chrome"), ("chromedriver",))
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMIUM is None or DRIVER is None, reason="needs chromium and chromedriver on the PATH"
    ),
]
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
WIDTHS = (1280, 390)


class Browser:
    """A headless Chromium behind a running chromedriver."""

    def __init__(self, address: str, profile: Path) -> None:
        self.address = address
        options = {"binary": CHROMIUM, "args": [*FLAGS, f"--user-data-dir={profile}"]}
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        started = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self.session = f"/session/{started['sessionId']}"

    def open(self, page: Path, width: int, scheme: str) -> None:
        self.cdp(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500},
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.cdp("Emulation.setEmulatedMedia", {"features": features})
        self._ask("POST", f"{self.session}/url", {"url": page.as_uri()})

    def run(self, script: str, *arguments: Any) -> Any:
        body = {"script": script, "args": list(arguments)}
        return self._ask("POST", f"{self.session}/execute/sync", body)

    def log(self, kind: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._ask("POST", f"{self.session}/se/log", {"type": kind})
        return found

    def cdp(self, command: str, parameters: dict[str, Any]) -> Any:
        body = {"cmd": command, "params": parameters}
        return self._ask("POST", f"{self.session}/goog/cdp/execute", body)

    def close(self) -> None:
        self._ask("DELETE", self.session)

    def _ask(self, verb: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, method=verb)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert DRIVER is not None
    log = tmp_path_factory.mktemp("driver") / "log.txt"
    with log.open("w") as output:
        driver = subprocess.Popen([DRIVER, "--port=0"], stdout=output, stderr=subprocess.STDOUT)
    try:
        browser = Browser(_address(log), tmp_path_factory.mktemp("profile"))
        yield browser
        browser.close()
    finally:
        driver.terminate()
        driver.wait(timeout=30)


def _address(log: Path) -> str:
    for _ in range(300):
        found = re.search(r"started successfully on port (\d+)", log.read_text())
        if found:
            return f"http://127.0.0.1:{found[1]}"
        time.sleep(0.1)
    raise AssertionError(f"chromedriver did not start: {log.read_text()}")


@pytest.fixture(scope="module")
def page(study_writer: Callable[..., Study], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every figure, long names, a long reason."""
    long = "a-method-with-quite-a-long-name-that-somebody-chose"
    study = study_writer(
        tmp_path_factory.mktemp("browser") / "study",
        {
            long: {s: {"accuracy": 0.9 + 0.01 * s} for s in range(3)},
            "scheduled-sgd": {0: {}, 1: {}, 2: {"failure": "NoSpacesInThisReason" * 20}},
            "ssa": {s: {"accuracy": 0.3 - 0.05 * s} for s in range(3)},
            "sgd": {0: {}, 1: {"done": 2}, 2: None},
        },
        kinds={long: "sgd-sa"},
        command="annealtune study " + "x" * 300,
    )
    return write_report(study)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_is_whole(browser: Browser, page: Path, width: int, scheme: str) -> None:
    browser.log("browser")
    browser.log("performance")
    browser.open(page, width, scheme)
    assert browser.log("browser") == []
    assert browser.run("return innerWidth") == width
    overflow = browser.run("return document.documentElement.scrollWidth - innerWidth")
    assert overflow <= 0
    assert _requests(browser) == [page.as_uri()]
    sizes = browser.run(
        "return [...document.querySelectorAll('figure svg')].map(svg => {"
        "  const box = svg.getBoundingClientRect();"
        "  return [box.left, box.right, box.height]; })"
    )
    assert len(sizes) == len(list((page.parent / "figures").glob("*.svg"))) == 20
    assert all(0 <= left < right <= width for left, right, _ in sizes)
    assert all(right - left > 250 and height > 150 for left, right, height in sizes)
    background = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") == (scheme == "light")


def test_figures_follow_the_scheme(browser: Browser, page: Path) -> None:
    """Lines and letters have another colour on a dark page, and stand out from it."""
    script = (
        "const look = getComputedStyle(document.querySelector(arguments[0]));"
        "return look[arguments[1]]"
    )
    seen = {}
    for scheme in ("light", "dark"):
        browser.open(page, 1280, scheme)
        line = "#panel-figure-3-4-validation-loss path[style*='series-1']"
        seen[scheme] = [
            browser.run(script, line, "stroke"),
            browser.run(script, "#panel-figure-3-4-validation-loss text", "fill"),
            browser.run(script, "body", "backgroundColor"),
        ]
    assert all(a != b for a, b in zip(seen["light"], seen["dark"], strict=True))
    for line, letters, background in seen.values():
        assert _contrast(line, background) > 3
        assert _contrast(letters, background) > 7


def test_wide_tables_scroll_by_themselves(browser: Browser, page: Path) -> None:
    browser.open(page, 390, "light")
    inner, outer = browser.run(
        "const box = document.querySelector('#table-1 .scroll');"
        "return [box.scrollWidth, box.clientWidth]"
    )
    assert inner > outer


def test_a_click_sorts_a_table(browser: Browser, page: Path) -> None:
    browser.open(page, 1280, "light")
    click = "document.querySelectorAll('#table-1 .titles button')[2].click();"
    read = (
        "return [...document.querySelectorAll('#table-1 tbody tr')]"
        ".map(row => row.cells[2].dataset.order)"
    )
    for direction in (1, -1):
        values = browser.run(click + read)
        known = [direction * float(value) for value in values if value]
        assert known == sorted(known)
        assert values[len(known) :] == [""] * 3  # runs without a result come last
    assert browser.log("browser") == []


def test_a_screenshot_is_not_blank(browser: Browser, page: Path, tmp_path: Path) -> None:
    browser.open(page, 390, "dark")
    shot = browser.cdp("Page.captureScreenshot", {"format": "png"})
    assert len(base64.b64decode(shot["data"])) > 10_000


def _requests(browser: Browser) -> list[str]:
    """Every address that was asked for since the log was read last, but for data in the page."""
    events = [json.loads(entry["message"])["message"] for entry in browser.log("performance")]
    asked = [
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    ]
    return [address for address in asked if not address.startswith("data:")]


def _contrast(first: str, second: str) -> float:
    """The contrast ratio of two colours as WCAG defines it."""
    lights = []
    for colour in (first, second):
        shares = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        linear = [s / 12.92 if s <= 0.03928 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
        lights.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return (max(lights) + 0.05) / (min(lights) + 0.05)
