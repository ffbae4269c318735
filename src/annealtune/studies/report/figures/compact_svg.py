"""Makes matplotlib's SVG small, and fit to stand on a page beside others."""

import html
import re
from collections.abc import Mapping
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

SVG = "{http://www.w3.org/2000/svg}"
_REFERENCE = re.compile(r"(^|url\()#([\w.-]+)")
_NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
_COLOUR = re.compile(r"#[0-9a-f]{6}\b")
_TENTHS = 10  # of a point: a tenth of a line's width

ElementTree.register_namespace("", "http://www.w3.org/2000/svg")
ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")


def compact(
    content: bytes,
    name: str,
    title: str,
    colours: Mapping[str, str] | None = None,
    attributes: Mapping[str, str] | None = None,
) -> str:
    """Return an SVG without what no reader sees: about a third of its size.

    Args:
        content: as matplotlib writes it.
        name: stands before every id, so that several figures can be on one page.
        title: read out to those who do not see it.
        colours: for a page: what to write in place of a colour. Then size, font and line joins are
            left to the page, and there is no XML declaration.
        attributes: more of the outermost element.
    """
    root = ElementTree.fromstring(content)
    for child in root.findall(f"{SVG}metadata"):
        root.remove(child)
    _rename(root, name)
    for element in root.iter():
        _shorten(element)
        if colours is not None:
            _leave_to_page(element, colours)
    _unwrap(root)
    root.attrib.pop("version", None)
    root.set("role", "img")
    heading = Element(f"{SVG}title")
    heading.text = title
    root.insert(0, heading)
    if colours is None:
        text = ElementTree.tostring(root, encoding="unicode")
        return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'
    del root.attrib["width"], root.attrib["height"]
    text = ElementTree.tostring(root, encoding="unicode")
    # Inside HTML an element needs no namespaces.
    text = re.sub(r' xmlns(?::xlink)?="[^"]*"', "", text, count=2).replace("xlink:href", "href")
    # JSON has many double quotes; between single ones they can stay.
    added = "".join(f" {k}='{_in_quotes(v)}'" for k, v in (attributes or {}).items())
    return text.replace("<svg", f"<svg{added}", 1)


def relative(path: str) -> str:
    """Return path data in relative coordinates, rounded to tenths; curves are only rounded.

    Rounding errors do not add up: each point is rounded where it is, then subtracted.

    Example:
        >>> relative("M 1.04 2 L 3.06 4.5 L 3 4 z")
        'M1 2l2.1 2.5-.1-.5z'
    """
    if re.search("[CQST]", path):
        return _joined(_NUMBER.sub(lambda found: _short(float(found[0])), path).split())
    pieces: list[str] = []
    at = (0, 0)
    tokens = iter(path.split())
    for command in tokens:
        if command in "zZ":
            pieces.append("z")
            continue
        x, y = (round(float(next(tokens)) * _TENTHS) for _ in range(2))
        if command == "M":
            pieces += ["M", _short(x / _TENTHS), _short(y / _TENTHS)]
        else:
            if not pieces or pieces[-1] == "z" or "M" in pieces[-3:]:
                pieces.append("l")
            pieces += [_short((x - at[0]) / _TENTHS), _short((y - at[1]) / _TENTHS)]
        at = (x, y)
    return _joined(pieces)


def _in_quotes(text: str) -> str:
    return html.escape(text, quote=False).replace("'", "&#39;")


def _joined(pieces: list[str]) -> str:
    """Join commands and numbers with a space only where one is needed."""
    text = ""
    for piece in pieces:
        needs_space = text and text[-1] not in "MLlCQSTzZ " and piece[0] in ".0123456789"
        text += f" {piece}" if needs_space else piece
    return text


def _short(value: float) -> str:
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else re.sub(r"^(-?)0\.", r"\1.", text)


def _rename(root: Element, name: str) -> None:
    """Keep only the ids that something refers to, with a name before them."""
    places = [(each.attrib, key) for each in root.iter() for key in each.attrib]
    used = {found[2] for all_, key in places for found in _REFERENCE.finditer(all_[key])}
    for attributes, key in places:
        if key != "id":
            attributes[key] = _REFERENCE.sub(rf"\1#{name}-\2", attributes[key])
        elif attributes[key] in used:
            attributes[key] = f"{name}-{attributes[key]}"
        else:
            del attributes[key]


def _shorten(element: Element) -> None:
    attributes = element.attrib
    if "d" in attributes:
        attributes["d"] = relative(attributes["d"])
    if attributes.get("transform", "").startswith("rotate(-0 "):
        del attributes["transform"]
    for key in ("x", "y", "width", "height", "transform"):
        if key in attributes and element.tag != f"{SVG}svg":
            attributes[key] = _NUMBER.sub(lambda n: f"{float(n[0]):.5g}", attributes[key])
    if "style" in attributes:
        attributes["style"] = attributes["style"].replace(": ", ":").replace("; ", ";")
    if element.tag != f"{SVG}text":
        element.text = (element.text or "").strip() or None
    element.tail = None


def _leave_to_page(element: Element, colours: Mapping[str, str]) -> None:
    for child in element.findall(f"{SVG}style"):
        element.remove(child)
    if "style" in element.attrib:
        text = _COLOUR.sub(lambda found: colours.get(found[0], found[0]), element.attrib["style"])
        element.set("style", re.sub(r"font-family:[^;]*;?", "", text))


def _unwrap(parent: Element) -> None:
    """Put what a group without attributes holds in its place; drop empty definitions."""
    for child in list(parent):
        _unwrap(child)
        is_bare = child.tag == f"{SVG}g" or (child.tag == f"{SVG}defs" and not len(child))
        if is_bare and not child.attrib:
            place = list(parent).index(child)
            parent[place : place + 1] = list(child)
