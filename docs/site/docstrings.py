"""An extension of griffe: reads our docstrings, whose one example stands under `Example:`."""

import re
from typing import Any

import griffe


class OneExample(griffe.Extension):
    """Make a section of examples of it, which griffe knows in the plural only."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rename the section of a docstring."""
        if obj.docstring is not None:
            text = obj.docstring.value
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", text, flags=re.MULTILINE)
