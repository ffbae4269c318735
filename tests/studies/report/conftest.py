"""A headless Chromium, driven through its own pipe by the DevTools protocol."""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(
    (
        found
        for n in ("chromium", "chromium-browser", "google-chrome")
        if (found := shutil.which(n))
    ),
    None,
)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


class Browser:
    """A page in a headless browser: its errors, its requests, what a script in it returns.

    Attributes:
        errors: what the console said since the last `open`.
        requests: every address asked for since the last `open`, but for data in the page.
    """

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None
        # Chromium reads commands from its file 3 and writes answers to its file 4; ours are moved
        # out of the way of these numbers.
        (read_here, write_there), (read_there, write_here) = os.pipe(), os.pipe()
        theirs = [
            fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, 10) for each in (read_there, write_there)
        ]
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        self._process = os.posix_spawn(
            CHROMIUM,
            [CHROMIUM, *FLAGS, f"--user-data-dir={profile}"],
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

    def open(self, page: Path, width: int, scheme: str, height: int = 900) -> None:
        """Load a page in a window of some width, ``"light"`` or ``"dark"``."""
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
        self.ask("Page.navigate", url=page.as_uri())
        while not self._loaded:
            self._hear()

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

    def ask(self, method: str, **parameters: Any) -> Any:
        """Send a command and wait for its answer."""
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

    def close(self) -> None:
        self._session = ""
        self.ask("Browser.close")
        os.waitpid(self._process, 0)
        self._input.close()
        self._output.close()

    def _hear(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            piece = os.read(self._output.fileno(), 1 << 20)
            assert piece, "the browser has ended"
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


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser for all tests; they are skipped where there is none."""
    if CHROMIUM is None:
        pytest.skip("needs chromium on the PATH")
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()
