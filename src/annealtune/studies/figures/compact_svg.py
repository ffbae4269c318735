"""Makes matplotlib's SVG small, and fit to stand on a page beside others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

SVG = "http://www.w3.org/2000/svg"
XLINK = "http://www.w3.org/1999/xlink"
_HREF = f"{{{XLINK}}}href"
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
_COLOUR = re.compile(r"#[0-9a-f]{6}\b")
_TENTHS = 10  # of a point: a tenth of a line's width


def compact(content: bytes, name: str, title: str, colours: Mapping[str, str] | None = None) -> str:
    """Return an SVG without what no reader sees: about a third of its size.

    Args:
        content: as matplotlib writes it.
        name: stands before every id, so that several figures can be on one page.
        title: read out to those who do not see it.
        colours: for a page: what to write in place of a colour. Then size, font and line joins are
            left to the page, and there is no XML declaration.
    """
    root = ElementTree.fromstring(content)
    for child in root.findall(f"{{{SVG}}}metadata"):
        root.remove(child)
    used = set(_references(root))
    for element in root.iter():
        _rename(element, used, name)
        _round(element)
        if colours is not None:
            _leave_to_page(element, colours)
    _unwrap(root)
    root.attrib.pop("version", None)
    if colours is not None:
        del root.attrib["width"], root.attrib["height"]
    root.set("role", "img")
    heading = Element(f"{{{SVG}}}title")
    heading.text = title
    root.insert(0, heading)
    return _text(root, is_file=colours is None)


def relative(path: str) -> str:
    """Return path data in relative coordinates, rounded to tenths; curves are only rounded.

    Rounding errors do not add up: each point is rounded where it is, then subtracted.

    Example:
        >>> relative("M 1.04 2 L 3.06 4.5 L 3 4 z")
        'M1 2l2.1 2.5-.1-.5z'
    """
    tokens = path.split()
    if set("CQST") & set(tokens):
        return _joined(_NUMBER.sub(lambda found: _short(float(found[0])), path).split())
    pieces: list[str] = []
    at, index = (0, 0), 0
    while index < len(tokens):
        command = tokens[index]
        if command in "zZ":
            pieces.append("z")
            index += 1
            continue
        x, y = (round(float(token) * _TENTHS) for token in tokens[index + 1 : index + 3])
        if command == "M":
            pieces += ["M", _short(x / _TENTHS), _short(y / _TENTHS)]
        else:
            if not pieces or pieces[-1] == "z" or "M" in pieces[-3:]:
                pieces.append("l")
            pieces += [_short((x - at[0]) / _TENTHS), _short((y - at[1]) / _TENTHS)]
        at = (x, y)
        index += 3
    return _joined(pieces)


def _joined(pieces: list[str]) -> str:
    """Join commands and numbers with a space only where one is needed."""
    text = ""
    for piece in pieces:
        needs_space = text and text[-1] not in "MLlCQSTzZ " and piece[0] in ".0123456789"
        text += f" {piece}" if needs_space else piece
    return text


def _short(value: float) -> str:
    text = f"{value:.1f}".rstrip("0").rstrip(".")
    if text in ("-0", ""):
        return "0"
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


def _references(root: Element) -> Iterator[str]:
    for element in root.iter():
        for key, value in element.attrib.items():
            if key == _HREF and value.startswith("#"):
                yield value[1:]
            yield from _REFERENCE.findall(value)


def _rename(element: Element, used: set[str], name: str) -> None:
    """Keep ids that something refers to, under a name of their own."""
    attributes = element.attrib
    if "id" in attributes:
        if attributes["id"] in used:
            attributes["id"] = f"{name}-{attributes['id']}"
        else:
            del attributes["id"]
    for key, value in attributes.items():
        if key == _HREF and value.startswith("#"):
            attributes[key] = f"#{name}-{value[1:]}"
        else:
            attributes[key] = _REFERENCE.sub(rf"url(#{name}-\1)", value)


def _round(element: Element) -> None:
    attributes = element.attrib
    if "d" in attributes:
        attributes["d"] = relative(attributes["d"])
    if attributes.get("transform", "").startswith("rotate(-0 "):
        del attributes["transform"]
    for key in ("x", "y", "width", "height", "transform"):
        if key in attributes and element.tag != f"{{{SVG}}}svg":
            attributes[key] = _NUMBER.sub(lambda n: f"{float(n[0]):.5g}", attributes[key])
    if "style" in attributes:
        attributes["style"] = attributes["style"].replace(": ", ":").replace("; ", ";")
    if element.tag != f"{{{SVG}}}text":
        element.text = (element.text or "").strip() or None
    element.tail = None


def _leave_to_page(element: Element, colours: Mapping[str, str]) -> None:
    for child in element.findall(f"{{{SVG}}}style"):
        element.remove(child)
    if "style" in element.attrib:
        text = _COLOUR.sub(lambda found: colours.get(found[0], found[0]), element.attrib["style"])
        element.set("style", re.sub(r"font-family:[^;]*;?", "", text))


def _unwrap(parent: Element) -> None:
    """Put what an empty group holds in the place of the group."""
    for child in list(parent):
        _unwrap(child)
        if child.tag in (f"{{{SVG}}}g", f"{{{SVG}}}defs") and not (
            child.attrib or (len(child) and child.tag.endswith("defs"))
        ):
            place = list(parent).index(child)
            parent.remove(child)
            for offset, grandchild in enumerate(list(child)):
                parent.insert(place + offset, grandchild)


def _text(root: Element, *, is_file: bool) -> str:
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", XLINK)
    text = ElementTree.tostring(root, encoding="unicode")
    if is_file:
        return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'
    # Inside HTML an element needs no namespaces.
    return re.sub(r' xmlns(?::xlink)?="[^"]*"', "", text, count=2).replace("xlink:href", "href")
