"""Leave out of the built pages what weighs most and is hardly used.

* The theme draws its dozen icons with a script of 1.5 MB that holds two thousand. The few that the
  pages use are written into them as SVG instead, taken from that script while building. The
  style sheet has two thousand rules for the same icons as a font, which go too.
* The theme loads the index of the search on every page, for a search while typing that this book
  does not offer. Only the page of the search needs it.
* A page asks for its styles in some twenty files and waits for each. They become one file. And it
  waits for scripts that have nothing to do before the page is there; they are deferred.
* The theme measures every piece of code and every table for whether it scrolls, and so has the
  browser lay out the whole page before it is shown. ``accessible.js`` measures what comes near.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

ICON = re.compile(
    r'<(?P<tag>i|span) class="(?P<classes>[^"]*\bfa-[^"]*)"(?P<rest>[^>]*)></(?P=tag)>'
)
SCRIPT = re.compile(r'[ \t]*<script[^>]*\bsrc="(?P<source>[^"?]*)[^"]*"[^>]*></script>\n?')
ICONS = "scripts/fontawesome.js"
SEARCH = ("searchtools.js", "language_data.js", "searchindex.js")
STYLE = "styles/pydata-sphinx-theme.css"
THEME = "scripts/pydata-sphinx-theme.js"
MEASURING = "e.tabIndex=e.scrollWidth>e.clientWidth||e.scrollHeight>e.clientHeight?0:-1"
OPTIONS = "documentation_options.js"  # scripts written into the page use it
SHEET = re.compile(
    r'[ \t]*<link\b(?=[^>]*\brel="stylesheet")[^>]*\bhref="(?P<root>[./]*)_static/'
    r'(?P<name>[^"?]*)[^"]*"[^>]*>\n?'
)
IMPORT = re.compile(r'@import\s+(?:url\()?"(?P<name>[^"]+)"\)?;')
ADDRESS = re.compile(r"""url\((?P<quote>["']?)(?!data:|#|/|[a-z]+:)(?P<path>[^)"']+)(?P=quote)\)""")
RULES = re.compile(r'(?:\.fa-[\w-]+::?before,?)+\{content:"[^"]*"\}')
DRAWING = r'[{{,]"?{name}"?:\[(\d+),(\d+),\[[^\]]*\],"\w*","([^"]+)"'


class Icons:
    """The drawings in the theme's script, each searched for once."""

    def __init__(self, script: str) -> None:
        self.script = script
        self.known: dict[str, str] = {}

    def inline(self, found: re.Match[str]) -> str:
        """Return the SVG that stands for an empty element with classes of an icon."""
        classes = found["classes"].split()
        shape = self.shape(classes)
        rest = re.sub(r'\s+title="[^"]*"', "", found["rest"])  # the button around it has a name
        names = " ".join(["svg-inline--fa", *classes])
        return f'<svg class="{names}"{rest} aria-hidden="true" fill="currentColor" {shape}</svg>'

    def shape(self, classes: list[str]) -> str:
        """Return the size and the outline of the icon that one of the classes names."""
        for name in (item.removeprefix("fa-") for item in classes if item.startswith("fa-")):
            if name not in self.known:
                # The last of two with one name is the solid one.
                drawings = re.findall(DRAWING.format(name=re.escape(name)), self.script)
                self.known[name] = outline(*drawings[-1]) if drawings else ""
            if self.known[name]:
                return self.known[name]
        raise ValueError(f"The theme has no icon for the classes {' '.join(classes)}")


def outline(width: str, height: str, path: str) -> str:
    """Return the end of an SVG tag and its one path."""
    return f'viewBox="0 0 {width} {height}"><path d="{path}"/>'


class Sheets:
    """The style sheets in a folder, each row of them that a page asks for joined into one."""

    def __init__(self, static: Path) -> None:
        self.static = static
        self.joined: dict[tuple[str, ...], str] = {}
        self.parts: set[str] = set()

    def join(self, page: str) -> str:
        """Return a page that asks for one style sheet."""
        links = list(SHEET.finditer(page))
        names = tuple(dict.fromkeys(link["name"] for link in links))
        if len(names) < 2:
            return page
        address = f"{links[0]['root']}_static/{self.file_of(names)}"
        one = f'    <link rel="stylesheet" href="{address}" />\n'
        before, after = page[: links[0].start()], page[links[0].end() :]
        return before + one + SHEET.sub("", after)

    def file_of(self, names: tuple[str, ...]) -> str:
        """Return the name of the file that holds all of these sheets, in their order."""
        if names not in self.joined:
            text = "\n".join(map(self.text, names))
            digest = hashlib.sha256(text.encode()).hexdigest()[:12]
            self.joined[names] = f"book-{digest}.css"
            (self.static / self.joined[names]).write_text(text, encoding="utf-8")
        return self.joined[names]

    def text(self, name: str) -> str:
        """Return a sheet with what it imports, and with addresses as seen from the folder."""
        self.parts.add(name)
        folder = posixpath.dirname(name)
        content = (self.static / name).read_text(encoding="utf-8").replace('@charset "UTF-8";', "")

        def beside(path: str) -> str:
            return posixpath.normpath(posixpath.join(folder, path))

        content = ADDRESS.sub(lambda found: f'url("{beside(found["path"])}")', content)
        return IMPORT.sub(lambda found: self.text(beside(found["name"])), content)

    def remove_parts(self) -> None:
        """Remove the sheets that are now in a joined one."""
        for name in self.parts:
            (self.static / name).unlink()


def lighten(page: str, name: str, icons: Icons) -> str:
    """Return a page with its icons written out, and with no script that it must wait for."""

    def keep(found: re.Match[str]) -> str:
        source = found["source"]
        if source.endswith(ICONS) or (name != "search" and source.endswith(SEARCH)):
            return ""
        if name == "search" or source.endswith(OPTIONS) or " defer" in found[0]:
            return found[0]
        return found[0].replace("<script", "<script defer", 1)

    return ICON.sub(icons.inline, SCRIPT.sub(keep, page))


def without_measuring(script: str) -> str:
    """Return the theme's script, which no longer looks for parts that scroll."""
    if MEASURING not in script:
        raise ValueError("The theme no longer looks for parts that scroll as it did")
    return script.replace(MEASURING, "0")


def lighten_site(app: Sphinx, error: Exception | None) -> None:
    """Rewrite the pages, and remove what none of them asks for any more."""
    static = Path(app.outdir, "_static")
    if error is not None or app.builder.name not in {"html", "dirhtml"}:
        return
    style = (static / STYLE).read_text(encoding="utf-8")
    (static / STYLE).write_text(RULES.sub("", style), encoding="utf-8")
    theme = (static / THEME).read_text(encoding="utf-8")
    (static / THEME).write_text(without_measuring(theme), encoding="utf-8")
    icons = Icons((static / ICONS).read_text(encoding="utf-8"))
    sheets = Sheets(static)
    for path in Path(app.outdir).rglob("*.html"):
        if static in path.parents:
            continue
        text = path.read_text(encoding="utf-8")
        path.write_text(sheets.join(lighten(text, path.stem, icons)), encoding="utf-8")
    sheets.remove_parts()
    for path in [static / ICONS, *static.glob("scripts/*.map"), *static.glob("styles/*.map")]:
        path.unlink(missing_ok=True)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the step with Sphinx."""
    app.connect("build-finished", lighten_site, priority=900)  # when all others wrote their files
    return {"parallel_read_safe": True, "parallel_write_safe": True}
