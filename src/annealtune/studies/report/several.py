"""One page of several studies: what each came to, side by side, and the way to its own page."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from annealtune.errors import ConfigError
from annealtune.studies.records import Study
from annealtune.studies.statistics.measures import main_measure
from annealtune.studies.statistics.summaries import statistics_of

from .figures.panels import Drawing, render
from .findings import findings
from .hero import hero_of
from .joint_table import joint_table
from .page import subtitle
from .shell import render_template
from .writing import make_directory, write_file, write_report


class Card(NamedTuple):
    """What the page shows of one study.

    Attributes:
        name: of the study.
        subtitle: what it is about, in one line.
        link: to its own page.
        headline: what came out.
        drawing: its first figure; None if there is nothing to show yet.
        caption: what is seen in it.
    """

    name: str
    subtitle: str
    link: str
    headline: str
    drawing: Drawing | None
    caption: str


def write_overview(studies: Sequence[Study], out: Path, *, figures: bool = True) -> Path:
    """Write one page about several studies, and the report of each in a directory beside it.

    Args:
        studies: at least one, of `read_study`, finished or not.
        out: the directory to write to: ``index.html``, and for each study a directory with its
            name, as `write_report` writes it.
        figures: whether the reports of the studies hold their figures as files too.

    Returns:
        The path of the page.

    Raises:
        ConfigError: if there is no study, or ``out`` is not a directory.
        RunError: if the disk is full or not writable.
    """
    if not studies:
        raise ConfigError("report: must be given at least one study, got none")
    out = Path(out)
    make_directory(out)
    cards = []
    for folder, study in zip(_folders(studies), studies, strict=True):
        write_report(study, out / folder, figures=figures)
        cards.append(_card(study, folder))
    page = render_template("overview.html", cards=cards, table=joint_table(studies))
    write_file(out / "index.html", page.encode())
    return out / "index.html"


def _card(study: Study, folder: str) -> Card:
    measure = main_measure(study)
    found = statistics_of(study, measure)
    statistics = {measure: found} if found.ranking else {}
    hero = hero_of(study, statistics)
    link = f"{folder}/index.html"
    if hero is None:
        headline = findings(study, statistics)[0].text
        return Card(study.name, subtitle(study), link, headline, None, "")
    # Two of them stand beside each other: the narrow form is the one that fits.
    panel = hero.panel._replace(name=f"{folder}-hero", is_wide=False)
    drawing = render(panel, files=False)
    return Card(study.name, subtitle(study), link, hero.headline, drawing, hero.caption)


def _folders(studies: Sequence[Study]) -> list[str]:
    """Return a name for the directory of each study: its own, made fit for a file and unique."""
    found: list[str] = []
    for study in studies:
        letters = [c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in study.name]
        name = "".join(letters)[:60].strip("-").lower() or "study"
        tries = [name, *(f"{name}-{n}" for n in range(2, len(studies) + 2))]
        found.append(next(each for each in tries if each not in found))
    return found
