"""Bind each label of a trace to the model that serves it."""

from __future__ import annotations

import dataclasses
import fnmatch
import math
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fleetgym.capacity.traces.rows import Label
from fleetgym.files.errors import FleetgymError
from fleetgym.hardware import catalog
from fleetgym.hardware.model_names import (
    NO_WEIGHTS,
    has_four_bits,
    is_hosted,
    looks_like_a_model,
    named,
    named_size,
)

ANY = "any"  # any candidate may serve
DEFAULT_MODELS = ("Llama-3.1-8B", "Qwen3-32B", "Llama-3.1-70B")


@dataclasses.dataclass(frozen=True)
class Bound:
    """What serves each label of a trace."""

    models: tuple[str | None, ...]  # by code of the label; None: any candidate
    notes: tuple[str, ...]  # what their user should know


def parse_binds(texts: Iterable[str]) -> dict[str, str]:
    """Read what serves which label: ``label=model`` or ``label=any``, several with commas between.

    A ``*`` in a label stands for any characters.

    Examples
    --------
    >>> parse_binds(["gpt-4*=Qwen/Qwen3-32B,chat=any"])
    {'gpt-4*': 'Qwen3-32B', 'chat': 'any'}
    """
    found: dict[str, str] = {}
    for part in ",".join(texts).split(","):
        label, equals, model = (piece.strip() for piece in part.rpartition("="))
        if not equals or not label or not model:
            raise FleetgymError(
                f"cannot read what serves a label in {part!r}; expected label=model or label=any"
            )
        if label in found:
            raise FleetgymError(f"the label {label!r} is bound twice")
        found[label] = model if model == ANY else catalog.model_named(model)
    return found


def candidate_models(models: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the candidates that people named as those of the catalogue."""
    return None if models is None else tuple(dict.fromkeys(catalog.model_named(name) for name in models))


def bind(
    labels: Sequence[Label],
    requests: np.ndarray,
    binds: Mapping[str, str] | None = None,
    models: Sequence[str] | None = None,
) -> Bound:
    """Return what serves each label: what the user says, or else the model of the catalogue that it names.

    Parameters
    ----------
    labels : sequence of Label
        L of them.
    requests : ndarray of int, shape (L,)
        How many there are of each; labels of none are nobody's.
    binds : mapping, optional
        From `parse_binds`. A label goes before a pattern, and patterns go in order.
    models : sequence of str, optional
        The candidates, if the user named any.

    Returns
    -------
    Bound

    Raises
    ------
    FleetgymError
        If a label looks like a model that is not known, and nothing says what serves it. If a bind is of no label.
    """
    binds = binds or {}
    chosen = [_chosen(label, binds) for label in labels]
    served: list[str | None] = []
    questions: dict[str, int] = {}
    notes: dict[str, list[str]] = {}
    for label, bound, count in zip(labels, chosen, requests.tolist(), strict=True):
        own, base = named(label.asks_for, catalog.model_names()), _base(label.asks_for)
        if own is None and base is not None:
            own = named(base, catalog.model_names())
            notes.setdefault("adapters, served by their base without what they cost", []).append(
                label.asks_for
            )
        model = own if bound is None else None if binds[bound] == ANY else binds[bound]
        served.append(model)
        if not count:
            continue
        if bound is not None:
            notes.setdefault(f"served by {model or 'any candidate'}, as asked for", []).append(label.text)
        elif own is not None:
            if has_four_bits(label.asks_for):
                notes.setdefault("planned at 16 and 8 bit, though 4 bits are named", []).append(
                    label.asks_for
                )
        elif looks_like_a_model(label.asks_for):
            questions[label.asks_for] = questions.get(label.asks_for, 0) + count
    unused = set(binds) - {bound for bound in chosen if bound is not None}
    if unused:
        there = ", ".join(dict.fromkeys(label.text for label in labels)) or "none"
        raise FleetgymError(f"no label is {', '.join(sorted(unused))}; the trace has {there[:300]}")
    if questions and models is not None and len(models) == 1:
        notes[f"served by {models[0]}, the only candidate, although no model of the catalogue is named"] = [
            *questions
        ]
    elif questions:
        _ask(questions, models or DEFAULT_MODELS)
    return Bound(tuple(served), tuple(f"{_some(texts)}: {what}" for what, texts in notes.items()))


def _base(text: str) -> str | None:
    """Return the base of ``base:adapter``, if it names a size and the adapter names none.

    Examples
    --------
    >>> _base("Llama-3.1-8B-Instruct:sql"), _base("llama3.1:70b"), _base("qwen3:sql")
    ('Llama-3.1-8B-Instruct', None, None)
    """
    base, _, adapter = text.rpartition(":")
    is_size = [re.search(r"\d[bB]\b", part) is not None for part in (base, adapter)]
    return base if is_size == [True, False] else None


def _chosen(label: Label, binds: Mapping[str, str]) -> str | None:
    """Return the bind of a label; capitals do not matter."""
    texts = {text.lower() for text in (label.text, label.kind, label.model) if text}
    exact = next((bind for bind in binds if bind.lower() in texts), None)
    return exact or next(
        (bind for bind in binds if any(fnmatch.fnmatchcase(text, bind.lower()) for text in texts)), None
    )


def _ask(questions: Mapping[str, int], candidates: Sequence[str]) -> None:
    hosted = [label for label in questions if is_hosted(label)]
    others = [label for label in questions if label not in hosted]
    parts = []
    if hosted:
        parts.append(f"{_some(hosted)}: {NO_WEIGHTS}")
    if others:
        parts.append(f"{_some(others)}: no model of the catalogue")
    first = next(iter(questions))
    size_b = named_size(first)
    like = candidates[-1] if size_b is None else min(candidates, key=lambda name: _ratio(name, size_b))
    described = "describe it with --model-file NAME=config.json, or " if others else ""
    raise FleetgymError(
        f"the trace asks for models that are not known ({'; '.join(parts)}): {described}say what serves them, as in "
        f"--bind '{first}={like}', or --bind '*=any' for any of {', '.join(candidates)}"
    )


def _ratio(name: str, size_b: float) -> float:
    """Return how far a model's size is from another, in either direction."""
    return abs(math.log(catalog.model(name).params_b / size_b))


def _some(texts: Iterable[str]) -> str:
    listed = list(dict.fromkeys(texts))
    return ", ".join(listed[:8]) + (f" and {len(listed) - 8} more" if len(listed) > 8 else "")


def one_for_all(bound: Bound, requests: np.ndarray, by: str) -> str | None:
    """Return the model that serves all labels where they do not make the workloads.

    Raises
    ------
    FleetgymError
        If they ask for different ones.
    """
    asked = list(dict.fromkeys(model for model, count in zip(bound.models, requests, strict=True) if count))
    if len(asked) > 1:
        names = ", ".join(model or "any candidate" for model in asked)
        raise FleetgymError(
            f"the labels of the trace ask for different models ({names}), and --by {by} makes no difference between "
            "them: take --by label, or say what serves all with --bind '*=MODEL' or '*=any'"
        )
    return asked[0] if asked else None
