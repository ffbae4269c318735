"""An extension of griffe: reads our docstrings as they are written.

Their one example stands under `Example:`, and their few formulas are LaTeX, which the pages show
without loading anything to set it.
"""

import re
from typing import Any

import griffe

BLOCK = re.compile(r"^( *)\.\. math:: (.+(?:\n\1 +.+)*)$", re.MULTILINE)
INLINE = re.compile(r":math:`([^`]+)`")
SYMBOLS = {
    "alpha": "α",
    "bar": "mean ",
    "cdot": "·",
    "epsilon": "ε",
    "dots": "…",
    "le": "≤",
    "min": "min",
    "quad": "&emsp;",
    "subset": "⊂",
}


class OurDocstrings(griffe.Extension):
    """Make of them what griffe and Markdown know."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite a docstring."""
        if obj.docstring is None:
            return
        text = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
        text = BLOCK.sub(lambda found: f"{found[1]}{as_html(found[2])}", text)
        obj.docstring.value = INLINE.sub(lambda found: as_html(found[1]), text)


def as_html(formula: str) -> str:
    r"""Return a formula of our docstrings as HTML.

    Raises:
        ValueError: if it has a command that is not listed above.

    Example:
        >>> as_html(r"w_n \le \frac{1}{n + 9} e^{-d/s}")
        '<span class="formula">w<sub>n</sub> ≤ 1 / (n + 9) e<sup>-d/s</sup></span>'
    """
    text = " ".join(formula.split()).replace(r"\_", "&#95;")
    text = text.replace(r"\,", " ")
    text = re.sub(r"\\mathrm\{([^}]*)\}", r"\1", text)
    text = re.sub(r"\\frac\{([^}]*)\}\{([^}]*)\}", _fraction, text)
    text = re.sub(r"_(?:\{([^}]*)\}|(\w))", r"<sub>\1\2</sub>", text)
    text = re.sub(r"\^(?:\{([^}]*)\}|(\w))", r"<sup>\1\2</sup>", text)
    for command in re.findall(r"\\([a-zA-Z]+)", text):
        if command not in SYMBOLS:
            raise ValueError(f"docs/site/docstrings.py knows no \\{command}, used in {formula!r}")
    text = re.sub(r"\\([a-zA-Z]+) ?", lambda found: f"{SYMBOLS[found[1]]} ", text)
    text = re.sub(r" +", " ", text).replace("min (", "min(")
    return f'<span class="formula">{text.strip()}</span>'


def _fraction(found: re.Match[str]) -> str:
    above, below = (f"({part})" if " " in part else part for part in found.groups())
    return f"{above} / {below}"
