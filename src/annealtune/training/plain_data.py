"""JSON and TOML from anywhere: read as plain data, or refused as one kind of error.

What is read here was written by a run, by hand, or by somebody who means harm. Whatever it is, the
rest of the program gets tables and lists of a small depth, numbers that a computer has, and text
that a file can hold.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

DEPTH = 32
"""Tables and lists within each other; ours are 8 deep at most."""
TOML_SIZE = 4 << 20
"""Letters of a TOML file; the plan of a study of 10,000 seeds has 100,000."""
_LONGEST_KEY = 200
"""Parts of a dotted key: tomllib takes the square of their number in time."""

Check = Callable[[dict[str, Any]], None]
"""Raises ValueError for a table that is not of the form that it must have."""


def parse_json(content: bytes) -> Any:
    """Return what JSON text says.

    Raises:
        ValueError: if it is not JSON, or not the plain data described above.

    Example:
        >>> parse_json(b'{"epoch": 1, "loss": null}')
        {'epoch': 1, 'loss': None}
    """
    try:
        value = json.loads(content)
    except RecursionError:
        raise ValueError(f"it is nested more than {DEPTH} deep") from None
    _check_plain(value)
    if not _is_finite(value):
        raise ValueError("it has NaN or infinity, which JSON does not know")
    return value


def parse_toml(text: str) -> dict[str, Any]:
    r"""Return what TOML text says.

    Raises:
        ValueError: if it is not TOML, or not the plain data described above.

    Example:
        >>> parse_toml("[sgd]\nlr = 0.1")
        {'sgd': {'lr': 0.1}}
    """
    if len(text) > TOML_SIZE:
        raise ValueError(f"it has {len(text):,} letters, {TOML_SIZE:,} are the most")
    # Between these marks stands one key at the most; numbers in a list have one dot each.
    if max(part.count(".") for part in re.split(r"[=,{\n]", text)) > _LONGEST_KEY:
        raise ValueError(f"it has a key of more than {_LONGEST_KEY} parts")
    try:
        value = tomllib.loads(text)
    except RecursionError:
        raise ValueError(f"it is nested more than {DEPTH} deep") from None
    _check_plain(value)
    return value


def read_object(path: Path, check: Check | None = None) -> dict[str, Any]:
    """Return the table in a JSON file.

    Args:
        path: of the file.
        check: refuses one of another form.

    Raises:
        ValueError: if it is damaged, saying how.
        OSError: if it cannot be read.
    """
    return _checked(parse_json(read_regular(path)), check)


def read_lines(
    path: Path, check: Check | None = None, size: int | None = None
) -> list[dict[str, Any]]:
    """Return the tables in a file of JSON lines; one without its end is still being written.

    Args:
        path: of the file.
        check: of the form of each.
        size: how many bytes count; by default all.

    Raises:
        ValueError: if a line is damaged, with its number.
        OSError: if it cannot be read.
    """
    records = []
    for number, line in enumerate(read_regular(path)[:size].split(b"\n")[:-1], 1):
        try:
            records.append(_checked(parse_json(line), check))
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
    return records


def read_regular(path: Path) -> bytes:
    """Return the content of a file; a pipe or a device, which may never end, is refused.

    Raises:
        OSError: if it cannot be read, or is no file.
    """
    with open_regular(path) as file:
        return file.read()


def open_regular(path: Path) -> BinaryIO:
    """Open a file to be read, as `read_regular` reads it.

    Raises:
        OSError: if it cannot be read, or is no file.
    """
    if path.exists() and not path.is_file():
        raise OSError(None, "is not a file", str(path))
    return path.open("rb")


def _checked(value: Any, check: Check | None) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("it must hold a JSON object")
    if check is not None:
        check(value)
    return value


def _check_plain(value: Any) -> None:
    """Refuse what is too deep, numbers of more than 64 bits, and text that no file can hold."""
    level = [value]
    for _ in range(DEPTH):
        below: list[Any] = []
        for each in level:
            if isinstance(each, str):
                _check_text(each)
            elif isinstance(each, int):
                if not -(2**63) <= each < 2**63:
                    raise ValueError("it has a whole number of more than 64 bits")
            elif isinstance(each, dict):
                below.extend(each)
                below.extend(each.values())
            elif isinstance(each, list):
                below.extend(each)
        if not below:
            return
        level = below
    raise ValueError(f"it is nested more than {DEPTH} deep")


def _check_text(text: str) -> None:
    if "\0" in text:
        raise ValueError("it has text with a NUL")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("it has text with half a character") from None


def _is_finite(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    if isinstance(value, list):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)
