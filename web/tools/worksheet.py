"""Write the worksheet: the running example by hand, with blanks, and its key.

Run as ``python web/tools/worksheet.py``. The page is stored and not made at build time, so that it
reads the same on GitHub; tests hold it equal to what this program writes, and its numbers to what
the library computes. Here everything is calculated in fractions, from the whole numbers
``e**score`` of the example.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "chapters" / "worksheet.md"

# The running example: a query a row. Head 1 of chapter 4 has the shares of the chapters before.
SHARES = [[1, 3, 2], [1, 2, 1], [1, 2, 3]]
VALUES = [[1, 2], [3, 0], [4, 5]]
SHARES_2 = [[1, 1, 1], [3, 1, 1], [1, 4, 1]]
VALUES_2 = [[2, 0], [0, 2], [1, 1]]
W_HEAD = [[1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1]]

Row = Sequence[Fraction | int]
NOTHING = "–"  # in a cell that stays empty, on the sheet and in the key

INTRODUCTION = """# Worksheet

One example, four steps, one sheet of paper. Print this page: the steps fill one side of A4. The key is
folded below them. Open it before you print, and it comes on a second page. The steps are explained in
[Chapter 1](01_single_query.ipynb), [2](02_causal.ipynb), [3](03_dense.ipynb) and
[4](04_multi_head.ipynb).
"""  # noqa: E501

GIVEN = r"""$$
Q = \begin{bmatrix} \ln 3 & \ln 2 & \ln 3 & \ln 2 \\ \ln 2 & 0 & \ln 2 & 0 \\ \ln 2 & \ln 3 & \ln 2 & \ln 3 \end{bmatrix}
\quad
K = \begin{bmatrix} 0 & 0 & 0 & 0 \\ 1 & 0 & 1 & 0 \\ 0 & 1 & 0 & 1 \end{bmatrix}
\quad
V = \begin{bmatrix} 1 & 2 \\ 3 & 0 \\ 4 & 5 \end{bmatrix}
$$

Three tokens, $d = 4$. A score is a dot product divided by $\sqrt4$, a share is $e^{\text{score}}$. A weight is
a share divided by the sum of the shares that the query may use. Remember $\ln 2 + \ln 2 = \ln 4$ and $e^{\ln 2} = 2$.
"""  # noqa: E501

HEADS = r"""Head 1 is step 3. Head 2 sees the same tokens through other projections, with $d_h = 2$:

$$
Q^{[2]} = \sqrt2 \begin{bmatrix} 0 & 0 \\ \ln 3 & 0 \\ 0 & \ln 4 \end{bmatrix}
\;
K^{[2]} = \begin{bmatrix} 1 & 0 \\ 0 & 1 \\ 0 & 0 \end{bmatrix}
\;
V^{[2]} = \begin{bmatrix} 2 & 0 \\ 0 & 2 \\ 1 & 1 \end{bmatrix}
\;
W^{head} = \begin{bmatrix} 1 & 0 & 0 & 0 \\ 0 & 1 & 0 & 0 \\ 1 & 0 & 1 & 0 \\ 0 & 1 & 0 & 1 \end{bmatrix}
$$
"""  # noqa: E501


def weights(shares: Row) -> list[Fraction]:
    """Return each share, divided by the sum of all."""
    return [Fraction(share, sum(shares)) for share in shares]


def mix(coefficients: Row, rows: Sequence[Row]) -> list[Fraction]:
    """Return the weighted sum of rows: a row vector times a matrix."""
    columns = zip(*rows, strict=True)
    return [Fraction(sum(c * e for c, e in zip(coefficients, col, strict=True))) for col in columns]


def tex(number: Fraction | int, over: int | None = None) -> str:
    """Return a number as TeX, over a given denominator or in lowest terms."""
    top, bottom = (number * over, over) if over else Fraction(number).as_integer_ratio()
    return f"{top}" if bottom == 1 else rf"\tfrac{{{top}}}{{{bottom}}}"


def vector(row: Row) -> str:
    """Return a row in brackets."""
    return f"[{', '.join(map(tex, row))}]"


def decimals(row: Row) -> str:
    """Return numbers rounded to four digits, and a sign that says whether they are rounded."""
    rounded = [Fraction(round(float(e), 4)).limit_denominator(10**4) for e in row]
    sign = "=" if rounded == list(row) else "≈"
    return f"{sign} {', '.join(f'{float(e):.4f}'.rstrip('0').rstrip('.') for e in rounded)}"


def both(exact: str, row: Row) -> str:
    """Return a row as fractions and, where it is not whole, as decimals."""
    return f"${exact}$" if all(e == int(e) for e in row) else f"${exact}$ {decimals(row)}"


def output_cell(row: Row) -> str:
    """Return an output in lowest terms."""
    return both(vector(row), row)


def weights_cell(shares: Row) -> str:
    """Return weights over their common denominator."""
    exact = weights(shares)
    return both(", ".join(tex(weight, sum(shares)) for weight in exact), exact)


def table(header: str, rows: Sequence[Sequence[str]], *, known: int | None = None) -> str:
    """Return a Markdown table; beyond the first `known` cells of a row leave blanks to fill."""
    names = header.split(" | ")
    lines = [f"| {header} |", "|" + ":-:|" * len(names)]
    for row in rows:
        shown = [
            known is None or place < known or cell == NOTHING for place, cell in enumerate(row)
        ]
        cells = [cell if show else " " for show, cell in zip(shown, row, strict=True)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def one_query() -> list[list[str]]:
    """Return the rows of step 1, for the last query; the values stand in the second place."""
    shares, rows = SHARES[2], []
    for j, (share, value) in enumerate(zip(shares, VALUES, strict=True)):
        weight = Fraction(share, sum(shares))
        part = ", ".join(tex(weight * entry, sum(shares)) for entry in value)
        dot, score = rf"$\ln {share**2}$", rf"$\ln {share}$"
        cell = f"${tex(weight, sum(shares))}$"
        rows.append([str(j), f"${vector(value)}$", dot, score, str(share), cell, f"$[{part}]$"])
    output = output_cell(mix(weights(shares), VALUES))
    return [*rows, ["sum", *[NOTHING] * 3, str(sum(shares)), "1", output]]


def all_queries(shares: Sequence[Row], values: Sequence[Row], *, causal: bool) -> list[list[str]]:
    """Return a row for each query: shares, their sum, weights, output."""
    rows = []
    for i, row in enumerate(shares):
        used = row[: i + 1] if causal else row
        crossed = [str(e) if j < len(used) else "✗" for j, e in enumerate(row)]
        output = output_cell(mix(weights(used), values[: len(used)]))
        rows.append([f"$q_{i}$", ", ".join(crossed), str(sum(used)), weights_cell(used), output])
    return rows


def merged() -> list[list[str]]:
    """Return a row for each token: the heads side by side, and their product with W^head."""
    rows = []
    for i, (first, second) in enumerate(zip(SHARES, SHARES_2, strict=True)):
        side_by_side = [*mix(weights(first), VALUES), *mix(weights(second), VALUES_2)]
        output = output_cell(mix(side_by_side, W_HEAD))
        rows.append([f"token {i}", f"${vector(side_by_side)}$", output])
    return rows


def steps(*, key: bool) -> str:
    """Return the four steps, with blanks or with the answers."""
    title = "**{}. {}**{}".format
    queries = "query | shares | sum | weights | output"
    blank = None if key else 1
    parts = [
        title(1, "One query.", "" if key else " The last token asks: its query is $q_2$."),
        table(
            "token | value | dot product | score | share | weight | weight × value",
            one_query(),
            known=None if key else 2,
        ),
        title(2, "Causal.", "" if key else " Cross out the shares of later tokens before you add."),
        table(queries, all_queries(SHARES, VALUES, causal=True), known=blank),
        title(3, "Dense.", "" if key else " Now all shares count."),
        table(queries, all_queries(SHARES, VALUES, causal=False), known=blank),
        title(4, "Two heads.", "" if key else " " + HEADS),
        table(queries, all_queries(SHARES_2, VALUES_2, causal=False), known=blank),
        table("token | merged heads | merged × $W^{head}$", merged(), known=blank),
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def worksheet() -> str:
    """Return the whole page."""
    return f"""{INTRODUCTION}
::::{{container}} worksheet
{GIVEN}
{steps(key=False)}
::::

<details class="worksheet-key"><summary>Key: fractions and decimals</summary>

::::{{container}} worksheet
{steps(key=True)}
::::

</details>
"""


if __name__ == "__main__":
    PAGE.write_text(worksheet(), encoding="utf-8")
