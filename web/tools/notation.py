"""Write the tables of the notation page from the one list of all symbols.

Run as ``python web/tools/notation.py`` after a change of chapters/notation.toml. The prose of the
page is the page's own; only what stands between the marks ``<!-- symbols -->`` and
``<!-- end of symbols -->`` is replaced. The page is stored and not made at build time, so that it
reads the same on GitHub; a test holds it equal to what this program writes.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

CHAPTERS = Path(__file__).resolve().parents[2] / "chapters"
TABLE, PAGE = CHAPTERS / "notation.toml", CHAPTERS / "notation.md"

# What stands above the columns: heading by field of the table.
COLUMNS = {
    "symbols": {
        "symbol": "symbol",
        "meaning": "meaning",
        "shape": "shape",
        "code": "name in code",
    },
    "signs": {"sign": "sign", "meaning": "meaning"},
    "axes": {"letter": "letter", "axis": "axis", "symbol": "the book's symbol"},
}


def with_tables(page: str, notation: dict) -> str:
    """Return the page with each of its marked tables made anew."""
    for name, columns in COLUMNS.items():
        marked = re.compile(rf"(<!-- {name} -->\n).*?(\n<!-- end of {name} -->)", re.DOTALL)
        rows = [[entry[field] for field in columns] for entry in notation[name]]
        table = markdown_table(list(columns.values()), rows)
        page, count = marked.subn(lambda m, t=table: f"{m[1]}\n{t}\n{m[2]}", page)
        if count != 1:
            raise ValueError(f"the page has {count} places marked for the table {name!r}, not 1")
    return page


def markdown_table(headings: list[str], rows: list[list[str]]) -> str:
    """Return a table in Markdown, a line for each row."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def main() -> None:
    """Rewrite the page in place."""
    notation = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_tables(page, notation), encoding="utf-8")


if __name__ == "__main__":
    main()
