"""Test that programs read typed facts of an instance, and that sentences in its provenance are for people alone."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path

import pytest

from fleetgym.capacity.traces.importing import import_trace
from fleetgym.capacity.traces.own_hardware import read_own
from fleetgym.capacity.traces.prices import Offer
from fleetgym.cli.parser import main
from fleetgym.files.documents import write_json
from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.model.facts import Facts, Slo
from fleetgym.model.instance import Instance
from fleetgym.model.library import load_instance
from tests.sample_traces import write_generic

ROOT = Path(__file__).parents[2]
PROFILE = (
    "model,gpu,precision,input_tokens,output_tokens,concurrency,requests_per_s\n"
    "Llama-3.1-8B,H100,fp8,1000,200,64,9\n"
)

#: Everything that reads a fact, and the refusals that depend on one.
COMMANDS = {
    "plan": ["plan", "{file}", "--days", "2", "--details"],
    "other SLOs": ["plan", "{file}", "--days", "2", "--slo", "tpot=25ms"],
    "facts of a plan": ["plan", "{file}", "--days", "2", "--json"],
    "schedule": ["plan", "{file}", "--days", "2", "--schedule"],
    "no week in less than a day": ["plan", "{file}", "--days", "0", "--schedule", "--week"],
    "simulation": ["simulate", "{file}", "--replications", "2"],
    "study": ["study", "layouts", "--instance", "{file}"],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Instance]:
    """Return a folder with a measurement, and an instance that has every fact."""
    folder = tmp_path_factory.mktemp("facts")
    (folder / "profile.csv").write_text(PROFILE)
    own = read_own(profiles=[str(folder / "profile.csv")])
    made = import_trace(
        write_generic(folder / "hour.csv", seed=3),
        prices=[
            Offer(gpu="H100", usd_per_gpu_h=3.0),
            Offer(gpu="H100", usd_per_gpu_h=1.9, market="reserved", term_days=365),
        ],
        models=["Llama-3.1-8B"],
        slo="ttft.p95=2s,tpot=30ms",
        scale=60.0,
        scenarios=1,
        own=own,
    )
    made.write(folder / "told.json")
    reworded = {name: f"reworded: {number}" for number, name in enumerate(made.instance.provenance)}
    changed = dataclasses.replace(made, instance=made.instance.replace(provenance=reworded))
    (folder / "reworded").mkdir()
    changed.write(folder / "reworded" / "told.json")
    return folder, made.instance


def test_an_import_states_all_facts(made: tuple[Path, Instance]) -> None:
    """What was asked for, assumed, measured and committed to is there, and survives a file."""
    folder, instance = made
    facts = load_instance(folder / "told.json").facts
    assert facts == instance.facts
    assert facts is not None
    assert {slo.words for slo in facts.slos} == {"ttft.p95=2s,tpot=0.03s,error=0.05"}
    assert facts.calendar is not None
    assert facts.calendar.history == "drawn"
    assert facts.calendar.fitted
    assert facts.calendar.assumed
    assert facts.lengths is not None
    assert facts.lengths.quantiles[-1].share == 1.0
    assert [(step.model, step.gpu) for step in facts.measured_steps] == [("Llama-3.1-8B", "H100")]
    assert [facts.commitment_days(pool.id) for pool in instance.pools if pool.market == "reserved"] == [365]
    limits = {c.id: facts.engine_limit(c.id) for c in instance.configurations}
    assert any(limits.values())
    for c in instance.configurations:
        assert limits[c.id] in (None, c.max_concurrency)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_no_answer_depends_on_a_sentence(
    name: str,
    made: tuple[Path, Instance],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With every sentence of the provenance reworded, commands answer and refuse as before."""
    folder, _ = made
    words = [word.format(file="told.json") for word in COMMANDS[name]]
    answers = []
    for place in (folder, folder / "reworded"):
        monkeypatch.chdir(place)
        code, told = main(words), capsys.readouterr()
        refusal = told.err.splitlines()[-1] if code else ""  # lines before it tell the progress
        answers.append((code, told.out, refusal))
    assert answers[0] == answers[1]
    assert (answers[0][0] != 0) == name.startswith("no ")


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["plan", "old.json"],
        ["plan", "old.json", "--schedule"],
        ["study", "layouts", "--instance", "old.json"],
    ],
)
def test_an_older_import_is_asked_for_again(
    words: list[str],
    made: tuple[Path, Instance],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is readable and keeps its hash; what needs its facts says what to do."""
    _, instance = made
    data = instance.to_dict()
    del data["facts"]
    write_json(tmp_path / "old.json", data)
    old = load_instance(tmp_path / "old.json")
    assert old.to_dict() == data
    with pytest.raises(FleetgymError, match="import the trace again"):
        _ = old.stated
    monkeypatch.chdir(tmp_path)
    assert main(words) != 0
    assert "import the trace again with import-trace" in capsys.readouterr().err


def test_facts_name_what_the_instance_has(made: tuple[Path, Instance]) -> None:
    """One SLO per workload; configurations and pools by their ids."""
    data = made[1].to_dict()
    for key, wrong, says in (
        ("slos", [], "expected 1 to"),
        ("slos", [{}] * 9, "expected one SLO per workload"),
        ("engine_limits", [{"configuration": "x", "requests": 1}], "no configuration has the id"),
        ("commitments", [{"pool": "x", "days": 1}], "no pool has the id"),
    ):
        with pytest.raises(DataError, match=says) as caught:
            Instance.from_dict({**data, "facts": {**data["facts"], key: wrong}})
        assert caught.value.path.startswith(f"$.facts.{key}")
    assert Facts(slos=(Slo(),)).engine_limit("any") is None


def test_no_code_reads_prose() -> None:
    """Provenance is written and shown whole: no code looks up one of its sentences, or searches them."""
    found = []
    for folder in ("fleetgym", "papers", "baselines", "tools"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                read = _looked_into(node)
                if read is not None and _is_provenance(read):
                    found.append(f"{path.relative_to(ROOT)}:{read.lineno}")
    assert not found, found


def _looked_into(node: ast.AST) -> ast.expr | None:
    """Return the mapping or text of which a part is read: by subscript, by `get`, by `in`, or by a function."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        return node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if _is_provenance(node.func.value) and node.func.attr not in ("items", "keys"):
            return node.func.value
        is_pattern = node.func.attr in ("search", "match", "fullmatch", "findall", "finditer", "split", "sub")
        return next((a for a in node.args if _is_provenance(a)), None) if is_pattern else None
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
        return node.comparators[0]
    return None


def _is_provenance(node: ast.expr) -> bool:
    """Return whether an expression is provenance, or a sentence taken out of it."""
    if isinstance(node, ast.Attribute):
        return node.attr == "provenance"
    return isinstance(node, ast.Name) and node.id == "provenance"
