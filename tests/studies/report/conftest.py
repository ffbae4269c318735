"""Pages as a browser would find them."""

from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """Elements with their attributes, and the text without scripts and styles."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.source = path.read_text(encoding="utf-8")
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        pieces: list[str] = []
        self.handle_data = (
            lambda data: (  # type: ignore[method-assign]
                None if self.open[-1:] in (["script"], ["style"]) else pieces.append(data)
            )
        )
        self.feed(self.source)
        self.close()
        assert self.open == []
        self.text = " ".join(" ".join(pieces).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def ids(self) -> list[str | None]:
        return [attributes["id"] for _, attributes in self.elements if "id" in attributes]


@pytest.fixture(scope="session")
def parse() -> Callable[[Path], Page]:
    """Reads a page; it must be well-formed."""
    return Page
