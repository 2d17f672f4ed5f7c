"""The files of an EPUB that are not pages: the package, the table of contents, the archive."""

from __future__ import annotations

import io
import zipfile
from datetime import datetime
from html import escape
from pathlib import PurePosixPath

from web.paper.imprint import Facts

KINDS = {".xhtml": "application/xhtml+xml", ".svg": "image/svg+xml", ".css": "text/css"}
CONTAINER = """<?xml version="1.0" encoding="UTF-8"?>
<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container">
  <rootfiles>
    <rootfile full-path="content.opf" media-type="application/oebps-package+xml"/>
  </rootfiles>
</container>
"""


def package(facts: Facts, files: dict[str, str], pages: list[str]) -> str:
    """Return the package file: what the book is, its files, and the order of its pages."""
    items = "\n".join(
        f'    <item id="{identifier(name)}" href="{name}" '
        f'media-type="{KINDS[PurePosixPath(name).suffix]}"{properties(name, text)}/>'
        for name, text in sorted(files.items())
    )
    spine = "\n".join(f'    <itemref idref="{identifier(page)}"/>' for page in pages)
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<package xmlns="http://www.idpf.org/2007/opf" version="3.0"
 unique-identifier="book" xml:lang="{facts.language}">
  <metadata xmlns:dc="http://purl.org/dc/elements/1.1/">
    <dc:identifier id="book">{escape(facts.address)}</dc:identifier>
    <dc:title>{escape(facts.title)}</dc:title>
    <dc:language>{facts.language}</dc:language>
    <dc:creator>{escape(facts.author)}</dc:creator>
    <dc:description>{escape(facts.subtitle)}</dc:description>
    <dc:rights>Text and figures: CC BY 4.0. Code: MIT.</dc:rights>
    <dc:date>{facts.date}</dc:date>
    <meta property="dcterms:modified">{facts.moment:%Y-%m-%dT%H:%M:%SZ}</meta>
    <meta property="schema:accessMode">textual</meta>
    <meta property="schema:accessMode">visual</meta>
    <meta property="schema:accessModeSufficient">textual</meta>
    <meta property="schema:accessibilityFeature">MathML</meta>
    <meta property="schema:accessibilityFeature">alternativeText</meta>
    <meta property="schema:accessibilityFeature">tableOfContents</meta>
    <meta property="schema:accessibilityFeature">structuralNavigation</meta>
    <meta property="schema:accessibilityHazard">none</meta>
  </metadata>
  <manifest>
{items}
  </manifest>
  <spine>
{spine}
  </spine>
</package>
"""


def properties(name: str, text: str) -> str:
    """Return the properties that a package states of a page.

    >>> properties("a.xhtml", "<p><math>1</math></p>")
    ' properties="mathml"'
    """
    if not name.endswith(".xhtml"):
        return ""
    marks = {"nav": 'epub:type="toc"', "mathml": "<math", "svg": "<svg"}
    found = [mark for mark, sign in marks.items() if sign in text]
    return f' properties="{" ".join(found)}"' if found else ""


def identifier(name: str) -> str:
    """Return the identifier of a file in the package.

    >>> identifier("chapters/01_query.xhtml")
    'f-chapters-01_query.xhtml'
    """
    return "f-" + name.replace("/", "-")


def navigation(facts: Facts, chapters: list[tuple[str, str, list[tuple[str, str]]]]) -> str:
    """Return the table of contents: of each page its file, its title, and its sections."""
    lines = []
    for page, title, sections in chapters:
        inner = "".join(
            f'<li><a href="{page}#{place}">{escape(text)}</a></li>' for text, place in sections
        )
        nested = f"<ol>{inner}</ol>" if inner else ""
        lines.append(f'<li><a href="{page}">{escape(title)}</a>{nested}</li>')
    entries = "\n".join(lines)
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE html>
<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops"
 lang="{facts.language}" xml:lang="{facts.language}">
<head>
<title>Contents</title>
<link rel="stylesheet" type="text/css" href="_static/book.css"/>
</head>
<body><nav epub:type="toc"><h1>Contents</h1><ol>
{entries}
</ol></nav></body>
</html>
"""


def archive(files: dict[str, bytes], moment: datetime) -> bytes:
    """Return a zip archive that is the same whenever it is made from the same files.

    The first file stays first and unpacked, as an EPUB wants its ``mimetype``.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as target:
        for position, (name, content) in enumerate(files.items()):
            entry = zipfile.ZipInfo(name, moment.timetuple()[:6])
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED if position else zipfile.ZIP_STORED
            target.writestr(entry, content)
    return buffer.getvalue()
