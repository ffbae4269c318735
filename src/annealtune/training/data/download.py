"""Published files: what their digest must be, and how one is fetched."""

import hashlib
import os
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

from filelock import FileLock
from rich.console import Console
from rich.progress import Progress

from annealtune.errors import DataError
from annealtune.training.factories import in_one_line

CHUNK = 1 << 20
TIMEOUT_SECONDS = 30


@dataclass(frozen=True)
class PublishedFile:
    """One file of a data set, as its authors publish it."""

    name: str
    digest: str
    """Such as ``sha256:3aed...``."""
    url: str = ""
    """Where it can be fetched; empty if it comes inside an archive."""
    size: int = 0
    """In bytes; 0 if it is never fetched."""

    def read(self, path: Path) -> bytes:
        """Return a file's content.

        Raises:
            DataError: If it cannot be read, or is not what was published.
        """
        try:
            content = path.read_bytes()
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror}") from error
        self.check(hashlib.sha256(content).hexdigest(), str(path))
        return content

    def check(
        self, found: str, place: str, remedy: str = "delete it and run again with --download"
    ) -> None:
        """Compare the SHA-256 of what is there with the published one.

        Raises:
            DataError: If they differ, naming the place and what to do.
        """
        if f"sha256:{found}" != self.digest:
            raise DataError(
                f"{place} is damaged or not the published {self.name}: expected {self.digest}, "
                f"found sha256:{found}; {remedy}"
            )


def not_found(data: str, looked_for: list[Path], size: int) -> DataError:
    """Return the error for a data set that is not there but could be downloaded."""
    return DataError(
        f"data = {data!r}: not found; looked for {', '.join(map(str, looked_for))}. Run "
        f"`annealtune train --data {data} --download` ({size / 1e6:.0f} MB), or name the folder "
        "that holds it with --data-dir DIR"
    )


def fetch(file: PublishedFile, folder: Path) -> Path:
    """Download one file into a folder, unless it is there, and return its path.

    A terminal shows a bar. Only a whole file with the right digest gets its name, in one atomic
    step; until then it is ``NAME.part``. Processes that want the same file wait for each other.

    Raises:
        DataError: If the transfer fails or stops early, the digest is wrong, or the folder cannot
            be written.
    """
    target = folder / file.name
    part = folder / f"{file.name}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f".{file.name}.lock"):
            if not target.exists():
                file.check(_transfer(file, part), file.url, "run the same command again")
                part.replace(target)
    except (OSError, HTTPException) as error:  # URLError and timeouts are OSErrors
        if isinstance(error, HTTPError):
            error.close()
        raise DataError(
            f"downloading {file.url} to {target} failed: {in_one_line(error)}; run the same "
            "command again"
        ) from error
    return target


def _transfer(file: PublishedFile, part: Path) -> str:
    """Write what the server sends, a terminal watching; return its SHA-256."""
    found, there = hashlib.sha256(), 0
    console = Console(stderr=True)
    with (
        urlopen(file.url, timeout=TIMEOUT_SECONDS) as response,
        part.open("wb") as stream,
        Progress(console=console, disable=not console.is_terminal) as bars,
    ):
        bar = bars.add_task(file.name, total=file.size)
        # One byte more than published at most: too much is as wrong as too little.
        while chunk := response.read(min(CHUNK, file.size + 1 - there)):
            there += stream.write(chunk)
            found.update(chunk)
            bars.update(bar, completed=there)
        stream.flush()
        os.fsync(stream.fileno())
    return found.hexdigest()
