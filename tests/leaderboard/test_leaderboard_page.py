"""The leaderboard's page in a real browser: sorted, filtered, looked at in two widths, and safe from what it shows."""

from __future__ import annotations

import html.parser
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from browser import Browser, chromium
from submissions import make_good

from fleetgym.leaderboard.charts import tag
from fleetgym.leaderboard.columns import titles
from fleetgym.leaderboard.pages import render
from fleetgym.leaderboard.site import build_site
from fleetgym.leaderboard.submission import AgentCard
from fleetgym.leaderboard.verify import verify

#: What could run in a page, in every field that holds free text.
ATTACKS = {
    "authors": "\"><img src=x onerror='window.owned=2'>",
    "contact": "</td></table></main><svg onload=window.owned=3>",
    "description": "<style>*{display:none}</style><iframe srcdoc='<script>parent.owned=4</script>'></iframe>",
}
#: Agent, division, time class; the last one attacks.
ROWS = (("hold", "one-shot"), ("gh", "one-shot"), ("gh-rolling", "closed"), ("random", "open"))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page of four rows, one of them hostile in all its words."""
    board = tmp_path_factory.mktemp("board")
    for agent, division in ROWS:
        folder = board / "submissions" / f"2026-11-21-{agent}"
        make_good(folder, agent, **(ATTACKS if agent == "random" else {}))
        if division != "closed":
            text = (folder / "submission.toml").read_text()
            (folder / "submission.toml").write_text(text.replace('"closed"', f'"{division}"'))
        verify(folder, out=board / "verified")
    (board / "withdrawn.toml").write_text(
        '[[withdrawn]]\nid = "2026-11-01-x"\ndate = "2026-12-01"\nreason = "<script>window.owned=5</script>"\n'
    )
    return build_site(board)


@pytest.fixture(scope="module")
def browser(page: Path) -> Iterator[Browser]:
    """Return a browser that shows the page from the disk."""
    with chromium() as found:
        found.resize(1280, 1000)
        found.open(page)
        yield found


def shown(browser: Browser, column: int = 1) -> list[str]:
    """Return what the visible rows of the first filtered table hold in a column."""
    return browser.run(
        "const rows = [...document.querySelector('table.filtered').tBodies[0].rows];"
        "return rows.filter(r => r.getClientRects().length).map(r => r.cells[arguments[0]].innerText)",
        column,
    )


def click(browser: Browser, head: str) -> None:
    """Press a column's head."""
    browser.run(
        "const heads = [...document.querySelector('table.filtered').tHead.rows[0].cells];"
        "heads.find(h => h.innerText.trim() === arguments[0]).querySelector('button').click()",
        head,
    )


def choose(browser: Browser, name: str, word: str) -> None:
    """Choose a word of a filter."""
    browser.run(
        "const s = document.querySelector(`select[data-filter=${arguments[0]}]`); s.value = arguments[1];"
        "s.dispatchEvent(new Event('change'))",
        name,
        word,
    )


class _Tags(html.parser.HTMLParser):
    def __init__(self, text: str):
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((name, dict(attributes)))


def test_only_our_own_tags(page: Path) -> None:
    """One script, one style, no frame or picture from anywhere, no attribute that runs or leads outside."""
    tags = _Tags(page.read_text(encoding="utf-8")).found
    names = [name for name, _ in tags]
    assert names.count("script") == names.count("style") == 1
    assert not {"iframe", "img", "object", "embed", "form", "base", "link"} & set(names)
    for _, attributes in tags:
        assert not [key for key in attributes if key.startswith("on") or key == "style"]
        assert (attributes.get("href") or "https://").startswith(("https://", "data:", "#", "../"))
    policy = next(a["content"] for _, a in tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy


def test_markup_escapes() -> None:
    """Text and attributes are escaped, markup is not escaped twice."""
    assert tag("a", "<b>", href='"x') == '<a href="&#34;x">&lt;b&gt;</a>'
    assert tag("p", tag("b", "&")) == "<p><b>&amp;</b></p>"
    hostile = '<b onload="x">\u202e'
    shown = render("table.html", columns=[], lines=[], filtered=False, empty=hostile, label=hostile)
    assert shown.count("&lt;b onload=&#34;x&#34;&gt;\\u202e") == 2


def test_nothing_of_a_submission_runs(browser: Browser) -> None:
    """Scripts, handlers, styles and frames in any text are shown as text; the console has nothing to say."""
    assert browser.run("return window.owned === undefined")
    assert (
        browser.run(
            "return document.querySelectorAll('iframe, img, td svg:not(.bar), td script, td style').length"
        )
        == 0
    )
    text = browser.run("return document.querySelector('main').textContent")
    for attack in [*ATTACKS.values(), "<script>window.owned=5</script>"]:
        assert attack in text
    assert browser.log() == []


def test_the_policy_holds(browser: Browser) -> None:
    """Even if a script or a handler got into the page, it would not run, and nothing could be fetched."""
    browser.run(
        "const s = document.createElement('script'); s.textContent = 'window.owned = 6'; document.body.append(s);"
        "const d = document.createElement('div'); d.innerHTML = '<img src=https://x.invalid/ onerror=window.owned=7>';"
        "document.body.append(d);"
    )
    browser.run("return new Promise(done => setTimeout(done, 300))")
    assert browser.run("return window.owned === undefined")
    assert any("Content Security Policy" in message for message in browser.log())


def test_sorting(browser: Browser, page: Path) -> None:
    """A press sorts by number, another one turns it round, a third column sorts by text."""
    browser.open(page)
    scores = [float(text) for text in shown(browser, 2)]
    assert scores == sorted(scores)
    click(browser, "score %")
    click(browser, "score %")
    assert [float(text) for text in shown(browser, 2)] == sorted(scores, reverse=True)
    click(browser, "agent")
    assert shown(browser) == sorted(shown(browser), key=str.lower)
    heads = "return [...document.querySelectorAll('table.filtered th[aria-sort]')].map(h => h.innerText)"
    assert browser.run(heads) == ["agent"]
    click(browser, "cost USD")
    costs = [float(text.replace(",", "")) for text in shown(browser, 6)]
    assert costs == sorted(costs)


def test_filters(browser: Browser, page: Path) -> None:
    """Each filter hides the others' rows; where none is left, a note says so."""
    browser.open(page)
    assert len(shown(browser)) == 4
    choose(browser, "division", "one-shot")
    assert sorted(shown(browser)) == ["gh", "hold"]
    choose(browser, "time", "offline")
    assert shown(browser) == []
    note = "return document.querySelector('table.filtered').parentElement.nextElementSibling.innerText"
    assert browser.run(note) == "No row is of this name, division and time class."
    choose(browser, "time", "")
    choose(browser, "division", "closed")
    assert shown(browser) == ["gh-rolling"]


def test_search_and_columns(browser: Browser, page: Path) -> None:
    """Part of a name finds its rows; a column that is not wanted goes and comes back, in every table."""
    browser.open(page)
    write = (
        "const i = document.querySelector('input[data-search]'); i.value = arguments[0];"
        "i.dispatchEvent(new Event('input'))"
    )
    browser.run(write, "ROLL")
    assert shown(browser) == ["gh-rolling"]
    browser.run(write, "")
    assert len(shown(browser)) == 4
    heads = (
        "const all = [...document.querySelectorAll('table.filtered th[scope=col]')];"
        "return all.filter(h => h.offsetWidth).map(h => h.textContent)"
    )
    tick = (
        "const found = [...document.querySelectorAll('.picker label')].find(l => l.textContent === arguments[0]);"
        "document.querySelector('details.columns').open = true; found.querySelector('input').click()"
    )
    before = browser.run(heads)
    browser.run(tick, "division")
    assert browser.run(heads) == [head for head in before if head != "division"]
    browser.run(tick, "division")
    assert browser.run(heads) == before


def test_contents_and_links_lead_somewhere(browser: Browser, page: Path) -> None:
    """Every place in the contents exists, and so does every file that a row leads to."""
    browser.open(page)
    inside = (
        "const all = [...document.querySelectorAll('a[href^=\"#\"]')];"
        "return all.map(a => document.getElementById(a.hash.slice(1)) !== null)"
    )
    found = browser.run(inside)
    assert len(found) > 3
    assert all(found)
    files = browser.run(
        "return [...document.querySelectorAll('td a[href^=\"..\"]')].map(a => a.getAttribute('href'))"
    )
    assert any(name.endswith("README.md") for name in files)
    assert any(name.startswith("../verified/") for name in files)
    assert all((page.parent / name).exists() for name in files)


def test_every_row_has_its_interval_drawn(page: Path) -> None:
    """A bar stands beside each interval, and rows of every other rank are shaded."""
    text = page.read_text(encoding="utf-8")
    assert text.count('class="bar"') == text.count("</svg>") - 2


@pytest.mark.parametrize("width", [1280, 390])
def test_keys_reach_every_control(browser: Browser, page: Path, width: int) -> None:
    """Tab visits links, filters, heads and what scrolls; each shows that it has the focus, and each has a name."""
    browser.resize(width, 900)
    browser.open(page)
    browser.run(
        "document.querySelectorAll('details').forEach(d => { d.open = true }); window.visited = new Set()"
    )
    browser.run("document.addEventListener('focusin', e => window.visited.add(e.target))")
    look = (
        "const e = document.activeElement, s = getComputedStyle(e);"
        "return e === document.body || e === document.documentElement ? null"
        " : [s.outlineStyle, parseFloat(s.outlineWidth), e.outerHTML.slice(0, 80)]"
    )
    for _ in range(400):
        browser.press("Tab")
        seen = browser.run(look)
        if seen is None:
            break
        assert seen[0] != "none", seen
        assert seen[1] >= 1, seen
    missed = (
        "const all = 'a[href], button, input, select, summary';"
        "const boxes = [...document.querySelectorAll('.scroll, figure, pre')];"
        "return [...document.querySelectorAll(all), ...boxes.filter(b => b.scrollWidth > b.clientWidth)]"
        ".filter(e => e.getClientRects().length && !window.visited.has(e)).map(e => e.outerHTML.slice(0, 80))"
    )
    assert browser.run(missed) == []
    unnamed = "return [...document.querySelectorAll('input, select')].filter(e => !e.closest('label')).length"
    assert browser.run(unnamed) == 0


def test_structure(browser: Browser, page: Path) -> None:
    """One heading of the first order, none left out below it, heads with a scope, a language, landmarks."""
    browser.open(page)
    levels = browser.run(
        "return [...document.querySelectorAll('h1, h2, h3, h4')].map(h => Number(h.tagName[1]))"
    )
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in zip(levels, levels[1:], strict=False))
    assert browser.run("return document.documentElement.lang") == "en"
    assert browser.run("return document.querySelectorAll('main').length") == 1
    assert browser.run("return document.querySelectorAll('th:not([scope])').length") == 0
    assert (
        browser.run("return document.querySelectorAll('svg:not([aria-hidden]):not([role=img] )').length") == 0
    )
    ids = browser.run("return [...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(set(ids)) == len(ids)


#: The contrast of all text that can be seen with what it stands on, by WCAG 2; what is clear lets its parent through.
CONTRASTS = """
const parse = c => { const v = c.match(/[0-9.]+/g).map(Number); return v.length === 3 ? [...v, 1] : v; };
const linear = x => x <= .04045 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4;
const light = v => { const l = v.slice(0, 3).map(x => linear(x / 255));
  return .2126 * l[0] + .7152 * l[1] + .0722 * l[2]; };
const bad = [];
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) {
  const e = texts.currentNode.parentElement;
  if (!texts.currentNode.data.trim() || !e.getClientRects().length || e.closest('svg, script, style')) continue;
  let ground = e;
  while (ground !== null && parse(getComputedStyle(ground).backgroundColor)[3] === 0) ground = ground.parentElement;
  const under = ground === null ? [255, 255, 255] : parse(getComputedStyle(ground).backgroundColor);
  const [high, low] = [light(parse(getComputedStyle(e).color)), light(under)].sort((a, b) => b - a);
  if ((high + .05) / (low + .05) < 4.5) bad.push([e.outerHTML.slice(0, 80), (high + .05) / (low + .05)]);
}
return bad;
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(browser: Browser, page: Path, scheme: str) -> None:
    """Every text can be read on its ground: 4.5 to 1 at least (WCAG AA)."""
    browser.prefer(scheme)
    browser.open(page)
    browser.run("for (const d of document.querySelectorAll('details')) d.open = true")
    assert browser.run(CONTRASTS) == []


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_widths_and_colours(browser: Browser, page: Path, width: int, scheme: str, tmp_path: Path) -> None:
    """Nothing sticks out sideways, text can be read on its ground, and the picture is not blank."""
    browser.prefer(scheme)
    browser.resize(width, 900)
    browser.open(page)
    assert browser.run("return document.documentElement.scrollWidth") <= width
    small = (
        "const size = e => parseFloat(getComputedStyle(e).fontSize);"
        "return Math.min(...[...document.querySelectorAll('p, td')].map(size))"
    )
    assert browser.run(small) >= 12
    light = "const c = e => getComputedStyle(e).{}.match(/[0-9.]+/g).map(Number); return c(document.body)"
    ink, ground = (browser.run(light.format(part)) for part in ("color", "backgroundColor"))
    assert contrast(ink[:3], ground[:3]) > 7
    browser.screenshot(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 20_000


def contrast(one: list[float], other: list[float]) -> float:
    """Return the contrast of two colours (WCAG 2)."""

    def luminance(colour: list[float]) -> float:
        linear = [
            c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in colour)
        ]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_without_its_script_the_page_still_shows_all(page: Path) -> None:
    """Rows are in the document itself, the best first: a reader without scripts misses sorting only."""
    text = page.read_text(encoding="utf-8").partition("<script>")[0]
    assert all(
        f'title="{head}"' in text or f">{head}</button>" in text for head in ("agent", "score %", "division")
    )
    assert text.count("<tr data-division=") == 4


def test_pictures_tell_an_agents_variants_apart() -> None:
    """By variant where that is enough, else by submission: no two curves share a name."""
    known = {"a": ("gh", "tuned"), "b": ("gh", "as published"), "c": ("gh", "tuned"), "d": ("hold", "")}
    cards = {
        key: AgentCard(name=name, variant=variant, entry=name, division="closed", time_class="reflex")
        for key, (name, variant) in known.items()
    }
    records = {key: SimpleNamespace(submission=SimpleNamespace(agent=card)) for key, card in cards.items()}
    found = titles([SimpleNamespace(key=key) for key in known], records)  # type: ignore[arg-type]
    assert found == ["gh tuned (a)", "gh as published", "gh tuned (c)", "hold"]
