"""Have Sphinx write the pages of the book as an EPUB wants them: XHTML, no scripts, no buttons."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from jupyter_book.config import get_final_config
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace, patch_docutils

ROOT = Path(__file__).resolve().parents[2]

# What belongs to a browser: buttons, scripts, previews.
UNWANTED = {
    "light_pages",
    "live_cells",
    "previews",
    "sphinx.ext.viewcode",
    "sphinx_book_theme",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_reredirects",
    "sphinx_thebe",
    "sphinx_togglebutton",
}
THEIR_SETTINGS = (
    "copybutton_selector",
    "live_left_out",
    "redirect_html_template_file",
    "redirects",
)


def write_pages(folder: Path, version: str, address: str) -> None:
    """Write the pages into a folder, with the package file that lists them."""
    with patch_docutils(None), docutils_namespace():
        app = application(folder, epub_config(version, address))
        app.build(force_all=True)
    if app.statuscode:
        raise SystemExit("The pages of the EPUB could not be written.")


def application(folder: Path, config: dict[str, Any]) -> Sphinx:
    """Return Sphinx, ready to write the pages into a folder."""
    app = Sphinx(
        srcdir=ROOT,
        confdir=None,
        outdir=folder,
        doctreedir=folder.with_name(f"{folder.name}.doctrees"),
        buildername="epub",
        confoverrides=config,
        status=None,
        warning=sys.stderr,
        freshenv=True,
        warningiserror=True,
        keep_going=True,
    )
    app.setup_extension("sphinx_multitoc_numbering")  # as Jupyter Book does: chapter numbers
    return app


def epub_config(version: str, address: str) -> dict[str, Any]:
    """Return the configuration of the site, less what belongs to a browser."""
    config, _ = get_final_config(
        user_yaml=ROOT / "_config.yml",
        sourcedir=ROOT,
        cli_config={"latex_individualpages": False},
    )
    config["extensions"] = [name for name in config["extensions"] if name not in UNWANTED]
    for name in THEIR_SETTINGS:
        del config[name]
    return {
        **config,
        "project": config["html_title"],
        "version": version,
        "release": version,
        "html_theme": "epub",
        "html_theme_options": {},
        "html_context": {},
        "html_static_path": [],
        "html_extra_path": [],
        "html_css_files": [],
        "html_js_files": [],
        "html_favicon": None,
        "html_logo": None,
        "html_permalinks": False,
        "pygments_style": "a11y-high-contrast-light",
        "epub_author": config["author"],
        "epub_basename": "book",
        "epub_description": config["myst_html_meta"]["description"],
        "epub_identifier": address,
        "epub_scheme": "URL",
        "epub_uid": "book",
        "epub_show_urls": "no",
        "epub_use_index": False,
        "html_domain_indices": False,
        "epub_copyright": config["copyright"],
    }
