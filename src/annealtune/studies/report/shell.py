"""What every page shares: its frame, its look, its script. A page loads nothing from outside.

`templates/base.html` has the frame and the blocks that a page fills, `macros.html` tables, facts,
figures and what can be copied, `report.css` the look on light and dark, `report.js` sorting,
copying and the values of the points in a figure.
"""

from typing import Any

import jinja2

import annealtune

from .citation import citation


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


def render_template(name: str, **values: Any) -> str:
    """Return a page as HTML.

    Args:
        name: of a template of this package that extends ``base.html``.
        values: what it needs; version and citation are known to all of them.
    """
    known = {"version": annealtune.__version__, "citation": citation()}
    return environment().get_template(name).render(**known, **values)
