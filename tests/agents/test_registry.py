"""Agents by name: ours, anybody's by module or file, with arguments, and errors that help."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest
from sample_agents import agent

import fleetgym
from fleetgym.agents import registry
from fleetgym.agents.arguments import parameters_of, written
from fleetgym.agents.registry import agent_entries, load_target, make_agent, make_planner, parse_agent
from fleetgym.agents.rolling import Rolling, Static
from fleetgym.files.errors import FleetgymError, UnknownNameError

OURS = {
    "hold",
    "random",
    "autoscale",
    "gh",
    "gh-rolling",
    "agh",
    "agh-rolling",
    "homogeneous",
    "homogeneous-rolling",
}


HELPED = """
import helper

class Mine:
    def reset(self, view, *, seed):
        assert helper.NAME == "{name}", helper.__file__

    def act(self, observation, info):
        raise NotImplementedError
"""


def test_an_agents_neighbours_are_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They come before modules of the current folder, and another agent's of the same name are never taken for them."""
    for name in ("x", "y", "z"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "helper.py").write_text(f"NAME = {name!r}\n")
        (tmp_path / name / "mine.py").write_text(HELPED.format(name=name))
    monkeypatch.chdir(tmp_path / "z")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "z"), *sys.path])
    monkeypatch.delitem(sys.modules, "helper", raising=False)
    make_agent(f"{tmp_path}/x/mine.py:Mine").reset(None, seed=0)
    with pytest.raises(FleetgymError, match=r"mine.py imports 'helper', but not the helper.py beside it"):
        make_agent(f"{tmp_path}/y/mine.py:Mine")
    monkeypatch.delitem(sys.modules, "helper")
    make_agent(f"{tmp_path}/y/mine.py:Mine").reset(None, seed=0)
    monkeypatch.delitem(sys.modules, "helper")


def test_every_reference_agent_has_a_name() -> None:
    """The promised names are there, and say that they are ours."""
    entries = agent_entries()
    assert set(entries) >= OURS
    assert all(entries[name].is_reference for name in OURS)


@pytest.mark.parametrize(
    "name", sorted(name for name, entry in agent_entries().items() if entry.is_reference)
)
def test_every_reference_agent_plays(name: str) -> None:
    """Each can be made and plays every toy without failing; `cem` learns for one generation instead of sixteen."""
    results = fleetgym.evaluate({"cem": "cem(generations=1)"}.get(name, name), "fleet-v0/toy")
    assert not results.failures


def test_the_checkout_is_read_even_if_it_was_installed_earlier(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entry points freeze at install time; an agent that was added since is found all the same."""
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: [])
    assert set(agent_entries()) >= OURS


def test_unknown_names_suggest_the_nearest() -> None:
    """A slip of the finger is answered with the name that was meant."""
    with pytest.raises(UnknownNameError, match="did you mean 'agh-rolling'"):
        make_agent("agh-roling")


def test_arguments_in_brackets() -> None:
    """Keywords with plain values reach the factory; keyword arguments of the call win."""
    made = make_agent("agh-rolling(every=3, margin=0.25, forecaster='ewma', passes=1)")
    assert isinstance(made, Rolling)
    assert (made.every, made.margin, made.planner.passes) == (3, 0.25, 1)  # type: ignore[attr-defined]
    assert make_agent("gh(margin=0.5)", margin=0.1).margin == 0.1  # type: ignore[attr-defined]


def reference_arguments() -> list[tuple[str, str]]:
    """Every argument of every agent of ours that can be written on the command line."""
    ours = [entry for entry in agent_entries().values() if entry.is_reference]
    return [(e.name, argument) for e in ours for argument in written(load_target(e.target), typed=True)]


def test_every_argument_of_a_reference_agent_is_checked() -> None:
    """None is swallowed by ``**arguments``, and none takes a value that is nothing of its kind."""
    cases = reference_arguments()
    assert {("agh-rolling", "passes"), ("saa", "scenarios"), ("milp", "gap")} <= set(cases)
    for name, argument in cases:
        with pytest.raises(FleetgymError, match=f"^{argument} is .*; expected "):
            make_agent(f"{name}({argument}={{}})")
    for name in sorted({name for name, _ in cases} | {"hold"}):
        with pytest.raises(FleetgymError, match="unknown argument 'quantle'|takes no arguments"):
            make_agent(f"{name}(quantle=5)")


def test_the_defaults_that_are_told_are_the_ones_used() -> None:
    """An agent that is given all of its defaults by name is the agent without arguments."""
    for name in ("saa", "milp-rolling", "newsvendor", "coral"):
        target = load_target(agent_entries()[name].target)
        told = {key: p.default for key, p in parameters_of(target, evaluated=True).items()}  # type: ignore[union-attr]
        plain, full = make_agent(name), make_agent(name, **told)
        assert isinstance(plain, Rolling)
        assert isinstance(full, Rolling)
        for wrapper in ("every", "margin", "switch_cost", "keep_best", "payback_windows"):
            assert getattr(plain, wrapper) == getattr(full, wrapper) == told[wrapper]
        assert type(plain.forecaster) is type(full.forecaster)
        assert getattr(plain.planner, "samples", None) == getattr(full.planner, "samples", None)


REFUSED = {
    "agh-rolling(margn=0.3)": "unknown argument 'margn'; did you mean 'margin'",
    "agh-rolling(margin='a')": "margin is 'a'; expected float",
    "agh-rolling(every=1.5)": "every is 1.5; expected int",
    "newsvendor(quantile=5)": "unknown argument 'quantile'",
    "saa(scenarios=0)": "scenarios is 0; expected a whole number of at least 1",
    "saa(late='soon')": "late is 'soon'; expected one of",
    "descent(every='a')": "every is 'a'; expected int",
    "descent(every=0)": "every is 0; expected a whole number of at least 1",
    "descent(every=-1)": "every is -1; expected a whole number of at least 1",
    "descent(forecaster='ewmaa')": "did you mean 'ewma'",
    "agh(seed=-1)": "seed is -1; expected a whole number of at least 0",
    "homogeneous(passes=-1)": "passes is -1",
    "milp-hourly(gap=-1)": "gap is -1",
    "milp-rolling(samples=-1)": "samples is -1",
    "gh(ordering='size')": "unknown ordering 'size'",
    "lcp(forecaster='next')": "unknown forecaster 'next'",
    "jiang(nodes=-1)": "nodes is -1",
    "melange(gap=-0.1)": "gap is -0.1",
    "agh-rolling(payback_windows=0)": "payback_windows is 0",
}


@pytest.mark.parametrize(("text", "message"), REFUSED.items())
def test_arguments_out_of_range(text: str, message: str) -> None:
    """What an agent cannot be played with is refused when it is made, with what would be valid."""
    with pytest.raises(FleetgymError, match=message):
        make_agent(text)


def test_annotations_of_others_do_not_bind() -> None:
    """A stranger's class is called with what was given, but not with what it does not have."""
    make_agent(agent("make_good(times=2.5)"))
    with pytest.raises(UnknownNameError, match="unknown argument 'tims'; did you mean 'times'"):
        make_agent(agent("make_good(tims=2)"))


@pytest.mark.parametrize(
    "text",
    [
        "gh(0.5)",
        "gh(margin=)",
        "gh(margin=__import__('os'))",
        "gh(**{})",
        "gh)",
        "gh(margin=0.5",
        "a b:C",
        "x.y:1z",
    ],
)
def test_names_that_cannot_be_read(text: str) -> None:
    """Malformed text is refused before anything is imported or evaluated."""
    with pytest.raises(FleetgymError):
        make_agent(text)


def test_files_and_modules() -> None:
    """A class or a factory, by file or by module; a planner plans once."""
    assert type(make_agent(agent("Good"))).__name__ == "Good"
    assert type(make_agent(agent("make_good(times=2)"))).__name__ == "Good"
    assert type(make_agent("sample_agents:Good")).__name__ == "Good"
    assert isinstance(make_agent(agent("Planner")), Static)
    assert type(make_planner("agh-rolling")).__name__ == "AdaptiveGreedyHeuristic"
    assert type(make_planner(agent("Planner"))).__name__ == "Planner"


def test_what_is_no_agent_says_so() -> None:
    """Wrong class, missing attribute, missing module, missing file, not callable."""
    cases = {
        agent("Useless"): "neither an agent",
        agent("Goood"): "did you mean 'Good'",
        "no_such_module:Agent": "no module 'no_such_module'",
        "nowhere.py:Agent": "no file 'nowhere.py'",
        "sample_agents:WINDOW": "expected a class or a factory",
        agent("Bad.act"): "missing 3 required",
    }
    for text, message in cases.items():
        with pytest.raises((FleetgymError, TypeError), match=message):
            make_agent(text)


class _Point:
    """An entry point of a made-up package."""

    def __init__(self, name: str, value: str, package: str):
        self.name, self.value = name, value
        self.dist = type("Distribution", (), {"name": package})()


def test_two_packages_with_one_name_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between third parties it is an error; our own names cannot be taken."""
    points = [_Point("clever", "one:A", "one"), _Point("agh", "one:B", "one")]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: points)
    assert parse_agent("clever").target == "one:A"
    assert not parse_agent("clever").is_reference
    assert (
        parse_agent("agh").target == registry.agent_entries()["agh"].target == "fleetgym.baselines.agents:agh"
    )
    points.append(_Point("clever", "two:A", "two"))
    with pytest.raises(FleetgymError, match="claimed by one and two"):
        parse_agent("clever")


def test_folders_of_the_users_hide_no_reference_agent(tmp_path: Path) -> None:
    """Python started in a folder with packages of one's own of our names finds both them and all of ours."""
    own = ["baselines", "papers", "tools", "agents"]
    for name in own:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("mine = True\n")
    code = (
        f"import {', '.join(own)}; assert {' and '.join(f'{name}.mine' for name in own)}\n"
        "from fleetgym.agents.registry import agent_entries, load_target\n"
        "ours = [entry for entry in agent_entries().values() if entry.is_reference]\n"
        "print(len([load_target(entry.target) for entry in ours]))"
    )
    (tmp_path / "train.py").write_text(code)
    for command in (["-c", code], ["train.py"]):
        done = subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True)
        assert int(done.stdout) >= 24, done.stderr
    listed = subprocess.run(
        [sys.executable, "-m", "fleetgym", "list", "agents"], cwd=tmp_path, capture_output=True, text=True
    )
    assert "cannot be imported" not in listed.stdout
    assert "agh-rolling" in listed.stdout, listed.stderr
