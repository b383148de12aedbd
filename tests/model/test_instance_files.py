"""Instance files of one's own: generated, edited, checked, stored again, and played."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleetgym.cli.parser import main
from fleetgym.families.generate import generate, stored_scenarios
from fleetgym.files.errors import DataError
from fleetgym.model.instance_files import examine_instance, save_edited, write_instance
from fleetgym.model.library import load_instance, load_scenarios


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return the file of a generated instance."""
    assert main(["generate", "grw", "--size", "s", "--seed", "5000", "--out", str(tmp_path)]) == 0
    return tmp_path / "grw-s-5000.json"


def edit(file: Path, change) -> None:
    """Change an instance file in place."""
    data = json.loads(file.read_text())
    change(data)
    file.write_text(json.dumps(data, indent=1))


def test_generated_files_are_the_generated_instance(file: Path) -> None:
    """What is written is what the family makes, with the days that belong to it."""
    made = generate("grw", "s", 5000)
    assert load_instance(file) == made
    for one, other in zip(load_scenarios(file), stored_scenarios(made, 5000), strict=True):
        assert one.id == other.id
        assert (one.rate_rps == other.rate_rps).all()


def test_many_and_their_seeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One file per seed; who uses seeds of the public sets is told, and nothing is replaced unasked."""
    words = ["generate", "ou", "--size", "S", "--seed", "99", "--count", "2", "--scenarios", "1"]
    assert main([*words, "--out", str(tmp_path / "new"), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [Path(one["instance"]).name for one in facts["instances"]] == ["ou-s-099.json", "ou-s-100.json"]
    assert {one["days"] for one in facts["instances"]} == {1}
    assert facts["seeds_of"] == ["fleet-v0"]
    assert main([*words, "--out", str(tmp_path / "new")]) == 2
    assert "exists; choose another name" in capsys.readouterr().err
    assert main([*words, "--out", str(tmp_path / "new"), "--force"]) == 0
    assert "note: seeds 99 to 100 are of fleet-v0; train on seeds from 1000 on" in capsys.readouterr().out
    assert main(["generate", "ou", "--size", "xl"]) == 2
    assert "unknown size of ou 'xl'" in capsys.readouterr().err
    assert main(["generate", "uo", "--size", "s"]) == 2
    assert "did you mean" in (err := capsys.readouterr().err) or "known: " in err


def test_seeds_of_families_without_stored_instances_are_free(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A family of another package has no public set, so no seed of it is taken."""
    monkeypatch.setattr("fleetgym.model.library.entries", dict)
    words = ["generate", "ou", "--size", "s", "--seed", "99", "--scenarios", "1", "--out", str(tmp_path)]
    assert main(words) == 0
    assert "note: seed" not in capsys.readouterr().out


def test_an_edited_instance_is_stored_again(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An edit is found; `--write` keeps the days and makes the files fit, so that agents can play them."""
    days = load_scenarios(file)
    assert main(["check", str(file)]) == 0
    edit(file, lambda data: data["workloads"][0].update(ttft_slo_s=3.5))
    capsys.readouterr()
    assert main(["check", str(file)]) == 1
    text = capsys.readouterr().out
    assert "FAIL" in text
    assert "of the instance before it was edited; `fleetgym check" in text
    with pytest.raises(DataError, match="if you edited it, `fleetgym check FILE --write`"):
        load_scenarios(file)
    assert main(["check", str(file), "--write", "--json"]) == 0
    assert [check["passed"] for check in json.loads(capsys.readouterr().out)] == [True, True]
    assert load_instance(file).workloads[0].ttft_slo_s == 3.5
    for one, other in zip(load_scenarios(file), days, strict=True):
        assert (one.rate_rps == other.rate_rps).all()
    before = file.read_bytes()
    save_edited(file)
    assert file.read_bytes() == before


def test_days_that_are_gone_are_drawn(file: Path) -> None:
    """The same ones for the same seed."""
    found = examine_instance(file)
    assert found.scenario_file is not None
    found.scenario_file.unlink()
    assert main(["check", str(file)]) == 1
    first = save_edited(file, seed=3).scenarios
    assert examine_instance(file).is_current
    found.scenario_file.unlink()
    assert (save_edited(file, seed=3).scenarios[0].rate_rps == first[0].rate_rps).all()
    found.scenario_file.unlink()
    assert (save_edited(file, seed=4).scenarios[0].rate_rps != first[0].rate_rps).any()


def test_what_cannot_be_stored(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong number, and days that fit no more, are told with their place; nothing is written then."""
    edit(file, lambda data: data["workloads"][0].update(rate_rps=-1))
    before = file.read_bytes()
    assert main(["check", str(file), "--write"]) == 1
    assert "$.workloads[0].rate_rps" in capsys.readouterr().err
    assert file.read_bytes() == before
    made = generate("grw", "s", 5000)
    write_instance(file, made, stored_scenarios(made, 5000), force=True)

    def one_gpu_less(data: dict) -> None:
        pool = next(
            g for g, held in enumerate(made.gpu_use @ made.nominal_fleet) if held < made.pools[g].cap_gpus
        )
        data["pools"][pool]["cap_gpus"] -= 1

    edit(file, one_gpu_less)
    before = file.read_bytes()
    assert main(["check", str(file), "--write"]) == 1
    err = capsys.readouterr().err
    assert "$.scenarios[0].available_gpus" in err
    assert "delete grw-s-5000.scenarios.json.gz, and new days are drawn" in err
    assert file.read_bytes() == before
    assert main(["check", "fleet-v0/toy/two-pools"]) == 2
    assert "expected an instance file" in capsys.readouterr().err
    assert main(["check", str(tmp_path / "none.json")]) == 2


def test_agents_play_files(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files stand among agents or after --suite; scores are relative to the best in the run, and that is said."""
    out = ["--scenarios", "0", "--json", "--out"]
    assert main(["evaluate", "hold", str(file), *out, str(tmp_path / "a.jsonl")]) == 0
    alone = json.loads(capsys.readouterr().out)["cost_usd"]["hold"]
    assert main(["evaluate", "hold", "--suite", str(file), *out, str(tmp_path / "b.jsonl")]) == 0
    assert json.loads(capsys.readouterr().out)["cost_usd"]["hold"] == alone
    words = [
        "compare",
        "hold",
        str(file),
        "--suite",
        "fleet-v0/toy/two-pools",
        *out,
        str(tmp_path / "c.jsonl"),
    ]
    assert main(words) == 0
    printed = capsys.readouterr()
    assert "scores are relative to the best in this run" in printed.err
    assert json.loads(printed.out)["best_known"] == "best-in-run"
    assert main([*words[:2], "--suite", "fleet-v0/toy/two-pools", *out, str(tmp_path / "d.jsonl")]) == 0
    assert json.loads(capsys.readouterr().out)["best_known"] != "best-in-run"
