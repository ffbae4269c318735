"""A headless Chromium that opens pages and tells what a reader would see.

It is driven through its DevTools pipe, so that nothing but the browser itself has to be there.

Example:
    with Browser() as browser:
        page = browser.open(Path("report/index.html"), width=390, dark=True)
        page.screenshot(Path("page.png"))
        assert not page.complaints
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
_PATIENCE = 60.0


def find() -> str | None:
    """Return the path of a Chromium, None if there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """A browser for as long as the context lasts.

    Raises:
        FileNotFoundError: if there is no Chromium on this machine.
    """

    def __init__(self) -> None:
        program = find()
        if program is None:
            raise FileNotFoundError(f"no browser: one of {', '.join(NAMES)} must be installed")
        self._numbers = itertools.count(1)
        self._buffer = b""
        self._events: list[dict[str, Any]] = []
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        # Chromium reads commands from descriptor 3 and writes to 4.
        ours_in, theirs_out = os.pipe()
        theirs_in, self._out = os.pipe()
        self._in = ours_in
        command = [program, *_FLAGS, f"--user-data-dir={self._profile.name}"]
        shell = ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "bash", *command]
        self._process = subprocess.Popen(
            shell,
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(_PATIENCE)
        os.close(self._in)
        os.close(self._out)
        self._profile.cleanup()

    def open(
        self, address: Path | str, *, width: int = 1280, height: int = 900, dark: bool = False
    ) -> Page:
        """Open a page and wait until it is loaded.

        Args:
            address: a file, or an address that begins with http.
            width: in pixels, of the window.
            height: in pixels, of the window.
            dark: whether the reader prefers dark pages.
        """
        url = address if isinstance(address, str) else address.resolve().as_uri()
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        attached = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})
        page = Page(self, url, target, attached["sessionId"])
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        page.call("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.call("Emulation.setEmulatedMedia", {"features": [scheme]})
        self._events.clear()
        page.call("Page.navigate", {"url": url})
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._receive()
        page.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))")
        page.note(self._events)
        return page

    def call(
        self, method: str, parameters: dict[str, Any] | None = None, session: str | None = None
    ) -> dict[str, Any]:
        """Send a command of the DevTools protocol and return its result."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters or {}}
        if session is not None:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result

    def _receive(self) -> dict[str, Any]:
        limit = time.monotonic() + _PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, limit - time.monotonic()))
            data = os.read(self._in, 1 << 20) if ready else b""
            if not data:
                raise TimeoutError("the browser has not answered, or has ended")
            self._buffer += data
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        if "method" in message:
            self._events.append(message)
        return message


@dataclass
class Page:
    """A page that is open.

    Attributes:
        complaints: what the console says: errors, warnings, exceptions.
        requests: addresses that were asked for besides the page itself.
    """

    browser: Browser
    url: str
    target: str
    session: str
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def call(self, method: str, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a command of the DevTools protocol to this page."""
        return self.browser.call(method, parameters, self.session)

    def note(self, events: list[dict[str, Any]]) -> None:
        """Take note of what happened while the page was loaded."""
        for event in events:
            method, given = event["method"], event["params"]
            if method == "Runtime.exceptionThrown":
                self.complaints.append(str(given["exceptionDetails"].get("text")))
            elif method == "Log.entryAdded":
                self.complaints.append(given["entry"]["text"])
            elif method == "Runtime.consoleAPICalled" and given["type"] in ("error", "warning"):
                self.complaints.append(str([each.get("value") for each in given["args"]]))
            elif method == "Network.requestWillBeSent":
                address = given["request"]["url"]
                if address != self.url and not address.startswith("data:"):
                    self.requests.append(address)

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript."""
        given = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        answer = self.call("Runtime.evaluate", given)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']['text']}")
        return answer["result"].get("value")

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the whole page; wider than the window means that it overflows."""
        width, height = self.evaluate(
            "[document.documentElement.scrollWidth, document.documentElement.scrollHeight]"
        )
        return width, height

    def screenshot(self, path: Path, *, height: int | None = None, whole: bool = False) -> None:
        """Write what is seen as PNG.

        Args:
            path: of the picture.
            height: in pixels from the top; by default that of the window.
            whole: the whole page.
        """
        given: dict[str, Any] = {"format": "png", "captureBeyondViewport": True}
        if whole or height is not None:
            wide, high = self.size
            clip = {"x": 0, "y": 0, "width": wide, "height": height or high, "scale": 1}
            given["clip"] = clip
        picture = base64.b64decode(self.call("Page.captureScreenshot", given)["data"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture)

    def close(self) -> None:
        """Close the page; the browser stays."""
        self.browser.call("Target.closeTarget", {"targetId": self.target})
