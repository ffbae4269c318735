"""What is written to a terminal: no name and no message in it can steer the terminal."""

from collections.abc import Iterable
from typing import Any

import rich.console
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment

from annealtune.errors import printable

_WIDTH, _NARROWEST = 80, 10


class Console(rich.console.Console):
    """A console that spells out what would steer the terminal; its own colours and bars stay."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if self.width < _NARROWEST:  # COLUMNS=0 or 1, where nothing would be seen
            self.width = _WIDTH

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield the parts of something to be shown."""
        for part in super().render(renderable, options):
            yield part if part.control else part._replace(text=printable(part.text))
