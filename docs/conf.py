"""Configuration of the site: `make docs` builds it from this folder into build/site."""

from __future__ import annotations

import contextlib
import io
import os
import re
import tempfile
from pathlib import Path
from typing import Any

from docutils.nodes import SkipNode
from latex2mathml.converter import convert

from fleetgym import __version__
from fleetgym.cli import main
from fleetgym.cli.verbs import VERBS
from tools.build_bounds_page import tables

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent

project = "fleetgym"
author = "The fleetgym authors"
copyright = author
version = release = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
exclude_patterns = ["data", "static", "templates", "conf.py", "made/numbers.md"]
templates_path = ["templates"]
html_theme = "furo"
html_title = f"fleetgym {__version__}"
html_static_path = ["static"]
html_js_files = ["access.js"]
html_css_files = ["access.css"]
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {"font-stack": "system-ui, sans-serif"},
    "dark_css_variables": {"font-stack": "system-ui, sans-serif"},
}

html_math_renderer = "mathml"

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_dmath_allow_space = myst_dmath_allow_digits = False  # so that "$290K" is money
myst_heading_anchors = 3
suppress_warnings = ["myst.header"]
nb_execution_mode = os.environ.get("FLEETGYM_NOTEBOOKS", "force")
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_execution_in_temp = True
nb_merge_streams = True
# Kernels report errors only. Each would warn that it talks to the builder over a local port without encryption.
settings = tempfile.TemporaryDirectory()
os.environ["IPYTHONDIR"] = settings.name
profile = Path(settings.name) / "profile_default"
profile.mkdir()
(profile / "ipython_kernel_config.py").write_text("get_config().IPKernelApp.log_level = 40\n")

autosummary_generate = True
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # numpydoc sections name the types
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_custom_sections = [
    "Action space",
    "Observation space",
    "Rewards",
    "Starting state",
    "Episode end",
    "Info",
]
default_role = "code"  # one backquote is code in docstrings, as in Markdown
copybutton_exclude = ".linenos, .gp, .go"

#: Files of other folders that the site shows, by page; the pages are written anew each time.
ELSEWHERE = {
    "made/contributing": ROOT / "CONTRIBUTING.md",
    "made/changelog": ROOT / "CHANGELOG.md",
    "made/instances": ROOT / "instances" / "README.md",
    "made/fleet-v1": ROOT / "instances" / "fleet-v1" / "README.md",
    "made/leaderboard-table": ROOT / "leaderboard" / "README.md",
    "made/tuning": ROOT / "leaderboard" / "tuning" / "README.md",
}
LINK = re.compile(r"\[([^\]\[]*)\]\(([^)#:\s]+)(#[^)]*)?\)")


def lead_inside(app: Any, page: str, source: list[str]) -> None:
    """Make links to files elsewhere lead to the pages that show them; what the site lacks stays a name."""
    origin = ELSEWHERE.get(page, HERE / f"{page}.md")
    shown = {path: name for name, path in ELSEWHERE.items()}

    def follow(link: re.Match[str]) -> str:
        path = Path(os.path.normpath(origin.parent / link[2]))
        if path in shown:
            path = HERE / f"{shown[path]}.md"
        if not path.is_relative_to(HERE):
            return link[1]
        return f"[{link[1]}]({os.path.relpath(path, (HERE / page).parent)}{link[3] or ''})"

    if not page.startswith("tutorials/"):
        source[0] = LINK.sub(follow, source[0])


def write_pages(app: Any) -> None:
    """Write the pages that stand elsewhere, the tables of numbers, and what every subcommand prints for --help."""
    (HERE / "made").mkdir(exist_ok=True)
    for page, path in ELSEWHERE.items():
        text = path.read_text(encoding="utf-8")
        if page == "made/leaderboard-table":  # the set that counts, and its sample
            text = text.partition("\n### fleet-v0/")[0]
            text += "\nThe repository's `leaderboard/README.md` has the other sets.\n"
        (HERE / f"{page}.md").write_text(text, encoding="utf-8")
    (HERE / "made" / "numbers.md").write_text(tables(), encoding="utf-8")
    os.environ["COLUMNS"] = "100"
    parts = ["# Command line\n", "What every subcommand prints for `--help`.\n"]
    for verb in VERBS:
        text = io.StringIO()
        with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
            main([verb, "--help"])
        parts.append(f"## fleetgym {verb}\n\n```text\n{text.getvalue().strip()}\n```\n")
    (HERE / "made" / "command-line.md").write_text("\n".join(parts), encoding="utf-8")


def write_formula(translator: Any, node: Any) -> None:
    """Write a formula as MathML, which browsers show without a script."""
    display = "block" if node.tagname == "math_block" else "inline"
    formula = convert(node.astext(), display=display)
    translator.body.append(f'<div class="formula">{formula}</div>' if display == "block" else formula)
    raise SkipNode


def setup(app: Any) -> None:
    """Connect the steps above."""
    app.add_html_math_renderer("mathml", (write_formula, None), (write_formula, None))
    app.connect("source-read", lead_inside)
    app.connect("builder-inited", write_pages)
