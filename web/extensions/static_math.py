r"""Show formulas without a script: each is set while the pages are built.

The pages of the site get HTML and a style sheet, those of an EPUB get MathML, which e-readers set
themselves. A formula that MathJax does not understand is a warning, and so stops the build.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # Sphinx knows the folder of its extensions only

from web.mathematics.typesetter import Typesetter, TypesettingError  # noqa: E402

SHEET = "mathematics.css"
FONTS = "../mathjax/output/chtml/fonts/woff-v2"  # seen from _static
NUMBER = re.compile(r"\\tag\{([^{}]*)\}")

# A formula in a sentence and the signs that touch it.
SIGNS = re.compile(
    r'([(\[“]*)(<span class="math"><mjx-container\b)|(</mjx-container></span>)([)\].,;:!?”’]*)'
)

logger = logging.getLogger(__name__)


def set_inline(writer: HTML5Translator, node: nodes.math) -> None:
    """Write a formula that stands in a sentence."""
    writer.body.append(f'<span class="math">{formula(writer, node, display=False)}</span>')
    raise nodes.SkipNode


def set_block(writer: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula that stands by itself."""
    writer.body.append(
        writer.starttag(node, "div", CLASS="math")
        + formula(writer, node, display=True)
        + "</div>\n"
    )
    raise nodes.SkipNode


def formula(writer: HTML5Translator, node: nodes.math | nodes.math_block, display: bool) -> str:
    """Return a formula as the builder of the pages wants it."""
    tex = node.astext().strip()
    if display and r"\\" in tex and not node.get("nowrap"):
        tex = rf"\begin{{split}}{tex}\end{{split}}"  # as everywhere in Sphinx: lines may be ended
    typesetter = writer.builder.app.typesetter
    try:
        if writer.builder.name != "epub":
            return typesetter.html(tex, display)
        number = NUMBER.search(tex)
        beside = f'<span class="number">({number[1]})</span>' if number else ""
        return typesetter.mathml(NUMBER.sub("", tex).strip(), display) + beside
    except TypesettingError as error:
        logger.warning("%s", error, location=node)
        return ""


def keep_signs(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Keep each formula in a sentence on one line with the comma or bracket that touches it."""
    if body := context.get("body"):
        before, after = r'<span class="math-and-sign">\1\2', r"\3\4</span>"
        context["body"] = SIGNS.sub(lambda m: m.expand(before if m[2] else after), body)


def begin(app: Sphinx) -> None:
    """Start the one typesetter of a build."""
    app.typesetter = Typesetter()


def write_sheet(app: Sphinx, error: Exception | None) -> None:
    """Write the styles of all formulas, once all are set."""
    if error is None and app.builder.name in {"html", "dirhtml"}:
        sheet = app.typesetter.style_sheet(FONTS)
        Path(app.outdir, "_static", SHEET).write_text(sheet, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Make it what writes formulas: Sphinx prefers it, as the one beside its own."""
    app.add_html_math_renderer("static", (set_inline, None), (set_block, None))
    app.connect("builder-inited", begin)
    app.connect("html-page-context", keep_signs)
    app.connect("build-finished", write_sheet)
    return {"parallel_read_safe": True, "parallel_write_safe": False}
