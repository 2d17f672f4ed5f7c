"""Draw the picture of the landing page: one query, three keys, one answer.

Run as ``python web/tools/one_query.py`` to write web/images/one_query.svg. The numbers in it are
computed, from the running example of the book.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np

from attnlib import attention_steps

PICTURE = Path(__file__).resolve().parents[1] / "images" / "one_query.svg"

# The running example of chapter 1.
Q = np.log([2, 3, 2, 3])
K = [[0, 0, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1]]
V = [[1, 2], [3, 0], [4, 5]]

WIDTH, HEIGHT = 600, 300
CENTRE = 165  # height of query and output
COLUMNS = {"query": 40, "score": 121, "key": 208, "value": 282, "weight": 387, "output": 520}
THICKNESS = 44  # of the line of a weight 1

# Browsers hand the page's colour scheme on to an image.
STYLE = """
text { font: 18px system-ui, sans-serif; fill: #1b1f24; text-anchor: middle }
.heading { font-size: 15px; fill: #566072 }
.box { fill: #f3f5f8; stroke: #aab4c2 }
.score, .weight { fill: none; stroke: #8a94a3; stroke-width: 2 }
.weight { stroke: #86b3e6 }
.label { stroke: #ffffff; stroke-width: 9px; paint-order: stroke }
@media (prefers-color-scheme: dark) {
  text { fill: #e6e9ee }
  .heading { fill: #a3adbb }
  .box { fill: #1f252d; stroke: #55606f }
  .weight { stroke: #2c639f }
  .label { stroke: #121212 }
}
""".strip()


def draw() -> str:
    """Return the picture as SVG text, the same on every machine."""
    scores = attention_steps(Q, K, V).scores
    shares = [round(share) for share in np.exp(scores)]  # the scores are ln 1, ln 2, ln 3
    weights = [Fraction(share, sum(shares)) for share in shares]
    output = "[" + ", ".join(str(entry) for entry in weights @ np.array(V)) + "]"
    score_labels = [f"ln {share}" for share in shares]
    weight_labels = [f"{share}/{sum(shares)}" for share in shares]

    lines, labels = [], []
    for j, weight in enumerate(weights):
        y = CENTRE + 88 * (j - 1)
        beside = y + 0.3 * (CENTRE - y)  # height of a line's label, nearer to the key's end
        lines += [
            curve("score", (66, CENTRE), (176, y), 2),
            curve("weight", (326, y), (448, CENTRE), THICKNESS * float(weight)),
        ]
        labels += [
            text(score_labels[j], COLUMNS["score"] + 12, beside, "label"),
            text(weight_labels[j], COLUMNS["weight"] - 14, beside, "label"),
            box(176, y, 150),
            f'<path class="box" d="M238,{y - 27} v54"/>',
            text(f'k<tspan dy="4" font-size="13">{j}</tspan>', COLUMNS["key"], y),
            text(str(V[j]), COLUMNS["value"], y),
        ]
    headings = [text(name, x, 24, "heading") for name, x in COLUMNS.items()]
    ends = [
        box(14, CENTRE, 52),
        text("q", COLUMNS["query"], CENTRE),
        box(448, CENTRE, 144),
        text(output, COLUMNS["output"], CENTRE),
    ]
    title = (
        f"One query meets three keys. Its scores {', '.join(score_labels)} become the weights "
        f"{', '.join(weight_labels)}, drawn as lines of that thickness. The values, mixed by these "
        f"weights, give the output {output}."
    )
    return document(title, [*lines, *labels, *headings, *ends])


def document(title: str, parts: list[str]) -> str:
    """Put the parts of a picture into an SVG file with a title and the book's colours."""
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{title}</title>",
        f"<style>\n{STYLE}\n</style>",
    ]
    return "\n".join([*head, *parts, "</svg>"]) + "\n"


def curve(kind: str, start: tuple[int, int], end: tuple[int, int], thickness: float) -> str:
    """Draw a line that leaves and arrives level."""
    (x0, y0), (x1, y1) = start, end
    middle = (x0 + x1) // 2
    path = f"M{x0},{y0} C{middle},{y0} {middle},{y1} {x1},{y1}"
    return f'<path class="{kind}" d="{path}" style="stroke-width: {thickness:.1f}px"/>'


def text(words: str, x: float, y: float, kind: str = "") -> str:
    """Write words with their centre at (x, y)."""
    of_kind = f' class="{kind}"' if kind else ""
    return f'<text{of_kind} x="{x:g}" y="{y + 6:g}">{words}</text>'


def box(x: int, y: int, width: int) -> str:
    """Draw a box whose left side has its middle at (x, y)."""
    return f'<rect class="box" x="{x}" y="{y - 27}" width="{width}" height="54" rx="8"/>'


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
