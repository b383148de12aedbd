"""Tags and text in, HTML or SVG out; whatever is not markup already is escaped, so no text can become a tag."""

from __future__ import annotations

import base64
import hashlib
import html
from importlib import resources

from fleetgym.files.errors import printable


class Markup(str):
    """Text that is markup: made by `tag`, `join` and `asset` alone."""


def escape(value: object) -> Markup:
    """Return a value as markup; what is no `Markup` is escaped, and so is what would reorder or hide text.

    Examples
    --------
    >>> escape("<b> & 'c'")
    '&lt;b&gt; &amp; &#x27;c&#x27;'
    """
    return (
        value
        if isinstance(value, Markup)
        else Markup(html.escape(printable(str(value), keep="\n\t\xa0"), quote=True))
    )


def join(*children: object) -> Markup:
    """Return markup in a row; None is left out."""
    return Markup("".join(escape(child) for child in children if child is not None))


def tag(element: str, /, *children: object, **attributes: object) -> Markup:
    """Return an element. Attributes that are None are left out; ``class_`` and ``data_x`` mean class and data-x.

    Examples
    --------
    >>> tag("td", "a < b", class_="name", data_value=1.5)
    '<td class="name" data-value="1.5">a &lt; b</td>'
    """
    parts = [element]
    for key, value in attributes.items():
        if value is not None:
            parts.append(f'{key.rstrip("_").replace("_", "-")}="{escape(value)}"')
    return Markup(f"<{' '.join(parts)}>{join(*children)}</{element}>")


def void(element: str, /, **attributes: object) -> Markup:
    """Return an element that has no content, such as ``<meta>``."""
    return Markup(tag(element, **attributes).removesuffix(f"</{element}>"))


def asset(name: str) -> str:
    """Return the text of a file in `assets`, line ends as on every system."""
    return resources.files("fleetgym.leaderboard").joinpath("assets", name).read_text(encoding="utf-8")


def page(title: str, body: Markup) -> str:
    """Return a whole document that needs nothing from outside and may run nothing but its own script.

    The content security policy names style and script by their hashes: no other script, style, frame, form or request
    can come to life, whatever the page's text says.
    """
    style, script = asset("page.css"), asset("page.js")
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    head = tag(
        "head",
        void("meta", charset="utf-8"),
        void("meta", http_equiv="Content-Security-Policy", content=policy),
        void("meta", name="viewport", content="width=device-width, initial-scale=1"),
        void("meta", name="referrer", content="no-referrer"),
        void("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", Markup(style)),
    )
    whole = tag("html", head, tag("body", body, tag("script", Markup(script))), lang="en")
    return f"<!DOCTYPE html>\n{whole}\n"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
