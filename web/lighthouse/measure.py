"""Have Lighthouse judge the pages of the built site: ``make lighthouse``.

The site is served compressed, as web servers do. Each page is visited several times as from a
desktop and as from a slow phone; the median counts. What does not depend on time is looked at in
the first visit alone. The numbers go to ``scores.json``, with the machine and the versions that
they come from. Timings depend on the machine: run it on an idle one.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # a script sees its own folder only

from benchmarks import machine  # noqa: E402
from web.paper.joined import pages_of  # noqa: E402
from web.status import notebooks  # noqa: E402
from web.tools import chromium  # noqa: E402
from web.tools.server import QuietHandler, served  # noqa: E402

HOME = Path(__file__).parent
SITE = ROOT / "_build/html"
SCORES = HOME / "scores.json"
TOOL = ROOT / "_build/lighthouse"
FORMS = {"desktop": ["--preset=desktop"], "mobile": []}
# What the project asks for: the least score of each page, in hundredths.
LEAST = {
    form: {"performance": least, "accessibility": 100, "best-practices": 100, "seo": 100}
    for form, least in {"desktop": 95, "mobile": 85}.items()
}
METRICS = {
    "first-contentful-paint": "first paint, ms",
    "largest-contentful-paint": "largest paint, ms",
    "total-blocking-time": "blocked, ms",
    "cumulative-layout-shift": "layout shift",
    "total-byte-weight": "bytes",
}


def main() -> None:
    """Measure, print a table, write the record, and fail where a page stays below its aim."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="visits of each page in each form")
    parser.add_argument("--pages", default="", help="only pages with this in their name")
    options = parser.parse_args()
    install()
    pages = [page for page in chapters() if options.pages in page]
    with served(SITE, CompressingHandler) as address:
        found = {page: measured(f"{address}/{page}.html", page, options.runs) for page in pages}
    state = machine.commit("chapters", "web", "_config.yml", "attnlib")
    record = {"date": machine.now(), **state, **conditions(), "runs": options.runs}
    record["pages"] = found
    print("\n".join(table(found)))
    if not options.pages:
        SCORES.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        print(f"written: {SCORES.relative_to(ROOT)}")
    if missed := list(below(found)):
        sys.exit("Below the aim:\n" + "\n".join(missed))


def chapters() -> list[str]:
    """Return the landing page and the chapters; the pages of reference have the same parts."""
    landing, *_ = pages_of((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    return [landing, *notebooks.pages()]


def install() -> None:
    """Have npm install the pinned Lighthouse in the build folder."""
    TOOL.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json", ".npmrc"):
        (TOOL / name).write_bytes((HOME / name).read_bytes())
    # Not `npm ci`: it asks for a peer of a dependency that the lock file rightly leaves out.
    subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error"], cwd=TOOL, check=True
    )


def measured(url: str, page: str, runs: int) -> dict[str, dict[str, float]]:
    """Return scores and metrics of one page in each form, the median of several visits."""
    found = {}
    for form, options in FORMS.items():
        whole = visited(url, options)
        quick = [*options, "--only-categories=performance"]
        visits = [whole, *(visited(url, quick) for _ in range(runs - 1))]
        timed = ("performance", *METRICS)
        medians = {key: statistics.median(visit[key] for visit in visits) for key in timed}
        found[form] = whole | medians
        print(f"{page} {form}: performance {found[form]['performance']:.0f}", flush=True)
    return found


def visited(url: str, options: list[str]) -> dict[str, float]:
    """Visit a page once; return its scores, in hundredths, and its metrics."""
    flags = " ".join(chromium.FLAGS)
    command = [
        TOOL / "node_modules/.bin/lighthouse",
        url,
        "--quiet",
        "--disable-full-page-screenshot",
    ]
    done = subprocess.run(
        [*command, "--output=json", "--output-path=stdout", f"--chrome-flags={flags}", *options],
        env={**os.environ, "CHROME_PATH": chromium.find()},
        capture_output=True,
        text=True,
        check=True,
    )
    report = json.loads(done.stdout)
    scores = {name: round(100 * one["score"]) for name, one in report["categories"].items()}
    metrics = {name: round(report["audits"][name]["numericValue"], 3) for name in METRICS}
    return scores | metrics


def below(found: dict[str, Any]) -> Iterator[str]:
    """Name every score that is lower than it should be."""
    for page, forms in found.items():
        for form, least in LEAST.items():
            for name, aim in least.items():
                if forms[form][name] < aim:
                    yield f"{page}, {form}: {name} {forms[form][name]:.0f}, aim {aim}"


def table(found: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a table of all numbers."""
    names = [*LEAST["desktop"], *METRICS]
    yield "| page | form | " + " | ".join(METRICS.get(name, name) for name in names) + " |"
    yield "|---|---|" + "---:|" * len(names)
    for page, forms in found.items():
        for form, numbers in forms.items():
            yield (
                f"| {page} | {form} | " + " | ".join(f"{numbers[name]:g}" for name in names) + " |"
            )


def conditions() -> dict[str, Any]:
    """Return machine and versions."""
    facts = machine.describe()
    browser = subprocess.run([chromium.find(), "--version"], capture_output=True, text=True)
    lock = json.loads((HOME / "package-lock.json").read_text(encoding="utf-8"))
    return {
        "machine": {name: facts[name] for name in ("processor", "cores", "system")},
        "browser": browser.stdout.strip(),
        "lighthouse": lock["packages"]["node_modules/lighthouse"]["version"],
    }


class CompressingHandler(QuietHandler):
    """Sends text compressed and lets a browser keep files, as servers of static sites do."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            self.send_error(404)
            return
        kind = self.guess_type(path)
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Cache-Control", "max-age=31536000")
        content = path.read_bytes()
        if kind.startswith("text/") or kind.endswith(("javascript", "json", "xml")):
            content = compressed(path)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@functools.cache
def compressed(path: Path) -> bytes:
    """Return the content of a file, compressed once."""
    return gzip.compress(path.read_bytes(), 6)


if __name__ == "__main__":
    main()
