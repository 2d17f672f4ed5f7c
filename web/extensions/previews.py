"""What other programs show of a page: a description of its own, and a card with a picture.

Search engines read the description, chat programs and social sites the card. The description of a
chapter is its question, as the book's first page has it; that of any other page, its beginning.
"""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

PICTURE = "preview.png"  # web/tools/preview.py draws it
ALT = "One query meets three keys; weights of 1/6, 2/6 and 3/6 mix three values into one output."
LONGEST = 200  # what is shown of a description is shorter still
QUESTION = re.compile(r"\]\((\w+)\.ipynb\) \| (.+?\?) \|")
WRITTEN = re.compile(r'<meta [^>]*name="description"[^>]*>\n?')


def described(app: Sphinx, page: str, title: str, doctree: nodes.document) -> str:
    """Return the question of a chapter with its title, or the sentences that a page begins with."""
    question = questions(app).get(page)
    if question:
        return f"{title}: {question}"
    for paragraph in doctree.findall(nodes.paragraph):
        if isinstance(paragraph.parent, nodes.section):
            return beginning(flat(paragraph.astext()))
    return ""


def questions(app: Sphinx) -> dict[str, str]:
    """Return the question of each chapter, from the table on the book's first page."""
    first = app.env.doc2path(app.config.root_doc)
    folder = app.config.root_doc.rpartition("/")[0]
    rows = QUESTION.findall(Path(first).read_text(encoding="utf-8"))
    return {f"{folder}/{name}": question for name, question in rows}


def flat(text: str) -> str:
    """Return the text on one line."""
    return " ".join(text.split())


def beginning(text: str) -> str:
    """Return as many whole sentences as fit, at least one."""
    first, *rest = re.split(r"(?<=[.?!])\s+", text)
    for sentence in rest:
        if len(first) + len(sentence) >= LONGEST:
            break
        first = f"{first} {sentence}"
    return first


def add_preview(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Put the description and the card into the head of a page."""
    if app.builder.name != "html":
        return
    book = app.config.myst_html_meta.get("description", "")
    title = plain_title(context.get("title", "")) or app.config.html_title
    own = described(app, page, title, doctree) if doctree and page != app.config.root_doc else ""
    description = own or book
    card = {
        "og:type": "website" if page == app.config.root_doc else "article",
        "og:site_name": app.config.html_title,
        "og:title": title,
        "og:description": description,
        "og:image": picture_address(app, context),
        "og:image:alt": ALT,
    }
    tags = [
        meta("name", "description", description),
        meta("name", "twitter:card", "summary_large_image"),
    ]
    tags += [meta("property", name, content) for name, content in card.items()]
    context["metatags"] = WRITTEN.sub("", context.get("metatags", "")) + "\n".join(tags) + "\n"


def plain_title(title: str) -> str:
    """Return a title, which Sphinx gives as HTML, as text without the chapter's number in tags."""
    return flat(html.unescape(re.sub(r"<[^>]*>", "", title)))


def picture_address(app: Sphinx, context: dict[str, Any]) -> str:
    """Return where the picture is: absolute once ``html_baseurl`` is known, relative until then."""
    if app.config.html_baseurl:
        return f"{app.config.html_baseurl.rstrip('/')}/_static/{PICTURE}"
    return context["pathto"](f"_static/{PICTURE}", 1)


def meta(kind: str, name: str, content: str) -> str:
    """Return one tag for the head of a page."""
    return f'<meta {kind}="{name}" content="{html.escape(content)}" />'


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the step with Sphinx."""
    app.connect("html-page-context", add_preview, priority=800)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
