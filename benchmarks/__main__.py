"""``python -m benchmarks``: measure, print the tables, write the record."""

import argparse
import json
import sys
from pathlib import Path

from benchmarks import machine, run, sweep, tables

RECORD = machine.ROOT / "attnlib" / "teaching" / "records" / "speed.json"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit status says whether everything could be measured."""
    options = _parser().parse_args(arguments)
    if options.show:
        print(tables.report(json.loads(options.show.read_text(encoding="utf-8"))))
        return 0
    rows = run.chosen(options.rows)
    if options.list:
        print("\n".join(f"{table}: {group.name}: {row.name}" for table, group, row in rows))
        return 0
    whole = options.rows == ""
    lengths = sweep.LENGTHS if whole or options.sweep else ()
    record = run.measure_all(rows, lengths, budget="quick" if options.quick else "full")
    print(tables.report(record))
    path = options.output
    if path is None and whole and not options.quick and not record["interrupted"]:
        path = RECORD
    if path is not None:
        path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        print(f"written: {path}")
    return int(record["interrupted"] or any("error" in row for row in record["rows"]))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    add = parser.add_argument
    add("--rows", default="", metavar="PATTERN", help="only rows whose name matches")
    add("--quick", action="store_true", help="three rounds a row: a first look, nothing written")
    add("--sweep", action="store_true", help="with --rows: the sweep over lengths too")
    add("--list", action="store_true", help="print the names of the rows, measure nothing")
    add("--show", type=Path, metavar="FILE", help="print the tables of a record")
    add("--output", type=Path, metavar="FILE", help="where the record goes")
    return parser


if __name__ == "__main__":
    sys.exit(main())
