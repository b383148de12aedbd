"""The pages in docs/environments are those that the docstrings make, and the docstrings tell the truth."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import gymnasium
import pytest

from tools import build_env_docs as docs

IDS = docs.environment_ids()


def test_every_environment_has_a_page() -> None:
    """All registered ids are documented."""
    assert {"FleetAlloc-v0", "FleetAlloc-v1"} <= set(IDS)
    assert {docs.file_name(env_id) for env_id in IDS} <= set(docs.pages())


def test_pages_are_current() -> None:
    """No page differs from what its docstring makes, and no page is left over; `make docs-env` writes them."""
    pages = docs.pages()
    for name, text in pages.items():
        path = docs.FOLDER / name
        assert path.exists(), f"{name} is missing: python -m tools.build_env_docs"
        assert path.read_text(encoding="utf-8") == text, f"{name} is stale: python -m tools.build_env_docs"
    assert {path.name for path in docs.FOLDER.iterdir()} == set(pages)


def test_check_finds_a_stale_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--check` fails on a page that was edited by hand or is missing, and writes nothing."""
    folder = tmp_path / "docs" / "environments"
    monkeypatch.setattr(docs, "FOLDER", folder)
    assert docs.main([]) == 0
    assert docs.main(["--check"]) == 0
    page = folder / "fleet-alloc-v0.md"
    page.write_text(page.read_text() + "edited")
    (folder / "wrappers.md").unlink()
    assert docs.main(["--check"]) == 1
    assert "edited" in page.read_text()
    assert not (folder / "wrappers.md").exists()
    told = capsys.readouterr().out
    assert "fleet-alloc-v0.md: not current" in told
    assert "wrappers.md: not current" in told


@pytest.mark.parametrize("env_id", IDS)
def test_tables_name_what_there_is(env_id: str) -> None:
    """Every key of the observation, of the info and every argument is in the page, and no key that does not exist."""
    env = gymnasium.make(env_id).unwrapped
    text = inspect.getdoc(type(env)) or ""
    parts = dict(zip(docs.SECTIONS, re.split(r"^## .+$", text, flags=re.MULTILINE)[1:], strict=True))
    rows = re.findall(r"^\| (`.+?`) \|", parts["Observation space"], flags=re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(env.observation_space)
    _, info = env.reset(seed=0)
    told = set(re.findall(r"`(\w+)`", parts["Info"]))
    if "the cost terms" in parts["Info"]:
        from fleetgym.model.window import COST_TERMS

        told |= set(COST_TERMS)
    assert set(info) <= told
    arguments = set(inspect.signature(type(env)).parameters)
    assert set(re.findall(r"^\| `(\w+)` \|", parts["Arguments"], flags=re.MULTILINE)) == arguments


def test_what_the_pages_call_works_in_a_fresh_process() -> None:
    """Gymnasium finds an id only with its module in front, unless fleetgym was imported: so every page writes it."""
    pages = [
        *docs.FOLDER.glob("*.md"),
        *docs.FOLDER.parent.glob("*.md"),
        docs.FOLDER.parents[1] / "README.md",
    ]
    called = [
        call
        for page in pages
        for call in re.findall(r"gymnasium\.make(?:_vec)?\(\"([^\"]+)", page.read_text())
    ]
    assert set(called) == {f"fleetgym:{env_id}" for env_id in IDS}
    code = (
        "import gymnasium\n"
        "gymnasium.make_vec('fleetgym:FleetAlloc-v0', num_envs=2)\n"
        f"for name in {sorted(set(called))}: gymnasium.make(name)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_missing_section_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A docstring without one of the template's headings makes no page."""
    kind = type(gymnasium.make("FleetAlloc-v0").unwrapped)
    monkeypatch.setattr(kind, "__doc__", (kind.__doc__ or "").replace("## Episode end", "Episode end"))
    with pytest.raises(ValueError, match="Episode end"):
        docs.environment_page("FleetAlloc-v0")


def test_links_lead_somewhere() -> None:
    """Pictures and pages that are linked exist."""
    for text in docs.pages().values():
        for target in re.findall(r"\]\(([^)#]+)\)", text):
            if not target.startswith("http"):
                assert (docs.FOLDER / target).exists(), target
