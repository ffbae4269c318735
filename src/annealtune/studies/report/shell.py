"""What every page shares: its sections, its look, its script, and how its files are written.

`templates/page.html` has the frame, `report.css` the look on light and dark, `report.js` sorting,
copying and the values of the points in a figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jinja2

import annealtune
from annealtune.errors import ConfigError, RunError
from annealtune.training.storage import flat
from annealtune.training.storage.files import write_atomically

from .figures.panels import Drawing, Panel, render
from .tables import Table

CITATION = f"""\
@software{{annealtune,
  title = {{annealtune}},
  author = {{{{The annealtune authors}}}},
  version = {{{annealtune.__version__}}},
  url = {{https://github.com/annealtune/annealtune}}
}}

@article{{fischetti2019embedded,
  title = {{Embedded hyper-parameter tuning by Simulated Annealing}},
  author = {{Fischetti, Matteo and Stringher, Matteo}},
  year = {{2019}},
  eprint = {{1906.01504}},
  archivePrefix = {{arXiv}}
}}"""


class Shown(NamedTuple):
    """A figure on a page.

    Attributes:
        drawing: None if there is nothing to draw.
        caption: one line.
        title: a heading above it; may be empty.
        link: where the heading leads to; may be empty.
    """

    drawing: Drawing | None
    caption: str
    title: str = ""
    link: str = ""


class Section(NamedTuple):
    """A part of a page. What is empty is left out.

    Attributes:
        name: its id; letters, digits and hyphens.
        title: a heading, or what a click opens where it is a fold of another section.
        caption: one line.
        figures: side by side.
        facts: pairs of a name and a value.
        tables: each with a caption.
        code: texts that a button copies.
        links: files beside the page.
        folds: sections that a click opens.
        is_open: whether a fold is open from the start.
    """

    name: str
    title: str
    caption: str = ""
    figures: Sequence[Shown] = ()
    facts: Sequence[tuple[str, str]] = ()
    tables: Sequence[tuple[Table, str]] = ()
    code: Sequence[str] = ()
    links: Sequence[str] = ()
    folds: Sequence[Section] = ()
    is_open: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing but words in it."""
        return not any((self.figures, self.facts, self.tables, self.code, self.folds))


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

    def draw(self, panel: Panel, caption: str = "") -> Shown:
        """Draw a figure; its title is the caption if there is no other one."""
        drawing = render(panel, files=self._with_files)
        if self._with_files:
            self._files[f"figures/{panel.name}.svg"] = drawing.svg
            self._files[f"figures/{panel.name}.pdf"] = drawing.pdf
        return Shown(drawing, caption or panel.title)

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
        text = (
            environment()
            .get_template("page.html")
            .render(
                kind=kind,
                title=title,
                subtitle=subtitle,
                sections=[section for section in sections if not section.is_empty],
                version=annealtune.__version__,
            )
        )
        contents = {**self._files, **{name: each.encode() for name, each in (files or {}).items()}}
        for name, content in {**contents, "index.html": text.encode()}.items():
            _write_file(self._directory / name, content)
        return self._directory / "index.html"


def environment(*loaders: jinja2.BaseLoader) -> jinja2.Environment:
    """Return the environment that pages are rendered in: what is written into them is escaped.

    Args:
        loaders: where else to look for templates, before those of this package.
    """
    return jinja2.Environment(
        loader=jinja2.ChoiceLoader([*loaders, jinja2.PackageLoader("annealtune.studies.report")]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def facts_of(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return options as they are shown: tables in one level, keys joined by a dot."""
    return [(key, shown(value)) for key, value in flat(values).items()]


def shown(value: Any) -> str:
    """Return the value of an option as a page shows it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(shown, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _write_file(path: Path, content: bytes) -> None:
    """Write one file, whole or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
    except (FileExistsError, NotADirectoryError):
        raise ConfigError(
            f"{path.parent}: cannot be made: a file is in the way; choose another --out"
        ) from None
    except (OSError, RunError) as error:
        reason = getattr(error.__cause__ or error, "strerror", None) or error
        raise RunError(
            f"{path}: cannot be written: {reason}; make room or choose another --out"
        ) from error
