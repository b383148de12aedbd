"""What the site adds to its theme, in a real browser: what scrolls is reached by keys, spoken pages have levels."""

from __future__ import annotations

from pathlib import Path

from browser import chromium
from places import ROOT

STATIC = ROOT / "docs" / "static"
PAGE = """<!DOCTYPE html><html lang="en"><head><title>t</title>
<script src="{script}"></script><link rel="stylesheet" href="{style}">
<style>pre, .table-wrapper {{ overflow-x: auto; width: 200px }}</style></head><body>
<div class="content-icon-container"></div>
<aside class="sidebar-drawer"><p class="caption" role="heading">Start</p></aside>
<main><pre>{wide}</pre><pre>short</pre>
<div class="table-wrapper"><table><tr><th></th></tr><tr><td>{wide}</td></tr></table></div></main>
<aside class="toc-drawer"></aside></body></html>"""


def test_what_scrolls_is_reached_by_keys(tmp_path: Path) -> None:
    """Wide listings and tables are stops for Tab and show it; narrow ones are not."""
    page = tmp_path / "page.html"
    script, style = ((STATIC / name).as_uri() for name in ("access.js", "access.css"))
    page.write_text(PAGE.format(script=script, style=style, wide="x" * 200))
    with chromium() as browser:
        browser.open(page)
        stops = "return [...document.querySelectorAll('pre, .table-wrapper')].map(e => e.tabIndex)"
        assert browser.run(stops) == [0, -1, 0]
        browser.press("Tab")
        seen = (
            "return [document.activeElement.tagName, getComputedStyle(document.activeElement).outlineStyle]"
        )
        assert browser.run(seen) == ["PRE", "solid"]
        assert browser.run("return document.querySelector('.caption').getAttribute('aria-level')") == "2"
        names = browser.run("return [...document.querySelectorAll('aside')].map(e => e.ariaLabel)")
        assert names == ["All pages", "On this page"]
        roles = "return ['th', '.content-icon-container'].map(e => document.querySelector(e).getAttribute('role'))"
        assert browser.run(roles) == ["cell", "navigation"]
