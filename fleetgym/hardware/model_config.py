"""Count a model's parameters and KV cache per token from its published ``config.json``.

Layers are those of the Transformers library. A type of model that is not known is refused: its layers may be others.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fleetgym.files.documents import parse_json, read_text
from fleetgym.files.errors import DataError, suggestion
from fleetgym.files.schema import ID_PATTERN, Flag, Integer, shown
from fleetgym.hardware.catalog import ModelType

_FILE_BYTES = 2**20
_SIZE, _COUNT = Integer(1, 10**8), Integer(0, 10**6)
#: Transformers writes it for a limit that does not bind.
_INFINITY = re.compile(r"(?<=[\[,:\s])-?Infinity(?=[\s,\]}])")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Kind:
    """What Transformers builds for a ``model_type``, beside what its configuration says."""

    tied: bool = False  # embedding and head share weights where the file is silent
    qkv_bias: bool = False
    out_bias: bool = False
    head_norms: bool = False  # of queries and keys
    head_norms_if: str = ""  # key of the flag that says so
    norms: int = 2  # per layer
    experts: str = ""  # key of the number of routed experts
    chosen: str = "num_experts_per_tok"  # key of how many of them a token takes
    shared: str = "n_shared_experts"  # key of how many every token takes
    expert_size: str = "moe_intermediate_size"
    expert_bias: bool = False
    dense_size: str = "intermediate_size"  # of layers that are no mixtures
    gates: int = 3  # matrices of a feed-forward part: two without a gate
    gated_heads: bool = False  # queries have a gate each
    wide_norms: bool = False  # of queries and keys, over all heads
    #: What layers without attention do: "delta" (gated delta rule), "kimi" (its variant) or "mamba".
    mixers: str = ""
    #: How layers are laid: "letters" (each is one thing), "types" (mixer or attention) or "both" in each.
    lay: str = "types"
    windows: str = ""  # which layers slide: "all", "even", "five of six", "three of four", "late"
    chunks: bool = False  # what slides does so in chunks
    defaults: Mapping[str, int] = dataclasses.field(default_factory=dict)  # where the file is silent


#: Types of models whose layers are known, by the class in Transformers.
KINDS: Mapping[str, _Kind] = MappingProxyType(
    {
        "llama": _Kind(),
        "mistral": _Kind(windows="all"),
        "mixtral": _Kind(windows="all", experts="num_local_experts", expert_size="intermediate_size"),
        "qwen2": _Kind(qkv_bias=True, windows="late"),
        "qwen2_5_vl": _Kind(qkv_bias=True, windows="late"),
        "qwen2_5_vl_text": _Kind(qkv_bias=True, windows="late"),
        "qwen2_moe": _Kind(qkv_bias=True, windows="late", experts="num_experts"),
        "qwen3": _Kind(head_norms=True, windows="late", defaults={"head_dim": 128}),
        "qwen3_moe": _Kind(
            head_norms=True, windows="late", experts="num_experts", defaults={"head_dim": 128}
        ),
        "qwen3_vl_text": _Kind(head_norms=True, defaults={"head_dim": 128}),
        "qwen3_vl_moe_text": _Kind(head_norms=True, experts="num_experts", defaults={"head_dim": 128}),
        "gemma": _Kind(tied=True, defaults={"head_dim": 256}),
        "gemma2": _Kind(tied=True, norms=4, windows="even", defaults={"head_dim": 256}),
        "gemma3_text": _Kind(
            tied=True,
            norms=4,
            head_norms=True,
            windows="five of six",
            defaults={
                "num_attention_heads": 8,
                "num_key_value_heads": 4,
                "head_dim": 256,
                "vocab_size": 262_208,
                "max_position_embeddings": 131_072,
                "sliding_window_pattern": 6,
            },
        ),
        "deepseek_v2": _Kind(experts="n_routed_experts"),
        "deepseek_v3": _Kind(experts="n_routed_experts"),
        "kimi_k2": _Kind(experts="n_routed_experts"),
        "glm4_moe": _Kind(head_norms_if="use_qk_norm", experts="n_routed_experts"),
        "minimax_m2": _Kind(wide_norms=True, experts="num_local_experts", expert_size="intermediate_size"),
        "llama4_text": _Kind(
            experts="num_local_experts",
            expert_size="intermediate_size",
            dense_size="intermediate_size_mlp",
            windows="three of four",
            chunks=True,
        ),
        "qwen3_next": _Kind(
            head_norms=True,
            gated_heads=True,
            mixers="delta",
            experts="num_experts",
            defaults={"head_dim": 256},
        ),
        "qwen3_5_text": _Kind(head_norms=True, gated_heads=True, mixers="delta", defaults={"head_dim": 256}),
        "qwen3_5_moe_text": _Kind(
            head_norms=True,
            gated_heads=True,
            mixers="delta",
            experts="num_experts",
            defaults={"head_dim": 256},
        ),
        "kimi_linear": _Kind(
            mixers="kimi",
            experts="num_experts",
            chosen="num_experts_per_token",
            shared="num_shared_experts",
        ),
        "nemotron_h": _Kind(norms=1, gates=2, mixers="mamba", lay="letters", experts="n_routed_experts"),
        "falcon_h1": _Kind(mixers="mamba", lay="both"),
        "granite": _Kind(),
        "granitemoe": _Kind(experts="num_local_experts", expert_size="intermediate_size"),
        "granitemoehybrid": _Kind(
            mixers="mamba", experts="num_local_experts", expert_size="intermediate_size"
        ),
        "olmo2": _Kind(wide_norms=True),
        "olmo3": _Kind(wide_norms=True, windows="three of four"),
        "olmoe": _Kind(wide_norms=True, experts="num_experts", expert_size="intermediate_size"),
        "exaone4": _Kind(head_norms=True, windows="three of four"),
        "cohere2": _Kind(tied=True, norms=1, windows="three of four"),
        "ministral3": _Kind(windows="all"),
        "seed_oss": _Kind(),
        "smollm3": _Kind(tied=True, windows="late"),
        "glm4": _Kind(norms=4),
        "glm4v_moe_text": _Kind(experts="n_routed_experts"),
        "glm4_moe_lite": _Kind(experts="n_routed_experts"),
        "glm_moe_dsa": _Kind(experts="n_routed_experts"),
        "deepseek_v32": _Kind(experts="n_routed_experts"),
        "dots1": _Kind(head_norms=True, experts="n_routed_experts"),
        "bailing_moe_v2": _Kind(
            head_norms_if="use_qk_norm", experts="num_experts", shared="num_shared_experts"
        ),
        "apertus": _Kind(gates=2, head_norms=True),
        "ernie4_5": _Kind(tied=True),
        "ernie4_5_moe": _Kind(
            tied=True, experts="moe_num_experts", chosen="moe_k", shared="moe_num_shared_experts"
        ),
        "hunyuan_v1_dense": _Kind(head_norms=True),
        "hunyuan_v1_moe": _Kind(
            head_norms=True, experts="num_experts", chosen="moe_topk", shared="num_shared_expert"
        ),
        "phi3": _Kind(windows="all"),
        "gpt_oss": _Kind(
            qkv_bias=True,
            out_bias=True,
            windows="even",
            experts="num_local_experts",
            expert_size="intermediate_size",
            expert_bias=True,
        ),
    }
)

#: Keys of the longest context.
_LONGEST = ("max_position_embeddings", "model_max_length", "max_sequence_length")
#: Bytes of a weight by how a file's ``quantization_config`` calls it.
_QUANTISED = {"fp8": 8, "fbgemm_fp8": 8, "mxfp4": 4, "awq": 4, "gptq": 4, "bitsandbytes": 8, "nvfp4": 4}
_EIGHT_BIT, _FOUR_BIT = ("fp8", "int8"), ("int4",)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnModel:
    """A model that a file describes, and which facts the file lacks."""

    model: ModelType
    assumed: tuple[str, ...]


def read_model(path: str | os.PathLike[str], name: str | None = None) -> OwnModel:
    """Read a model from its ``config.json``, as published with its weights.

    Parameters
    ----------
    path : path-like
        JSON as `transformers.PretrainedConfig` writes it, at most 1 MiB.
    name : str, optional
        Of the model. By default ``_name_or_path`` of the file, or the name of the file or its folder.

    Returns
    -------
    OwnModel
        Parameters are those of the language model: all of its embeddings, layers and heads.

    Raises
    ------
    DataError
        With file and JSON path of what is missing, out of bounds or contradictory, or of a type whose layers are not
        known.

    Examples
    --------
    >>> import json, tempfile
    >>> config = {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    ...           "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
    ...           "max_position_embeddings": 131072}
    >>> with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
    ...     _ = file.write(json.dumps(config))
    ...     file.flush()
    ...     own = read_model(file.name, name="Llama-3.1-8B").model
    >>> round(own.params_b, 2), own.kv_bytes_per_token
    (8.03, 131072.0)
    """
    try:
        data = parse_json(_INFINITY.sub("null", read_text(path, _FILE_BYTES)))
        return _own_model(data, name or _name(data, Path(os.fspath(path))))
    except DataError as error:
        raise error.in_file(os.fspath(path)) from None


def _name(data: Any, path: Path) -> str:
    """Return what a model is called: as the file says, or the file or its folder is called."""
    said = data.get("_name_or_path") if isinstance(data, Mapping) else None
    folder = Path(os.path.realpath(path)).parent.name
    stem = path.name.removesuffix(".gz").removesuffix(".json")
    text = said if isinstance(said, str) and said.strip("./") else (folder if stem == "config" else stem)
    plain = re.sub(r"[^A-Za-z0-9_.+-]+", "-", text.rstrip("/").rpartition("/")[2]).strip("-._")[:80]
    if not re.fullmatch(ID_PATTERN, plain):
        raise DataError(f"the model has no name; give one: NAME={path.name}")
    return plain


class _Config:
    """The keys of a configuration, each read with its JSON path."""

    def __init__(self, data: Any, path: str = "$", defaults: Mapping[str, int] = MappingProxyType({})):
        if not isinstance(data, Mapping):
            raise DataError(f"expected the object of a config.json, got {shown(data)}", path)
        there = {key: value for key, value in data.items() if value is not None}
        self.data, self.path = {**defaults, **there}, path

    def has(self, key: str) -> bool:
        """Return whether the key is there and not null."""
        return key in self.data

    def size(self, key: str, default: int | None = None) -> int:
        """Return a whole number of at least 1."""
        return int(self._read(key, _SIZE, default))

    def count(self, key: str, default: int | None = None) -> int:
        """Return a whole number."""
        return int(self._read(key, _COUNT, default))

    def flag(self, key: str, default: bool) -> bool:
        """Return true or false."""
        return bool(self._read(key, Flag(), default))

    def _read(self, key: str, kind: Any, default: Any) -> Any:
        if not self.has(key):
            if default is None:
                raise DataError("is missing", f"{self.path}.{key}")
            return default
        value = self.data[key]
        if isinstance(value, list) and value and all(entry == value[0] for entry in value):
            value = value[0]  # one for each layer
        return kind.read(value, f"{self.path}.{key}")

    def fail(self, key: str, message: str) -> DataError:
        """Return the error of a key."""
        return DataError(message, f"{self.path}.{key}")


@dataclasses.dataclass(frozen=True)
class _Layer:
    """Parameters of a mixture: those of every token, of one routed expert, and what stays at 16 bit."""

    shared: int
    expert: int
    plain: int


@dataclasses.dataclass(frozen=True)
class _Stack:
    """How many layers have attention, another mixer of tokens, a dense feed-forward part, and a mixture."""

    attention: int
    mixers: int
    dense: int
    mixed: int


def _own_model(data: Any, name: str) -> OwnModel:
    if not re.fullmatch(ID_PATTERN, name):
        raise DataError(f"expected a name of letters, digits and ._+:@-, got {shown(name)}")
    top, assumed = _Config(data), []
    config = top
    if top.has("text_config"):
        config = _Config(top.data["text_config"], "$.text_config")
        assumed.append("parts for images and sound are not counted")
    kind_name = config.data.get("model_type", top.data.get("model_type"))
    if kind_name not in KINDS:
        raise config.fail(
            "model_type",
            f"the layers of {shown(kind_name)} are not known; known are {', '.join(KINDS)}. Where the layers are "
            "those of one of them, name that one",
        )
    kind = KINDS[str(kind_name)]
    config = _Config(config.data, config.path, kind.defaults)
    hidden, layers = config.size("hidden_size"), config.size("num_hidden_layers")
    heads = config.size("num_attention_heads")
    attention, kv_bytes, kv_heads, head_dim = _attention(config, kind, hidden, heads)
    experts = config.count(kind.experts, 0 if kind.mixers == "mamba" else None) if kind.experts else 0
    chosen = config.size(kind.chosen) if experts else 0
    if experts and chosen > experts:
        raise config.fail(kind.chosen, f"expected at most {experts}, the experts there are")
    stack = _stack(config, kind, layers, experts)
    mixed = stack.mixed
    if mixed and not experts:
        raise config.fail(kind.experts, f"is missing, and {mixed} layers are mixtures of experts")
    has_norms = kind.head_norms or (kind.head_norms_if and config.flag(kind.head_norms_if, False))
    of_heads = head_dim * (heads + kv_heads) if kind.wide_norms else 2 * head_dim if has_norms else 0
    norms = layers * kind.norms * hidden + stack.attention * of_heads
    dense_size = "shared_intermediate_size" if config.has("shared_intermediate_size") else kind.dense_size
    dense_mlp = kind.gates * hidden * config.size(dense_size) if stack.dense else 0
    mixer = _mixer(config, kind, hidden) if stack.mixers else 0
    layer = _mixture(config, kind, hidden, experts) if experts else _Layer(0, 0, 0)
    tied = config.flag("tie_word_embeddings", top.flag("tie_word_embeddings", kind.tied))
    embeddings = hidden * config.size("vocab_size") * (1 if tied else 2)
    common = (
        embeddings
        + hidden
        + norms
        + stack.attention * attention
        + stack.mixers * mixer
        + stack.dense * dense_mlp
        + mixed * layer.shared
    )
    total, active = common + mixed * experts * layer.expert, common + mixed * chosen * layer.expert
    precisions = _precisions(top if top.has("quantization_config") else config, assumed)
    if config.count("num_nextn_predict_layers", 0):
        assumed.append("layers that predict further tokens are not counted")
    if config.has("index_head_dim"):
        assumed.append("attention is timed as if it read every token, not those that its index chooses")
    if stack.mixers:
        assumed.append(
            f"{stack.attention} of {layers} layers hold tokens; the states of {stack.mixers} are not counted"
        )
    window, windowed = _windows(config, kind, layers)
    if windowed:
        assumed.append(f"{windowed} of {layers} layers hold the last {window:,} tokens only")
    model = ModelType(
        name=name,
        params_b=total / 1e9,
        active_params_b=active / 1e9,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        experts=experts,
        experts_per_token=chosen,
        max_context=config.size(next(filter(config.has, _LONGEST), _LONGEST[0])),
        weight_gb_bf16=2.0 * total / 1e9,
        kv_bytes_per_token=float(stack.attention * kv_bytes),
        hybrid_attention=windowed > 0,
        window_tokens=window if windowed else 0,
        windowed_layers=windowed,
        plain_params_b=(embeddings + norms + mixed * layer.plain) / 1e9,
        precisions=precisions,
        label="modelled",
        source="counted from the config.json that was given",
        licence="",
    )
    return OwnModel(model=model, assumed=tuple(assumed))


def _attention(config: _Config, kind: _Kind, hidden: int, heads: int) -> tuple[int, int, int, int]:
    """Return a layer's parameters, its KV bytes per token at 16 bit, KV heads, and the dimension of a head."""
    if config.has(
        "kv_lora_rank"
    ):  # multi-head latent attention: one latent vector and one rotary key a token
        latent, rope = config.size("kv_lora_rank"), config.size("qk_rope_head_dim")
        nope, value = config.size("qk_nope_head_dim"), config.size("v_head_dim")
        width = heads * (nope + rope)
        rank = config.size("q_lora_rank") if config.has("q_lora_rank") else 0
        query = rank * (hidden + 1 + width) if rank else hidden * width
        key_value = hidden * (latent + rope) + latent + latent * heads * (nope + value)
        index, held = _index(config, hidden, rank)
        return (
            query + key_value + heads * value * hidden + index,
            2 * (latent + rope) + held,
            1,
            latent + rope,
        )
    kv_heads = config.size("num_key_value_heads", heads)
    if heads % kv_heads:
        raise config.fail("num_key_value_heads", f"expected a divisor of the {heads} attention heads")
    key = "attention_head_dim" if config.has("attention_head_dim") else "head_dim"
    if not config.has(key) and hidden % heads:
        raise config.fail(key, f"is missing, and {heads} heads do not divide {hidden}")
    dim = config.size(key, hidden // heads)
    own_bias = config.flag("attention_bias", False)
    parameters = 2 * hidden * dim * (heads + kv_heads) + (hidden * dim * heads if kind.gated_heads else 0)
    if kind.qkv_bias or own_bias:
        parameters += dim * (heads + 2 * kv_heads)
    if kind.out_bias or config.flag("attention_out_bias", own_bias):
        parameters += hidden
    return parameters, 4 * kv_heads * dim, kv_heads, dim


def _index(config: _Config, hidden: int, rank: int) -> tuple[int, int]:
    """Return the parameters of what chooses the tokens that attention reads, and its bytes per token."""
    if not config.has("index_head_dim"):
        return 0, 0
    dim, heads = config.size("index_head_dim"), config.size("index_n_heads")
    return rank * heads * dim + hidden * (dim + heads) + 2 * dim, dim + 4  # keys at 8 bit, with a scale


def _stack(config: _Config, kind: _Kind, layers: int, experts: int) -> _Stack:
    """Return how many layers there are of each kind."""
    if kind.mixers and kind.lay == "letters":  # Mamba, attention, a feed-forward part or a mixture
        pattern = config.data.get("hybrid_override_pattern")
        if not isinstance(pattern, str) or len(pattern) != layers or not set(pattern) <= set("M*-E"):
            raise config.fail("hybrid_override_pattern", f"expected {layers} of the letters M, *, - and E")
        return _Stack(*(pattern.count(letter) for letter in "*M-E"))
    mixed = _mixed_layers(config, layers) if experts else 0
    if kind.lay == "both":
        return _Stack(layers, layers, layers, 0)
    attention = layers
    if kind.mixers == "kimi":
        linear = _Config(config.data.get("linear_attn_config"), f"{config.path}.linear_attn_config")
        attention = len(linear.data.get("full_attn_layers") or [])
    elif kind.mixers == "mamba":
        attention = layers - _of_type(config, layers, "mamba", "attention")
    elif kind.mixers and config.has("layer_types"):
        attention = layers - _of_type(config, layers, "linear_attention")
    elif kind.mixers:
        attention = layers // config.size("full_attention_interval")
    return _Stack(attention, layers - attention, layers - mixed, mixed)


def _mixer(config: _Config, kind: _Kind, hidden: int) -> int:
    """Return the parameters of a layer's mixer of tokens that holds a state instead of tokens."""
    if kind.mixers == "delta":
        keys, values = config.size("linear_num_key_heads"), config.size("linear_num_value_heads")
        key, value = (
            keys * config.size("linear_key_head_dim"),
            values * config.size("linear_value_head_dim"),
        )
        convolution = (2 * key + value) * config.size("linear_conv_kernel_dim")
        projections = hidden * (2 * key + 2 * value + 2 * values) + value * hidden
        return projections + convolution + 2 * values + config.size("linear_value_head_dim")
    if kind.mixers == "kimi":  # keys and values of one size; two gates through a narrow layer
        linear = _Config(config.data.get("linear_attn_config"), f"{config.path}.linear_attn_config")
        heads, dim = linear.size("num_heads"), linear.size("head_dim")
        inner = heads * dim
        narrow = 2 * dim * (hidden + inner)
        convolution = 3 * inner * linear.size("short_conv_kernel_size")
        return 4 * hidden * inner + narrow + convolution + hidden * heads + inner + heads + dim
    nemotron = kind.lay == "letters"
    heads = config.size("mamba_num_heads" if nemotron else "mamba_n_heads")
    inner = heads * config.size("mamba_head_dim" if nemotron else "mamba_d_head")
    groups, state = ("n_groups", "ssm_state_size") if nemotron else ("mamba_n_groups", "mamba_d_state")
    states = 2 * config.size(groups) * config.size(state)
    kernel, bias = ("conv_kernel", "use_conv_bias") if nemotron else ("mamba_d_conv", "mamba_conv_bias")
    convolution = (inner + states) * (config.size(kernel) + int(config.flag(bias, True)))
    return hidden * (2 * inner + states + heads) + inner * hidden + convolution + 3 * heads + inner


def _mixed_layers(config: _Config, layers: int) -> int:
    """Return how many layers are mixtures of experts."""
    if config.has("interleave_moe_layer_step"):
        return layers // config.size("interleave_moe_layer_step")
    if config.has("moe_layer_start_index"):
        start, end = config.count("moe_layer_start_index"), config.data.get("moe_layer_end_index", -1)
        step, last = config.size("moe_layer_interval", 1), layers - 1 if end == -1 else end
        return sum(start <= k <= last and (k + 1) % step == 0 for k in range(layers))
    first = config.count("first_k_dense_replace", 0)
    every = config.size("decoder_sparse_step", config.size("moe_layer_freq", 1))
    dense = config.data.get("mlp_only_layers") or []
    if not isinstance(dense, list) or not all(isinstance(k, int) for k in dense):
        raise config.fail("mlp_only_layers", f"expected a list of layers, got {shown(dense)}")
    shift = 1 if config.has("decoder_sparse_step") else 0
    return sum(k >= first and (k + shift) % every == 0 and k not in dense for k in range(layers))


def _mixture(config: _Config, kind: _Kind, hidden: int, experts: int) -> _Layer:
    """Return the parameters of a mixture of experts."""
    size = config.size(kind.expert_size)
    bias = 2 * size + hidden if kind.expert_bias else 0
    inner = config.size("moe_latent_size", hidden)  # experts may work in fewer dimensions
    expert = kind.gates * inner * size + bias
    corrected = config.has("topk_method") or config.flag("use_routing_bias", kind.mixers == "mamba")
    router = hidden * experts + (experts if kind.expert_bias or corrected else 0)
    shared_size = config.size("moe_shared_expert_intermediate_size", size)
    always = config.count(kind.shared, int(config.has("interleave_moe_layer_step")))
    always *= kind.gates * hidden * shared_size
    always += 2 * hidden * inner if inner < hidden else 0
    shared_expert = config.count("shared_expert_intermediate_size", 0)
    if shared_expert:
        always += 3 * hidden * shared_expert + hidden
    always += 3 * hidden * config.count("shared_intermediate_size", 0)
    return _Layer(router + always, expert, router)


def _windows(config: _Config, kind: _Kind, layers: int) -> tuple[int, int]:
    """Return the tokens of a sliding window, and how many layers slide."""
    is_chunked = kind.chunks  # attention within chunks
    key = "attention_chunk_size" if is_chunked else "sliding_window"
    if not config.has(key) or not kind.windows:
        return 0, 0
    window = config.size(key)
    if config.has("layer_types"):
        return window, _of_type(config, layers, "chunked_attention" if is_chunked else "sliding_attention")
    if is_chunked:
        return window, layers - layers // config.size("no_rope_layer_interval", 4)
    if kind.windows == "three of four":
        return window, layers - layers // 4
    if kind.windows == "late":
        slides = config.flag("use_sliding_window", False)
        return window, layers - min(layers, config.count("max_window_layers", layers)) if slides else 0
    if kind.windows == "even":
        return window, (layers + 1) // 2
    if kind.windows == "five of six":
        return window, layers - layers // config.size("sliding_window_pattern")
    return window, layers


def _of_type(config: _Config, layers: int, kind: str, other: str = "full_attention") -> int:
    """Return how many layers are of a type; all others are of the other."""
    types, known = config.data.get("layer_types"), (kind, other)
    if not isinstance(types, list) or len(types) != layers or not set(map(str, types)) <= set(known):
        raise config.fail("layer_types", f"expected {layers} words, {' or '.join(known)}")
    return types.count(kind)


def _precisions(config: _Config, assumed: list[str]) -> tuple[str, ...]:
    """Return the precisions of a checkpoint that is quantised; empty for one at 16 bit, which may be quantised."""
    if not config.has("quantization_config"):
        assumed.append("served at 16 bit, or quantised to 8 when it is loaded")
        return ()
    quantised = _Config(config.data["quantization_config"], f"{config.path}.quantization_config")
    method = quantised.data.get("quant_method")
    if method == "compressed-tensors":
        bits = _compressed_bits(quantised)
    elif method == "modelopt":
        algorithm = str(quantised.data.get("quant_algo")).upper()
        bits = 8 if algorithm.startswith("FP8") else 4 if re.search("FP4|INT4|W4A", algorithm) else 0
        if not bits:
            raise quantised.fail("quant_algo", f"unknown: {shown(quantised.data.get('quant_algo'))}")
    elif method in _QUANTISED:
        bits = quantised.size("bits", _QUANTISED[method])
        if method == "bitsandbytes":
            bits = 4 if quantised.flag("load_in_4bit", False) else 8
    else:
        raise quantised.fail("quant_method", f"unknown: {shown(method)}{suggestion(str(method), _QUANTISED)}")
    if bits not in (4, 8):
        raise quantised.fail("bits", f"expected weights of 4 or 8 bit, got {bits}")
    return _EIGHT_BIT if bits == 8 else _FOUR_BIT


def _compressed_bits(quantised: _Config) -> int:
    groups = quantised.data.get("config_groups")
    for key, group in (groups or {}).items() if isinstance(groups, Mapping) else ():
        path = f"{quantised.path}.config_groups.{key}"
        return _Config(_Config(group, path).data.get("weights"), f"{path}.weights").size("num_bits")
    raise quantised.fail("config_groups", "is missing: the bits of the weights are not known")
