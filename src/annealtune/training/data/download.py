"""Fetching a published file: resumed where it stopped, in place only when whole and right."""

import hashlib
import os
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import BinaryIO
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from filelock import FileLock

from annealtune.errors import DataError
from annealtune.training.factories import in_one_line
from annealtune.training.storage.files import force_to_disk

from .published import PublishedFile

ShowBytes = Callable[[str, int, int], None]
"""Called with a file's name, the bytes that are there and the bytes there will be."""

CHUNK = 1 << 20
TIMEOUT_SECONDS = 30


def fetch(file: PublishedFile, folder: Path, progress: ShowBytes | None = None) -> Path:
    """Download one file into a folder, unless it is there, and return its path.

    What arrives is kept in ``NAME.part``; a later call continues from there if the server allows
    it. Only a whole file with the right digest gets its name, in one atomic step. Processes that
    want the same file wait for each other.

    Raises:
        DataError: If the transfer fails or stops early (what arrived is kept), the digest is wrong
            (what arrived is deleted), or the folder cannot be written.
    """
    target = folder / file.name
    part = folder / f"{file.name}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f".{file.name}.lock"):
            if not target.exists():
                _transfer(file, part, progress)
                _put_in_place(file, part, target)
    except (OSError, HTTPException) as error:  # URLError and timeouts are OSErrors
        raise DataError(
            f"downloading {file.url} to {target} failed: {in_one_line(error)}; run the "
            "same command again to continue where it stopped"
        ) from error
    return target


def _transfer(file: PublishedFile, part: Path, progress: ShowBytes | None) -> None:
    there = part.stat().st_size if part.exists() else 0
    if there >= file.size > 0:
        return  # whole, or damaged: the digest decides
    rest = _ask_for_rest(file.url, there) if there else None
    with (
        _ask(file.url, {}) if rest is None else rest as response,
        part.open("wb" if rest is None else "ab") as stream,
    ):
        there = _copy(file, response, stream, progress)
    if there < file.size:
        raise DataError(
            f"downloading {file.url} stopped after {there:,} of {file.size:,} bytes; run the same "
            "command again to continue from there"
        )


def _ask_for_rest(url: str, start: int) -> HTTPResponse | None:
    """Ask for a file from a byte on; ``None`` if the server cannot begin there."""
    try:
        response = _ask(url, {"Range": f"bytes={start}-"})
    except HTTPError as error:
        if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return None
        raise
    begins = response.headers.get("Content-Range", "").startswith(f"bytes {start}-")
    if response.status == HTTPStatus.PARTIAL_CONTENT and begins:
        return response
    response.close()
    return None


def _ask(url: str, headers: Mapping[str, str]) -> HTTPResponse:
    try:
        request = Request(url, headers={"Accept-Encoding": "identity", **headers})
        response: HTTPResponse = urlopen(request, timeout=TIMEOUT_SECONDS)
    except HTTPError as error:
        error.close()
        raise
    return response


def _copy(
    file: PublishedFile, response: HTTPResponse, stream: BinaryIO, progress: ShowBytes | None
) -> int:
    """Append the answer to the stream, one byte more than published at most; return its length."""
    there = stream.tell()
    while there <= file.size and (chunk := response.read(min(CHUNK, file.size + 1 - there))):
        stream.write(chunk)
        there += len(chunk)
        if progress is not None:
            progress(file.name, there, file.size)
    stream.flush()
    os.fsync(stream.fileno())
    return there


def _put_in_place(file: PublishedFile, part: Path, target: Path) -> None:
    with part.open("rb") as stream:
        found = hashlib.file_digest(stream, file.algorithm)
    try:
        file.check(found, file.url, "what arrived was deleted; run the same command again")
    except DataError:
        part.unlink()
        raise
    part.replace(target)
    force_to_disk(target.parent)
