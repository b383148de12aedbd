"""Find the catalogue's GPU type, and how many, from the names that people, clouds and drivers use."""

from __future__ import annotations

import csv
import functools
import re
from collections.abc import Collection, Mapping
from importlib import resources

from fleetgym.files.errors import UnknownNameError

_MAKERS = ("nvidia", "geforce", "amd", "instinct", "intel", "google")
_COUNTED = (
    re.compile(r"(?P<count>\d{1,3})\s*[x×]\s*(?P<name>[^\W\d].*)", re.IGNORECASE),  # 8x H100
    re.compile(r"(?P<name>.+?)(?::|\s+[x×]\s?)(?P<count>\d{1,3})", re.IGNORECASE),  # H100:8, H100 x8
)
_SIZE = re.compile(r"\d+g")
_NOT_A_MODEL = re.compile(r"\d+(gb|g)|(sxm|hbm)\d\w*")


def named(name: str, known: Collection[str]) -> tuple[str, int]:
    """Return the GPU type that a name means, and how many of it a machine of that name has.

    Parameters
    ----------
    name : str
        A type of the catalogue, a name of ``nvidia-smi`` or a cloud, or a cloud's type of machine. Capitals, blanks,
        dashes and the maker's name do not matter. A count may stand before or after it.
    known : collection of str
        The types there are.

    Returns
    -------
    gpu : str
        One of `known`.
    gpus : int
        1 for a name that is no machine's and has no count.

    Raises
    ------
    UnknownNameError
        With the types that share the model number, if any does: never with another GPU's.

    Examples
    --------
    >>> named("NVIDIA A100-SXM4-80GB", ["A100-80GB", "A10"]), named("Standard_ND96asr_v4", ["A100-40GB"])
    (('A100-80GB', 1), ('A100-40GB', 8))
    >>> named("8x H100 SXM5", ["H100"]), named("h100:8", ["H100"])
    (('H100', 8), ('H100', 8))
    >>> named("ml.p5.48xlarge", ["H100"]), named("ND96isr H100 v5", ["H100"]), named("H100-80G", ["H100"])
    (('H100', 8), ('H100', 8), ('H100', 1))
    """
    name = name.strip().removeprefix("ml.")  # as SageMaker writes EC2's types
    types = {_plain(gpu): gpu for gpu in known}
    for text, count in ((name, 1), *_counted(name)):
        plain = _plain(text)
        if plain in types:
            return types[plain], count
        gpu, gpus = _others().get(plain, ("", 0))
        if gpu in known:
            return gpu, gpus * count
    raise unknown(name, known)


def unknown(name: str, known: Collection[str]) -> UnknownNameError:
    """Return the error of a name that means no known GPU.

    Examples
    --------
    >>> print(unknown("A100", ["A10", "A100-40GB", "A100-80GB"]))
    unknown GPU type 'A100': by that number there are A100-40GB, A100-80GB
    >>> print(unknown("A1OO", ["A10", "A100-40GB"]))
    unknown GPU type 'A1OO': there are A10, A100-40GB
    """
    names = sorted(
        gpu for gpu in known if not gpu.startswith("fastllm-")
    )  # the regime of a paper, not of a shop
    wanted = _model_number(name)
    same = [gpu for gpu in names if wanted and _model_number(gpu) == wanted]
    number = "by that number there are " if same else "there are "
    return UnknownNameError("GPU type", name, known, number + ", ".join(same or names))


def _counted(name: str) -> list[tuple[str, int]]:
    found = [pattern.fullmatch(name.strip()) for pattern in _COUNTED]
    return [(match["name"], int(match["count"])) for match in found if match and int(match["count"])]


def _plain(name: str) -> str:
    words = [
        f"{word}b" if _SIZE.fullmatch(word) else word for word in re.split(r"[\s_-]+", name.strip().lower())
    ]
    return re.sub(r"[^a-z0-9]", "", "".join(word for word in words if word not in _MAKERS))


def _model_number(name: str) -> str:
    """Return what tells GPUs apart: the first word with a digit, but for memory and form.

    Examples
    --------
    >>> _model_number("NVIDIA A100 80GB PCIe"), _model_number("RTX PRO 6000"), _model_number("RTX 6000 Ada")
    ('a100', 'pro6000', 'rtx6000')
    """
    before = ""
    for word in re.split(r"[^a-z0-9]+", name.lower()):
        if re.search(r"\d", word) and not _NOT_A_MODEL.fullmatch(word):
            return before + word if word.isdigit() else word
        before = word
    return ""


@functools.cache
def _others() -> Mapping[str, tuple[str, int]]:
    """Return the names of ``gpu_names.csv`` beside the catalogue's own."""
    text = resources.files("fleetgym").joinpath("data", "gpu_names.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    found = {_plain(row["name"]): (row["gpu"], int(row["gpus"])) for row in rows}
    short = {name.removeprefix("standard"): what for name, what in found.items()}  # Azure's meters omit it
    return short | found
