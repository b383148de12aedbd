"""What a label means: the model that people write, or a question; never a large model served by a small one unasked."""

from __future__ import annotations

import csv
import json
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from fleetgym.capacity.traces.importing import ImportedTrace, import_trace
from fleetgym.capacity.traces.labels import bind, parse_binds
from fleetgym.capacity.traces.rows import Label
from fleetgym.cli.parser import main
from fleetgym.files.errors import FleetgymError, UnknownNameError
from fleetgym.hardware import catalog
from fleetgym.hardware.model_names import looks_like_a_model, named


def write(folder: Path, labels: list[str], header: str = "model") -> Path:
    """Write an hour of requests whose labels come in turn; a label may hold a comma for two columns."""
    rows = [f"{3 * k},{400 + k % 50},{60 + k % 9},{labels[k % len(labels)]}" for k in range(1200)]
    path = folder / "t.csv"
    path.write_text(f"time,input_tokens,output_tokens,{header}\n" + "\n".join(rows) + "\n")
    return path


def made(path: Path, **options: object) -> ImportedTrace:
    """Import a trace onto large GPUs."""
    return import_trace(path, gpus=["H100", "H200"], **options)  # type: ignore[arg-type]


def served(found: ImportedTrace) -> dict[str, str | None]:
    """Return what serves each workload alone."""
    return dict(zip(found.statistics.names, found.statistics.models, strict=True))


# -- names


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("meta-llama/Llama-3.1-70B-Instruct", "Llama-3.1-70B"),
        ("meta-llama/Meta-Llama-3.1-70B-Instruct", "Llama-3.1-70B"),
        ("neuralmagic/Meta-Llama-3.1-70B-Instruct-FP8-dynamic", "Llama-3.1-70B"),
        ("hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4", "Llama-3.1-70B"),
        ("us.meta.llama3-1-70b-instruct-v1:0", "Llama-3.1-70B"),
        ("arn:aws:bedrock:us-east-1::foundation-model/meta.llama3-1-8b-instruct-v1:0", "Llama-3.1-8B"),
        ("us.deepseek.r1-v1:0", "DeepSeek-R1"),
        ("openai.gpt-oss-120b-1:0", "gpt-oss-120b"),
        ("qwen.qwen3-coder-480b-a35b-v1:0", "Qwen3-Coder-480B-A35B"),
        ("mistral.mixtral-8x7b-instruct-v0:1", "Mixtral-8x7B-v0.1"),
        ("llama3.1:70b-instruct-q4_K_M", "Llama-3.1-70B"),
        ("llama3.1:latest", "Llama-3.1-8B"),
        ("gpt-oss:20b", "gpt-oss-20b"),
        ("qwen3:30b-a3b", "Qwen3-30B-A3B"),
        ("publishers/meta/models/llama-3.1-405b-instruct-maas", "Llama-3.1-405B"),
        ("deepseek-ai/deepseek-r1-0528-maas", "DeepSeek-R1"),
        ("azureml://registries/azureml-meta/models/Meta-Llama-3.1-70B-Instruct/versions/4", "Llama-3.1-70B"),
        ("accounts/fireworks/models/llama-v3p1-8b-instruct", "Llama-3.1-8B"),
        ("Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf", "Llama-3.1-8B"),
        ("llama-3.3-70b-versatile", "Llama-3.1-70B"),
        ("deepseek-r1:70b", "Llama-3.1-70B"),
    ],
)
def test_names_that_people_use(name: str, model: str) -> None:
    """Hubs', engines' and clouds' names are the catalogue's models."""
    assert catalog.model_named(name) == model


@pytest.mark.parametrize(
    "name",
    ["deepseek-r1:latest", "deepseek-r1:8b", "llama3.1", "Llama-Guard-3-8B", "Qwen/Qwen2.5-72B-Instruct"]
    + ["deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "acme-70b", "Hermes-3-Llama-3.1-8B", "Llama-3.1-80B"],
)
def test_names_of_other_models(name: str) -> None:
    """A name that is like a model's, and is none of the catalogue's, is not taken for one."""
    assert named(name, catalog.model_names()) is None
    assert looks_like_a_model(name)
    with pytest.raises(UnknownNameError):
        catalog.model_named(name)


def test_every_other_name_is_of_the_catalogue() -> None:
    """The catalogue's names mean themselves, and the table's mean models that are there."""
    assert all(catalog.model_named(name) == name for name in catalog.model_names())
    text = resources.files("fleetgym").joinpath("data", "model_names.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        assert catalog.model_named(row["name"]) == row["model"], row


# -- what serves a label


def test_a_model_that_is_named_serves_its_label(tmp_path: Path) -> None:
    """With tuning and precision in the name, too; 4 bits are told, as none are planned with."""
    found = made(write(tmp_path, ["meta-llama/Meta-Llama-3.1-70B-Instruct-AWQ"]))
    assert list(served(found).values()) == ["Llama-3.1-70B"]
    assert {c.model for c in found.instance.configurations} == {"Llama-3.1-70B"}
    assert any("though 4 bits are named" in note for note in found.notes)


@pytest.mark.parametrize(
    ("label", "says"),
    [
        ("acme-70b", "acme-70b: no model of the catalogue"),
        ("gpt-4o", "gpt-4o: no weights of it are public"),
        ("anthropic.claude-sonnet-4-20250514-v1:0", "no weights of it are public"),
        ("Qwen/Qwen2.5-72B-Instruct", "no model of the catalogue"),
    ],
)
def test_an_unknown_model_is_a_question(label: str, says: str, tmp_path: Path) -> None:
    """It is refused in every way of making workloads, until something says what serves it."""
    path = write(tmp_path, [label, "chat"])
    for by in ("auto", "label", "length", "one"):
        with pytest.raises(FleetgymError, match=r"--bind") as caught:
            made(path, by=by)
        assert says in str(caught.value)
    assert served(made(path, binds={label: "Llama-3.1-70B"}))["chat"] is None
    assert "Llama-3.1-70B" in served(made(path, binds={label: "Llama-3.1-70B"})).values()
    free = made(path, binds={"*": "any"})
    assert set(served(free).values()) == {None}
    assert any("served by any candidate, as asked for" in note for note in free.notes)
    only = made(path, models=["Qwen/Qwen3-32B"])
    assert {c.model for c in only.instance.configurations} == {"Qwen3-32B"}
    assert any("served by Qwen3-32B, the only candidate" in note for note in only.notes)


def test_a_rare_model_is_not_served_by_another(tmp_path: Path) -> None:
    """Rare labels are put together by what serves them."""
    common = ["chat"] * 200
    labels = [*common, "meta-llama/Llama-3.1-70B", "llama3.1:70b", "rare-a", "rare-b", "Llama-3.1-8B"]
    found = made(write(tmp_path, labels))
    assert served(found) == {
        "chat": None,
        "other-Llama-3.1-70B": "Llama-3.1-70B",
        "other": None,
        "Llama-3.1-8B": "Llama-3.1-8B",
    }
    with pytest.raises(FleetgymError, match="rare-70b: no model of the catalogue"):
        made(write(tmp_path, [*common, "rare-70b", "rare-b"]))


def test_labels_where_they_make_no_workloads(tmp_path: Path) -> None:
    """One model serves all lengths if all labels name it; different ones are refused until told what serves all."""
    path = write(tmp_path, ["org/Llama-3.1-70B-Instruct", "llama3.1:70b"])
    for by in ("one", "length"):
        assert set(served(made(path, by=by)).values()) == {"Llama-3.1-70B"}
    path = write(tmp_path, ["Llama-3.1-70B", "Llama-3.1-8B"])
    with pytest.raises(
        FleetgymError, match=r"different models \(Llama-3.1-70B, Llama-3.1-8B\), and --by one"
    ):
        made(path, by="one")
    assert served(made(path, by="one", binds={"*": "Llama-3.1-70B"})) == {"all": "Llama-3.1-70B"}
    assert served(made(write(tmp_path, [f"lora-{k}" for k in range(300)]), by="one")) == {"all": None}


def test_a_column_of_classes_beside_one_of_models(tmp_path: Path) -> None:
    """Classes make workloads, models bind them; a bind may name the class, the model or both."""
    path = write(tmp_path, ["gold,Llama-3.1-70B", "bronze,Llama-3.1-8B"], "class,model")
    assert served(made(path)) == {
        "gold-Llama-3.1-70B": "Llama-3.1-70B",
        "bronze-Llama-3.1-8B": "Llama-3.1-8B",
    }
    for bind_to in ("gold", "llama-3.1-70b", "gold Llama-3.1-70B", "gold*"):
        assert served(made(path, binds={bind_to: "Qwen3-32B"}))["gold-Llama-3.1-70B"] == "Qwen3-32B"


def test_binds() -> None:
    """A label goes before a pattern; what binds nothing, or cannot be read, is refused."""
    labels = [Label("a", None), Label("ab", None), Label("never", None)]
    counts = np.array([3, 2, 0])
    assert bind(labels, counts, {"a*": "Llama-3.1-8B", "ab": "any"}).models == ("Llama-3.1-8B", None, None)
    with pytest.raises(FleetgymError, match="no label is x; the trace has a, ab, never"):
        bind(labels, counts, {"x": "any"})
    assert parse_binds(["a=llama3.1:8b", "b=any,c=Qwen3-32B"]) == {
        "a": "Llama-3.1-8B",
        "b": "any",
        "c": "Qwen3-32B",
    }
    for text in ("a", "=any", "a=", "a=any,a=any", "a=gpt-4o", "a=Llama-9"):
        with pytest.raises(FleetgymError):
            parse_binds([text])


def test_models_as_people_name_them(tmp_path: Path) -> None:
    """Candidates, too; a hosted one is said to have no public weights."""
    path = write(tmp_path, ["chat"])
    found = made(path, models=["meta-llama/Llama-3.1-8B-Instruct", "llama3.1:8b"])
    assert {c.model for c in found.instance.configurations} == {"Llama-3.1-8B"}
    with pytest.raises(UnknownNameError, match="unknown model 'gpt-4o': no weights of it are public"):
        made(path, models=["gpt-4o"])


def test_the_instance_never_replaces_its_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A trace of JSON keeps its name, whatever is forced."""
    monkeypatch.chdir(tmp_path)
    rows = [{"time": 3.0 * k, "input_tokens": 400 + k % 50, "output_tokens": 60} for k in range(400)]
    path = tmp_path / "usage.json"
    path.write_text(json.dumps(rows))
    before = path.read_bytes()
    assert main(["import-trace", "usage.json", "--gpus", "H100", "--force"]) == 0
    assert (tmp_path / "usage-instance.json").exists()
    assert main(["import-trace", "usage.json", "--gpus", "H100", "--force", "--out", "./usage.json"]) == 2
    assert "is of the trace; expected another name" in capsys.readouterr().err
    assert path.read_bytes() == before


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--bind may be repeated; the question's exit code is not 0, and nothing is written."""
    path, out = write(tmp_path, ["gpt-4o", "team,x".replace(",", "-")]), tmp_path / "day.json"
    words = ["import-trace", str(path), "--gpus", "H100", "--out", str(out)]
    assert main(words) == 2
    assert "--bind 'gpt-4o=" in capsys.readouterr().err
    assert not out.exists()
    assert main([*words, "--bind", "gpt-4o=Qwen/Qwen3-32B", "--bind", "team-x=any"]) == 0
    assert "gpt-4o is served by Qwen3-32B alone" in capsys.readouterr().out
