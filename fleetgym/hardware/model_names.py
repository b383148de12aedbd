"""Find the catalogue's model from the names that people, hubs and clouds use."""

from __future__ import annotations

import csv
import functools
import math
import re
from collections.abc import Collection, Mapping
from importlib import resources

from fleetgym.files.errors import UnknownNameError

_FOUR_BITS = r"awq|gptq|int4|4-?bit|w4a\d+|nvfp4|mxfp4|fp4|bnb|q4(?:_[a-z0-9]+)*"
_PRECISION = re.compile(
    rf"(?<![a-z0-9])(?:{_FOUR_BITS}|fp8|fp16|bf16|int8|8-?bit|w8a\d+|gguf|mlx|dynamic|quantized|i?q\d(?:_[a-z0-9]+)*)"
    r"(?![a-z0-9])"
)
#: What does not change the shape of a model: its seller, its tuning, the way it is offered.
_WORDS = frozenset(
    ("meta", "ai", "openai", "nvidia", "databricks", "textgeneration", "instruct", "it", "chat", "hf", "base")
    + ("thinking", "turbo", "instant", "versatile", "free", "maas", "preview")
)
_END = re.compile(r"[-:]v?\d+:\d+$|@[\w.-]+$|-v0\.\d+$|-v1$|\.gguf$|:free$")
_TOKEN = re.compile(r"\d+x\d+b|a?\d+(?:\.\d+)?b(?![a-z0-9])|[a-z]+|\d+")
_SIZE = re.compile(r"(?<![a-z0-9])\d+(?:\.\d+)?(?:x\d+)?b(?![a-z0-9])")
_FAMILY = re.compile(
    r"(?<![a-z])(?:llama|codellama|qwen|qwq|mistral|mixtral|ministral|magistral|devstral|codestral|pixtral|gemma|deepseek|"
    r"phi-?\d|gpt|glm-?\d|kimi|minimax|mimo-|nemotron|command-?[ar]|granite-?\d|falcon-?\d|olmo|jamba|dbrx|starcoder|"
    r"internlm|baichuan|ernie|hunyuan|exaone|smollm|vicuna|wizardlm|yi-\d)"
)
_HOSTED = re.compile(
    r"(?<![a-z])(?:chatgpt|gpt-?[345]|o[134](?![a-z0-9])|claude|gemini|grok-?\d|text-davinci|davinci|titan-text|"
    r"nova-(?:micro|lite|pro|premier)|qwen-(?:max|plus|turbo)|mistral-(?:medium|large-latest)|sonar(?![a-z]))"
)


def named(name: str, known: Collection[str]) -> str | None:
    """Return the model that a name means; None for one that means none of the known ones.

    Parameters
    ----------
    name : str
        With or without organisation, tuning, precision, tag or version, as hubs, engines and clouds write it.
    known : collection of str
        The models there are.

    Examples
    --------
    >>> known = ["Llama-3.1-70B", "Llama-3.1-8B", "DeepSeek-R1", "Mixtral-8x7B-v0.1"]
    >>> named("meta-llama/Meta-Llama-3.1-70B-Instruct-FP8", known), named("llama3.1:latest", known)
    ('Llama-3.1-70B', 'Llama-3.1-8B')
    >>> named("us.meta.llama3-1-70b-instruct-v1:0", known), named("mistral.mixtral-8x7b-instruct-v0:1", known)
    ('Llama-3.1-70B', 'Mixtral-8x7B-v0.1')
    >>> named("deepseek-r1:8b", known)  # another model under the name
    """
    key = _key(name)
    models = {_key(model): model for model in known}
    if key in models:
        return models[key]
    other = _others().get(key)
    return other if other in known else None


def known_name(name: str, known: Collection[str]) -> str:
    """Return the model that a name means; raise `UnknownNameError` if it means none."""
    found = named(name, known)
    if found is None:
        raise UnknownNameError("model", name, known, NO_WEIGHTS if is_hosted(name) else "")
    return found


NO_WEIGHTS = "no weights of it are public"


def is_hosted(name: str) -> bool:
    """Return whether a name is of a model that its maker alone serves.

    Examples
    --------
    >>> is_hosted("azure/gpt-4o-mini"), is_hosted("anthropic.claude-sonnet-4"), is_hosted("openai/gpt-oss-120b")
    (True, True, False)
    """
    return _HOSTED.search(name.lower()) is not None


def named_size(text: str) -> float | None:
    """Return the size that a name tells, in billions of parameters.

    Examples
    --------
    >>> named_size("gemma-3-27b-it"), named_size("Mixtral-8x7B"), named_size("gpt-4o")
    (27.0, 56.0, None)
    """
    found = _SIZE.search(text.lower())
    if found is None:
        return None
    factors = [float(part) for part in found[0].removesuffix("b").split("x")]
    return math.prod(factors)


def looks_like_a_model(name: str) -> bool:
    """Return whether a name has a number of parameters, or begins as those of a family of models do.

    Examples
    --------
    >>> looks_like_a_model("acme-70b"), looks_like_a_model("llama-guard"), looks_like_a_model("checkout")
    (True, True, False)
    """
    text = name.lower()
    return is_hosted(text) or any(pattern.search(text) for pattern in (_SIZE, _FAMILY))


def has_four_bits(name: str) -> bool:
    """Return whether a name says that weights have 4 bits."""
    return re.search(rf"(?<![a-z0-9])(?:{_FOUR_BITS})(?![a-z0-9])", name.lower()) is not None


def _key(name: str) -> tuple[str, ...]:
    """Return what a name says of the shape of a model.

    Examples
    --------
    >>> _key("accounts/fireworks/models/llama-v3p1-8b-instruct"), _key("Qwen/Qwen3-30B-A3B-Instruct-2507")
    (('llama', '3', '1', '8b'), ('qwen', '3', '30b', 'a3b'))
    """
    text = re.sub(r"/versions/[^/]*$", "", name.strip().lower()).rpartition("/")[2]
    text = re.sub(r"^(?:us|eu|apac|jp|au|ca|global|us-gov)\.", "", text)
    text = re.sub(r"-v(\d)p(\d)", r"-\1.\2", text)
    while (shorter := _END.sub("", text)) != text:
        text = shorter
    words = [word for word in _TOKEN.findall(_PRECISION.sub(" ", text)) if word not in _WORDS]
    words = [word for word in words if not re.fullmatch(r"\d{4,8}", word)]  # dates
    has_size = any(_SIZE.fullmatch(word) for word in words)
    pairs = zip(words, [*words[1:], ""], strict=False)
    return tuple(
        word
        for word, after in pairs
        if not (word.isalpha() and word == after)  # the seller's name before the family's
        and (word, after) != ("mistral", "mixtral")
        and not (word == "latest" and has_size)
    )


@functools.cache
def _others() -> Mapping[tuple[str, ...], str]:
    """Return the names of ``model_names.csv`` beside the catalogue's own."""
    text = resources.files("fleetgym").joinpath("data", "model_names.csv").read_text(encoding="utf-8")
    return {_key(row["name"]): row["model"] for row in csv.DictReader(text.splitlines())}
