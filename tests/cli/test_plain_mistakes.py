"""Mistakes that users of the environments and of the trace reader make: each gets an error that says what to do."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import fleetgym
from fleetgym.agents.registry import parse_agent
from fleetgym.capacity.traces.reader import read_trace
from fleetgym.files.archives import open_archive
from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.model.actions import check_options


@pytest.mark.parametrize("call", ["action_masks", "render"])
def test_calls_before_reset(call: str) -> None:
    """What needs an episode says that reset comes first."""
    env = gymnasium.make("FleetAlloc-v0", render_mode="ansi").unwrapped
    with pytest.raises(gymnasium.error.ResetNeeded, match=f"reset.*{call}"):
        getattr(env, call)()


def test_ragged_actions() -> None:
    """A nested list of several lengths is no array."""
    env = gymnasium.make("FleetAlloc-v0").unwrapped
    env.reset(seed=0)
    with pytest.raises(DataError, match="not an array"):
        env.step([[1, 2], [3]])


def test_reset_options_are_a_mapping() -> None:
    """A list of names is not."""
    with pytest.raises(FleetgymError, match=r"expected a mapping such as .* got \['scenario'\]"):
        gymnasium.make("FleetAlloc-v0").unwrapped.reset(options=["scenario"])
    with pytest.raises(FleetgymError, match=r"unknown reset options \['scene'\]; expected 'scenario'"):
        gymnasium.make("FleetAlloc-v0").unwrapped.reset(options={"scene": 0})


WRONG_OPTIONS = (0.5, -1, 5, np.nan, np.inf, 1e300, 2**64 - 1)


@pytest.mark.parametrize("value", WRONG_OPTIONS)
@pytest.mark.parametrize("rows", [None, 3])
def test_options_that_do_not_exist(value: float, rows: int | None) -> None:
    """One place checks the actions of all environments, and names the first that is wrong."""
    shape = (4,) if rows is None else (rows, 4)
    limits = np.full(shape, 5, dtype=np.uint64)
    action = np.zeros(shape, dtype=np.asarray(value).dtype)
    assert check_options(action, limits).dtype == np.int64
    action[..., -1] = value
    at = "[3]" if rows is None else "[0][3]"
    with pytest.raises(DataError, match=re.escape(f"$.action{at}: expected an option from 0 to 4, got")):
        check_options(action, limits)
    if rows is not None:
        assert check_options(action, limits, ignored=np.ones(rows, dtype=bool)).shape == shape


@pytest.mark.parametrize("kind", [bool, complex, object, str])
def test_options_are_numbers(kind: type) -> None:
    """Whatever else NumPy makes an array of is refused."""
    with pytest.raises(DataError, match="expected whole numbers of shape"):
        check_options(np.zeros(4, dtype=kind), np.full(4, 5, dtype=np.uint64))


@pytest.mark.parametrize("wrong", [None, 3])
def test_instances_have_names(wrong: object) -> None:
    """Only an id or a file names an instance."""
    with pytest.raises(FleetgymError, match="expected the id or the file of an instance"):
        fleetgym.load_instance(wrong)  # type: ignore[arg-type]
    with pytest.raises(FleetgymError, match="expected the id or the file of an instance"):
        fleetgym.load_scenarios(wrong)  # type: ignore[arg-type]


def test_evaluate_takes_names() -> None:
    """Instances in the places of agents, suites and lists, alone or among others, are told what would be valid."""
    toy = "fleet-v0/toy/two-pools"
    instance = fleetgym.load_instance(toy)
    for suite in (instance, [toy, instance]):
        with pytest.raises(FleetgymError, match=r"expected the id or the file of an instance, got Instance"):
            fleetgym.evaluate("hold", suite)  # type: ignore[arg-type]
    for agents in (instance, ["gh", instance]):
        with pytest.raises(FleetgymError, match="expected an agent: its name, its class or an object"):
            fleetgym.evaluate(agents, toy)
    with pytest.raises(FleetgymError, match=r"scenarios are several numbers, such as \[0, 1\]; got 0"):
        fleetgym.evaluate("hold", toy, scenarios=0)  # type: ignore[arg-type]


def test_an_agent_file_needs_its_class() -> None:
    """A file may hold several agents."""
    with pytest.raises(FleetgymError, match=r"as in mine\.py:MyAgent"):
        parse_agent("mine.py")


def test_files_that_hold_no_agent(tmp_path: Path) -> None:
    """A policy is no agent, and a file that is missing is not called damaged."""
    policy = tmp_path / "mine.zip"
    with pytest.raises(DataError, match="No such file") as raised:
        open_archive(policy)
    assert "whole" not in str(raised.value)
    policy.write_bytes(b"PK")
    with pytest.raises(DataError, match="not a whole zip archive"):
        open_archive(policy)
    with pytest.raises(FleetgymError, match="name the code that makes an agent of the file"):
        parse_agent(str(policy))


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_other_separators(mark: str, tmp_path: Path) -> None:
    """A table whose fields are not separated by commas is read as one whose are."""
    file = tmp_path / "day.csv"
    rows = (("timestamp", "input_tokens", "output_tokens"), ("1.5", "10", "20"), ("2.5", "30", "40"))
    file.write_text("".join(mark.join(row) + "\n" for row in rows))
    with read_trace(file) as trace:
        assert (trace.num_rows, trace.tokens, trace.span_s) == (2, 100, 1.0)


def test_columns_of_other_names(tmp_path: Path) -> None:
    """The error names the columns that there are."""
    file = tmp_path / "day.csv"
    file.write_text("when,prompt_size\n1,2\n")
    with pytest.raises(FleetgymError, match="among 'when', 'prompt_size'"):
        read_trace(file)


@pytest.mark.parametrize(
    ("begin", "says"),
    [
        (b"PK\x03\x04\xff\xff", "Excel workbook or a zip file"),
        (b"\xff\xfet\x00", "UTF-16"),
        (b"\x1f\x8b\xff", "gzip"),
        (b"%PDF-1.7", "it is a PDF"),
        (b"\x80\x04\x95", "pickle"),
        (b"<!DOCTYPE html>", "HTML or XML"),
        (b'{"format": "fleetgym-instance-1"}', "it is a file of the format fleetgym-instance-1"),
        (b"INFO 03-02 09:00:00 engine started\nINFO 03-02 09:00:01 request\n", "looks like a log"),
    ],
)
def test_files_of_other_kinds(begin: bytes, says: str, tmp_path: Path) -> None:
    """What is no text is recognised by its first bytes."""
    file = tmp_path / "day.csv"
    file.write_bytes(begin + (b"" if begin[:1] in b"{I" else bytes(40)))
    with pytest.raises(FleetgymError, match=says):
        read_trace(file)


def test_long_names_line_up() -> None:
    """The text picture widens its columns for long names."""
    env = gymnasium.make("FleetAlloc-v0", instance="fleet-v0/dev/trace-m-001", render_mode="ansi")
    env.reset(seed=0)
    env.step(np.asarray(env.action_space.sample()))
    lines = [line for line in env.render().splitlines() if " held " in line]
    assert len({line.index(" held ") for line in lines}) == 1


@pytest.mark.parametrize("kind", [fleetgym.Snapshot, fleetgym.Conditions])
def test_help_says_what_fields_hold(kind: type) -> None:
    """All of them, in their order, with a shape where they are arrays."""
    text = inspect.getdoc(kind) or ""
    told = re.findall(r"^(\w+) : (.+)\n    \S", text[text.index("Attributes") :], flags=re.MULTILINE)
    fields = {field.name: field.type for field in dataclasses.fields(kind)}
    assert [name for name, _ in told] == list(fields)
    assert all(("shape (" in what) == (fields[name] == "np.ndarray") for name, what in told)
