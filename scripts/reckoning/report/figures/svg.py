"""Matplotlib's SVG made fit for a page: small, in the theme's colours, without ids that two figures could share."""

from __future__ import annotations

import hashlib
import re
from xml.etree import ElementTree

from reckoning.report.palette import COLOURS, ArmLook

INK, MUTED, GRID, PAPER, ZONE = "#010203", "#020305", "#030407", "#040509", "#05060b"
# Placeholder colour -> (CSS variable in the page, colour of a drawing that stands alone).
_THEME = {
    INK: ("--fig-ink", "#1b1f24"),
    MUTED: ("--fig-muted", "#57606a"),
    GRID: ("--fig-grid", "#d8dee4"),
    PAPER: ("--fig-paper", "#ffffff"),
    ZONE: ("--fig-zone", "#e4eaf1"),
    **{f"#0a0b{index:02x}": (f"--arm-{index}", pair[0]) for index, pair in enumerate(COLOURS)},
}
_SVG = "http://www.w3.org/2000/svg"
_GROUP = f"{{{_SVG}}}g"
_MARKS = frozenset({f"{{{_SVG}}}use", f"{{{_SVG}}}path"})
_XLINK = "{http://www.w3.org/1999/xlink}href"
_COLOUR = re.compile("|".join(_THEME))
_NUMBER = re.compile(r"-?\d+\.\d{2,}")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_GEOMETRY = frozenset({"d", "x", "y", "width", "height", "points", "transform", "cx", "cy", "r"})
_USELESS_STYLE = re.compile(r"(?:stroke-linejoin|stroke-linecap|stroke-miterlimit|font-family):[^;]*;?")


def colour(look: ArmLook) -> str:
    """Return the placeholder colour of an arm, to draw with."""
    return f"#0a0b{look.colour_index:02x}"


def page_svg(text: str, key: str, *, alone: bool) -> str:
    """Return matplotlib's document `text` as one `<svg>` element; `key` keeps its ids apart from other figures'.

    `alone`: with literal colours on a white ground, for a file that no page styles.
    """
    ElementTree.register_namespace("", _SVG)
    root = ElementTree.fromstring(text)
    width, height = (root.attrib[name].removesuffix("pt") for name in ("width", "height"))
    # Matplotlib's style sheet has a selector `*`, which would reach the whole page.
    _drop(root, {f"{{{_SVG}}}metadata", f"{{{_SVG}}}style"})
    names = _short_names(root, key)
    for element in root.iter():
        _clean(element, names, alone)
    _simplify(root)
    root.attrib.clear()
    root.attrib.update({"viewBox": f"0 0 {width} {height}", "width": width, "height": height})
    root.attrib["style"] = "stroke-linejoin:round;font-family:system-ui,sans-serif"
    if alone:
        ground = ElementTree.Element(f"{{{_SVG}}}rect", {"width": width, "height": height, "fill": "#ffffff"})
        root.insert(0, ground)
    return ElementTree.tostring(root, encoding="unicode")


def _drop(root: ElementTree.Element, tags: set[str]) -> None:
    for parent in list(root.iter()):
        for child in [child for child in parent if child.tag in tags]:
            parent.remove(child)


def _short_names(root: ElementTree.Element, key: str) -> dict[str, str]:
    """Return a short new id for every id that something refers to."""
    used: dict[str, str] = {}
    prefix = "f" + hashlib.sha256(key.encode()).hexdigest()[:5]
    for element in root.iter():
        references = _REFERENCE.findall(" ".join(element.attrib.values()))
        target = element.attrib.get(_XLINK, "")
        references += [target[1:]] if target.startswith("#") else []
        for name in references:
            used.setdefault(name, f"{prefix}-{len(used)}")
    return used


def _clean(element: ElementTree.Element, names: dict[str, str], alone: bool) -> None:
    attributes = element.attrib
    name = attributes.pop("id", "")
    if name in names:
        attributes["id"] = names[name]
    elif name == "watermark":
        attributes["class"] = "watermark"
    elif name.startswith("arm:"):
        attributes["class"] = "arm"
        attributes["data-arm"] = name.removeprefix("arm:")
    target = attributes.pop(_XLINK, None)
    if target is not None:
        attributes["href"] = f"#{names[target[1:]]}" if target.startswith("#") else target
    for attribute in _GEOMETRY & attributes.keys():
        attributes[attribute] = _geometry(attributes[attribute])
    if attributes.get("transform", "").startswith("rotate(-0 "):
        del attributes["transform"]
    for attribute in ("style", "clip-path"):
        if attribute in attributes:
            attributes[attribute] = _style(attributes[attribute], names, alone)
    element.text = element.text if element.text and element.text.strip() else None
    element.tail = None


def _geometry(value: str) -> str:
    """Return coordinates to a tenth of a pixel, without needless spaces."""
    value = _NUMBER.sub(lambda match: f"{float(match[0]):.1f}".removesuffix(".0"), value)
    return re.sub(r"\s*([A-Za-z])\s*", r"\1", value) if value[:1] == "M" else value


def _style(value: str, names: dict[str, str], alone: bool) -> str:
    value = _REFERENCE.sub(lambda match: f"url(#{names[match[1]]})", value)
    value = re.sub(r"font:\s*(?:(bold|700)\s+)?([\d.]+)px[^;]*", _font, value)
    value = _USELESS_STYLE.sub("", re.sub(r"\s*([:;])\s*", r"\1", value))
    value = _COLOUR.sub(lambda match: _THEME[match[0]][1] if alone else f"var({_THEME[match[0]][0]})", value)
    return value.strip("; ")


def _font(match: re.Match[str]) -> str:
    return f"font-size:{match[2]}px" + (";font-weight:700" if match[1] else "")


def _simplify(element: ElementTree.Element) -> None:
    """Take groups apart that group nothing, join neighbours of one arm, write what children share on their parent."""
    children: list[ElementTree.Element] = []
    for child in list(element):
        _simplify(child)
        for part in list(child) if child.tag == _GROUP and not child.attrib else [child]:
            before = children[-1] if children else None
            if before is not None and part.tag == _GROUP and "data-arm" in part.attrib and before.attrib == part.attrib:
                before.extend(list(part))
            else:
                children.append(part)
    element[:] = [child for child in children if len(child) or child.attrib or child.text]
    if element.tag == _GROUP and len(element) > 1 and all(child.tag in _MARKS for child in element):
        for attribute in ("style", "clip-path"):
            _hoist(element, attribute)


def _hoist(parent: ElementTree.Element, attribute: str) -> None:
    values = {child.attrib.get(attribute) for child in parent}
    if len(values) == 1 and None not in values and attribute not in parent.attrib:
        parent.attrib[attribute] = values.pop()
        for child in parent:
            del child.attrib[attribute]
