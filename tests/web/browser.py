"""Opening the pages of a folder in Chromium, and what there is to see in each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from playwright.sync_api import BrowserContext, Page, Playwright, sync_playwright

from tests.web.accessibility import violations
from web.tools import chromium

HEIGHT = 900
PHONE, NARROWEST = 360, 320  # the width of a phone, and of one in large type

# Read in the page itself.
LOOK = r"""async () => {
  await document.fonts.ready;
  const all_at_once = document.createElement("style"); // what is far from the screen counts too
  all_at_once.textContent = "* { content-visibility: visible !important }";
  document.head.append(all_at_once);
  const text = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const apart = "pre, code, script, style, noscript, mjx-container, .cell_output";
  while (walker.nextNode())
    if (!walker.currentNode.parentElement.closest(apart)) text.push(walker.currentNode.data);
  const all = (selector) => [...document.querySelectorAll(selector)];
  return {
    theme: document.documentElement.dataset.theme,
    background: getComputedStyle(document.body).backgroundColor,
    width: document.documentElement.scrollWidth,
    formulas: all(".math").length,
    set: all(".math mjx-container").length,
    mistakes: all("mjx-merror, [data-mjx-error]").map((node) => node.outerHTML.slice(0, 200)),
    text: text.join("\n"),
    images: all(".bd-article img, .bd-article svg[role=img]").map((image) => ({
      source: image.getAttribute("src") ?? "svg",
      description: image.alt ?? image.querySelector("title")?.textContent ?? "",
      loaded: image.tagName !== "IMG" || image.naturalWidth > 0,
    })),
  };
}"""


@dataclass(frozen=True)
class View:
    """A page as one reader opens it."""

    page: str
    width: int = 1280
    scheme: str = "light"

    def __str__(self) -> str:
        return f"{self.page}-{self.width}-{self.scheme}"


@dataclass
class Visit:
    """What was seen and heard while a page was open."""

    errors: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    seen: dict = field(default_factory=dict)


@contextmanager
def chromium_browser() -> Iterator[BrowserContext]:
    """Start the Chromium that this machine has, with an empty profile."""
    path = chromium.find()
    assert path, "no Chromium found; run: make browser"
    with _playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[*chromium.FLAGS])
        yield browser.new_context()
        browser.close()


_running: list[Playwright] = []
_users = 0


@contextmanager
def _playwright() -> Iterator[Playwright]:
    """The one Playwright of this process: a second beside it would refuse to start.

    It stops with its last user, since the event loop that it runs would be in the way of others.
    """
    global _users
    if not _users:
        _running.append(sync_playwright().start())
    _users += 1
    try:
        yield _running[-1]
    finally:
        _users -= 1
        if not _users:
            _running.pop().stop()


@contextmanager
def opened(
    browser: BrowserContext, view: View, home: str, query: str = ""
) -> Iterator[tuple[Page, Visit]]:
    """Open a page below the URL `home` and listen to its errors and requests."""
    visit = Visit()
    page = browser.new_page()
    page.set_viewport_size({"width": view.width, "height": HEIGHT})
    page.emulate_media(color_scheme=view.scheme)
    page.on("console", lambda said: said.type == "error" and visit.errors.append(said.text))
    page.on("pageerror", lambda error: visit.errors.append(str(error)))
    page.on("requestfailed", lambda request: visit.errors.append(f"not loaded: {request.url}"))
    page.on("request", lambda request: visit.asked.append(request.url))
    page.on("request", lambda request: note_foreign(request.url, home, visit))
    page.route(lambda url: is_foreign(url, home), lambda route: route.abort())
    page.goto(f"{home}/{view.page}.html{query}", wait_until="load")
    yield page, visit
    page.close()


def is_foreign(url: str, home: str) -> bool:
    """Tell whether a request leaves the site; data in the page itself does not."""
    asked, own = urlsplit(url), urlsplit(home)
    return asked.scheme not in {"data", "blob"} and asked[:2] != own[:2]


def note_foreign(url: str, home: str, visit: Visit) -> None:
    """Remember a request that leaves the site."""
    if is_foreign(url, home):
        visit.foreign.append(url)


def look(browser: BrowserContext, view: View, home: str) -> Visit:
    """Open a page, wait until it has settled, and return all there is to see.

    Only a page that is opened from a server is checked for accessibility as well.
    """
    with opened(browser, view, home) as (page, visit):
        visit.seen = page.evaluate(LOOK)
        if view.width == PHONE:
            page.set_viewport_size({"width": NARROWEST, "height": HEIGHT})
            visit.seen["narrowest"] = page.evaluate("document.documentElement.scrollWidth")
            page.set_viewport_size({"width": view.width, "height": HEIGHT})
        if home.startswith("http"):
            visit.seen["violations"] = violations(page, view.page, view.scheme)
    return visit
