"""The environments' docstrings, which the site shows, tell the truth."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys

import gymnasium
import pytest
from places import ROOT

import fleetgym
from fleetgym.model.window import COST_TERMS

assert fleetgym.__version__  # importing the package registers the environments
IDS = sorted(
    name for name, spec in gymnasium.registry.items() if str(spec.entry_point).startswith("fleetgym.")
)


def sections(kind: type) -> dict[str, str]:
    """Return the sections of a numpydoc docstring by their titles."""
    parts = re.split(r"^(\w[\w ]*)\n-{3,}\n", inspect.getdoc(kind) or "", flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("env_id", IDS)
def test_docstrings_name_what_there_is(env_id: str) -> None:
    """Every key of the observation and of the info, and every parameter is told, and no key that does not exist."""
    env = gymnasium.make(env_id).unwrapped
    first = sections(type(gymnasium.make("FleetAlloc-v0").unwrapped))
    own = sections(type(env))

    def told(title: str, pattern: str) -> set[str]:
        texts = {first[title], own.get(title, "")}
        return {name for text in texts for found in re.findall(pattern, text, flags=re.M) for name in found}

    keys = told("Observation space", r"^``(\w+)``(?:, ``(\w+)``)? : ") - {""}
    assert keys == set(env.observation_space)
    _, info = env.reset(seed=0)
    assert set(info) <= {*COST_TERMS, *re.findall(r"``(\w+)``", first["Info"] + own.get("Info", ""))}
    parameters = set(re.findall(r"^(\w+) : ", first["Parameters"], flags=re.M))
    assert parameters == set(inspect.signature(type(env)).parameters)


def test_what_the_pages_call_works_in_a_fresh_process() -> None:
    """Gymnasium finds an id only with its module in front, unless fleetgym was imported: so every page writes it."""
    pages = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
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
