"""The page at `/runbook`: docs/runbook.md as HTML, where the links of alerts end.

Owns the rendering and the anchors, which are those of the documentation's site. Of the pages of
docs/ only this one travels with the service, so links to others become their names.
"""

from __future__ import annotations

import re
from functools import cache
from html import escape
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from connector.surface.status_page import policy_headers

if TYPE_CHECKING:
    from markdown_it.token import Token

_HERE = resources.files("connector.surface")


@cache
def runbook_text() -> str:
    """The document, complete in itself."""
    # Here and not above: 80 ms of each start of each command.
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(_source())
    contents = _with_anchors(tokens)
    for token in tokens:
        if token.children:
            token.children = _without_other_pages(token.children)
    body = parser.renderer.render(tokens, parser.options, {})
    body = body.replace("<table>", '<div class="scroll"><table>')
    body = body.replace("</table>", "</table></div>")
    page = _HERE.joinpath("runbook_page.html").read_text("utf-8")
    return page.replace("<!-- contents -->", contents).replace("<!-- body -->", body)


@cache
def runbook_headers() -> dict[str, str]:
    return policy_headers(runbook_text())


def anchor_of(heading: str) -> str:
    """The anchor of a heading, as mkdocs makes it."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


def _source() -> str:
    """The wheel brings the page along; a checkout has it where it is written."""
    inside = _HERE.joinpath("runbook.md")
    if inside.is_file():
        return inside.read_text("utf-8")
    return (Path(__file__).parents[2] / "docs" / "runbook.md").read_text("utf-8")


def _with_anchors(tokens: list[Token]) -> str:
    """Gives each heading its anchor; returns the list of links to them."""
    parts: list[str] = []
    for opening, inline in pairwise(tokens):
        if opening.type != "heading_open" or opening.tag == "h1":
            continue
        heading = "".join(child.content for child in inline.children or ())
        opening.attrSet("id", anchor_of(heading))
        link = f'<a href="#{anchor_of(heading)}">{escape(heading)}</a>'
        parts.append(f"<dt>{link}</dt>" if opening.tag == "h2" else f"<dd>{link}</dd>")
    return "\n".join(parts)


def _without_other_pages(children: list[Token]) -> list[Token]:
    kept: list[Token] = []
    left_out: str | None = None
    for child in children:
        target = str(child.attrGet("href") or "")
        if child.type == "link_open" and not target.startswith("#") and "://" not in target:
            left_out = target
        elif child.type == "link_close" and left_out is not None:
            name = child.copy(type="text", tag="", nesting=0, content=f" (docs/{left_out})")
            kept.append(name)
            left_out = None
        else:
            kept.append(child)
    return kept
