"""The site of these pages, as Sphinx reads it: `make docs`.

The pages are the Markdown that a reader of the repository sees, with nothing in it for Sphinx alone. So the menu is
made here, from the table "Every page" of docs/README.md; below the README of a folder are that folder's pages.
"""

import os
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

project = "pith"
copyright = "the pith authors"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "docs/README"
include_patterns = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "docs/**.md"]
# What is large and has no page: else each build walks through all of it.
exclude_patterns = [name for name in os.listdir(ROOT) if (ROOT / name).is_dir() and name != "docs"]

myst_heading_anchors = 6
# A command with a quoted JSON body over several lines is coloured as far as the lexer goes.
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
html_title = "pith"
html_static_path = [str(Path(__file__).parent / "static")]
html_css_files = ["site.css"]
html_search_scorer = str(Path(__file__).parent / "scorer.js")
html_copy_source = False
html_show_sourcelink = False
html_use_index = False
# Python's own objects are documented where they are written.
html_domain_indices = False

SUBJECT = re.compile(r"^\| \*(.+)\* \|", re.MULTILINE)
PAGE = re.compile(r"^\| \[[^\]]*\]\(([^)#]+)\.md\) \|", re.MULTILINE)
OTHERS = ("../CONTRIBUTING", "../SECURITY", "../CHANGELOG")


def menu(index: str) -> str:
    """Toctrees by subject, of the pages that the index lists. Raises ValueError for an index without its table."""
    _, *parts = SUBJECT.split(index.split("\n## Every page\n")[1])
    subjects = zip(parts[::2], parts[1::2], strict=True)
    trees = [toctree(subject, PAGE.findall(rows)) for subject, rows in subjects]
    return "\n\n".join(
        [toctree("Start", ["Quick start <../README>"]), *trees, toctree("The project", list(OTHERS))]
    )


def toctree(caption: str, pages: list[str]) -> str:
    return "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```"])


def add_menu(app, docname, source):
    if docname == root_doc:
        source[0] += "\n\n" + menu(source[0])
    elif docname.endswith("/README") and len(list((ROOT / docname).parent.glob("*.md"))) > 1:
        source[0] += "\n\n```{toctree}\n:hidden:\n:glob:\n\n*\n```"


def write_entrance(app, exception):
    """The site's address opens the index of the pages, from a file and from a server alike."""
    if exception is None:
        to = f"{root_doc}.html"
        head = f'<!doctype html><meta charset="utf-8"><title>pith</title><meta http-equiv="refresh" content="0;{to}">'
        (Path(app.outdir) / "index.html").write_text(f'{head}\n<a href="{to}">pith</a>\n')


# What a screen reader or a keyboard misses in the theme's pages.
MENDED = {
    'class="caption" role="heading"': 'class="caption" role="heading" aria-level="2"',
    '<aside class="sidebar-drawer"': '<aside class="sidebar-drawer" aria-label="Pages"',
    '<aside class="toc-drawer': '<aside aria-label="On this page" class="toc-drawer',
    "<pre>": '<pre tabindex="0">',
}


def mend(app, exception):
    for path in Path(app.outdir).rglob("*.html"):
        text = path.read_text()
        for given, better in MENDED.items():
            text = text.replace(given, better)
        path.write_text(text)


def setup(app):
    app.connect("source-read", add_menu)
    app.connect("build-finished", mend)
    app.connect("build-finished", write_entrance)
