"""What every page shares: its sections, its look, its script, and how its files are written.

`templates/frame.html` is around every page, `report.css` has the look on light and dark,
`report.js` sorting, copying and the values of the points in a figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jinja2

import annealtune
from annealtune.errors import ConfigError, RunError
from annealtune.training.config import flat
from annealtune.training.storage.files import write_atomically

from .figures.panels import Drawing, Panel, render
from .tables import Table, option


class Section(NamedTuple):
    """A part of a page. What is empty is left out.

    Attributes:
        name: its id; letters, digits and hyphens.
        title: a heading, or what a click opens where it is a fold of another section.
        caption: one line.
        figures: side by side.
        facts: pairs of a name and a value.
        tables: each with a caption.
        links: files beside the page.
        command: a text that a button copies.
        folds: sections that a click opens.
        is_open: whether a fold is open from the start.
    """

    name: str
    title: str
    caption: str = ""
    figures: Sequence[Drawing] = ()
    facts: Sequence[tuple[str, str]] = ()
    tables: Sequence[tuple[Table, str]] = ()
    links: Sequence[str] = ()
    command: str = ""
    folds: Sequence[Section] = ()
    is_open: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing but words in it."""
        return not any(self[3:9])


class Page:
    """Draws the figures of a page and writes it with its files.

    Args:
        directory: is made if it is not there. What an earlier page left is replaced file by file,
            the page last.
        with_files: whether every figure is also written as SVG and PDF, with links to them. The
            page itself holds all figures either way.
    """

    def __init__(self, directory: Path, *, with_files: bool) -> None:
        self._directory = Path(directory)
        self._with_files = with_files
        self._files: dict[str, bytes] = {}

    def draw(self, panels: Sequence[Panel]) -> list[Drawing]:
        """Draw figures."""
        drawings = [render(panel, files=self._with_files) for panel in panels]
        for each in drawings if self._with_files else ():
            self._files[f"figures/{each.panel.name}.svg"] = each.svg
            self._files[f"figures/{each.panel.name}.pdf"] = each.pdf
        return drawings

    def write(
        self,
        kind: str,
        title: str,
        subtitle: str,
        sections: Sequence[Section],
        *,
        files: Mapping[str, str] | None = None,
    ) -> Path:
        """Write all files; return the path of the page.

        Args:
            kind: what the page is about.
            title: its heading.
            subtitle: one line under it.
            sections: in order; empty ones are left out.
            files: further ones, by name.

        Raises:
            ConfigError: if the directory is a file.
            RunError: if the disk is full or not writable.
        """
        text = fill_template(
            "page.html",
            kind=kind,
            title=title,
            subtitle=subtitle,
            sections=[section for section in sections if not section.is_empty],
        )
        contents = {**self._files, **{name: each.encode() for name, each in (files or {}).items()}}
        for name, content in {**contents, "index.html": text.encode()}.items():
            _write_file(self._directory / name, content)
        return self._directory / "index.html"


def fill_template(name: str, folder: Path | None = None, **values: Any) -> str:
    """Return a template with values in it, which are escaped.

    Args:
        name: of the template.
        folder: where to look for it, before those of this package.
        values: what it asks for, besides the version.
    """
    loaders = [jinja2.FileSystemLoader(folder)] if folder else []
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([*loaders, jinja2.PackageLoader("annealtune.studies.report")]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(name).render(version=annealtune.__version__, **values)


def facts_of(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return options as they are shown: tables in one level, keys joined by a dot."""
    return [(key, option(value)) for key, value in flat(values).items()]


def _write_file(path: Path, content: bytes) -> None:
    """Write one file, whole or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
    except (OSError, RunError) as error:
        is_in_the_way = isinstance(error, FileExistsError | NotADirectoryError)
        reason = getattr(error.__cause__ or error, "strerror", None) or error
        raise (ConfigError if is_in_the_way else RunError)(
            f"{path}: cannot be written: {reason}; make room or choose another --out"
        ) from error
