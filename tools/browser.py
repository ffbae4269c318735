"""A headless Chromium that opens pages and tells what a reader would see.

It is driven through its DevTools pipe, so that nothing but the browser itself has to be there.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import tempfile
from pathlib import Path
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM = next((path for name in _NAMES if (path := shutil.which(name))), None)
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
_PATIENCE = 120  # seconds


class Browser:
    """One page after the other in a headless browser, for as long as the context lasts.

    Attributes:
        errors: what the console said since the last `open`.
        requests: every address asked for since the last `open`, but for data in the page.

    Raises:
        FileNotFoundError: if there is no Chromium on this machine.

    Example:
        with Browser() as browser:
            browser.open(Path("report/index.html"), 390, "dark")
            browser.screenshot(Path("page.png"))
    """

    def __init__(self) -> None:
        if CHROMIUM is None:
            raise FileNotFoundError(f"no browser: one of {', '.join(_NAMES)} must be installed")
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        # Chromium reads commands from its file 3 and writes answers to its file 4; ours are moved
        # out of the way of these numbers.
        (read_here, write_there), (read_there, write_here) = os.pipe(), os.pipe()
        theirs = [
            fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, 10) for each in (read_there, write_there)
        ]
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        self._process = os.posix_spawn(
            CHROMIUM,
            [CHROMIUM, *_FLAGS, f"--user-data-dir={self._profile.name}"],
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, nowhere, 2),
                *((os.POSIX_SPAWN_DUP2, each, place) for place, each in enumerate(theirs, 3)),
            ],
        )
        for each in (*theirs, read_there, write_there, nowhere):
            os.close(each)
        self._input, self._output = os.fdopen(write_here, "wb"), os.fdopen(read_here, "rb")
        self._asked, self._rest, self._session = 0, b"", ""
        self._loaded = False
        self.errors: list[str] = []
        self.requests: list[str] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self._session = ""
        self.ask("Browser.close")
        os.waitpid(self._process, 0)
        self._input.close()
        self._output.close()
        self._profile.cleanup()

    def open(self, page: Path | str, width: int, scheme: str, height: int = 900) -> None:
        """Load a page in a window of some width, ``"light"`` or ``"dark"``.

        Args:
            page: a file, or an address.
            width: of the window, in pixels; a narrow one is a phone's.
            scheme: which of the two the reader prefers.
            height: of the window, in pixels.
        """
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.ask("Emulation.setEmulatedMedia", features=features)
        self.errors, self.requests, self._loaded = [], [], False
        self.ask("Page.navigate", url=page if isinstance(page, str) else page.resolve().as_uri())
        while not self._loaded:
            self._hear()
        # What a script says or asks for at once is heard before this is answered.
        self.run("return new Promise(done => setTimeout(done, 30))")

    def run(self, script: str) -> Any:
        """Return what the body of a function returns in the page."""
        found = self.ask(
            "Runtime.evaluate",
            expression=f"(() => {{{script}}})()",
            returnByValue=True,
            awaitPromise=True,
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def size(self) -> tuple[int, int]:
        """Return width and height of the whole page; wider than the window, it overflows."""
        width, height = self.run(
            "const all = document.documentElement; return [all.scrollWidth, all.scrollHeight]"
        )
        return width, height

    def screenshot(self, path: Path, height: int | None = None, top: int = 0) -> None:
        """Write the page as PNG, from ``top`` on: ``height`` pixels of it, or all."""
        width, whole = self.size()
        clip = {"x": 0, "y": top, "width": width, "height": height or whole - top, "scale": 1}
        shot = self.ask(
            "Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def ask(self, method: str, **parameters: Any) -> Any:
        """Send a command of the DevTools protocol and wait for its answer."""
        self._asked += 1
        message: dict[str, Any] = {"id": self._asked, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._input.write(json.dumps(message).encode() + b"\0")
        self._input.flush()
        while (answer := self._hear()).get("id") != self._asked:
            pass
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def _hear(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._output], [], [], _PATIENCE)
            piece = os.read(self._output.fileno(), 1 << 20) if ready else b""
            assert piece, "the browser has ended, or does not answer"
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        happened, facts = message.get("method"), message.get("params", {})
        if happened == "Page.loadEventFired":
            self._loaded = True
        elif happened == "Log.entryAdded":
            self.errors.append(facts["entry"]["text"])
        elif happened == "Runtime.exceptionThrown":
            self.errors.append(str(facts["exceptionDetails"]))
        elif happened == "Runtime.consoleAPICalled":
            self.errors.append(str(facts["args"]))
        elif happened == "Network.requestWillBeSent":
            address = facts["request"]["url"]
            if not address.startswith("data:"):
                self.requests.append(address)
        return message
