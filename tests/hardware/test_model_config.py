"""Models from their published configurations: parameters, KV cache per token, and what is refused."""

from __future__ import annotations

import json

import pytest
from model_configs import (
    COMMAND_A,
    DEEPSEEK_V3,
    DEEPSEEK_V32,
    DOTS_1,
    ERNIE_21B,
    ERNIE_300B,
    EXAONE_4,
    FALCON_H1,
    GEMMA2_9B,
    GEMMA3_27B,
    GLM_5,
    GLM_45,
    GPT_OSS_120B,
    GRANITE_4_SMALL,
    HUNYUAN_A13B,
    KIMI_K2,
    KIMI_LINEAR,
    LING_MINI_2,
    LLAMA4_MAVERICK,
    LLAMA_70B,
    MINIMAX_M2,
    MISTRAL_7B,
    MIXTRAL,
    NEMOTRON_NANO,
    OLMO_3,
    QWEN3_30B,
    QWEN3_235B,
    QWEN3_NEXT,
    QWEN25_VL_7B,
    QWEN35_397B,
    SEED_OSS,
    SMOLLM3,
)

from fleetgym.files.errors import DataError
from fleetgym.hardware import catalog
from fleetgym.hardware.model_config import read_model

# Published sizes in billions; KV bytes per token at 16 bit by hand: 2 x layers x KV heads x dimension x 2 bytes.
CASES = [
    ("DeepSeek-V3", DEEPSEEK_V3, 671.0, 37.0, 61 * (512 + 64) * 2),
    ("Qwen3-235B-A22B", QWEN3_235B, 235.1, 22.1, 94 * 4 * 128 * 4),
    ("Qwen3-30B-A3B", QWEN3_30B, 30.5, 3.3, 48 * 4 * 128 * 4),
    ("Llama-3.1-70B", LLAMA_70B, 70.55, 70.55, 80 * 8 * 128 * 4),
    ("gemma-2-9b", GEMMA2_9B, 9.24, 9.24, 42 * 8 * 256 * 4),
    ("gemma-3-27b", GEMMA3_27B, 27.0, 27.0, 62 * 16 * 128 * 4),
    ("Mistral-7B", MISTRAL_7B, 7.24, 7.24, 32 * 8 * 128 * 4),
    ("Mixtral-8x7B", MIXTRAL, 46.7, 12.9, 32 * 8 * 128 * 4),
    ("gpt-oss-120b", GPT_OSS_120B, 116.8, None, 36 * 8 * 64 * 4),
    ("Kimi-K2", KIMI_K2, 1026.4, 32.9, 61 * (512 + 64) * 2),
    # Published: 355 with the layer that predicts further tokens, 32 without embeddings.
    ("GLM-4.5", GLM_45, 352.8, 33.6, 92 * 8 * 128 * 4),
    ("MiniMax-M2", MINIMAX_M2, 228.7, 11.0, 62 * 8 * 128 * 4),
    ("Llama-4-Maverick", LLAMA4_MAVERICK, 400.7, 17.2, 48 * 8 * 128 * 4),
    ("Qwen3-Next-80B-A3B", QWEN3_NEXT, 79.7, 3.9, 12 * 2 * 256 * 4),
    ("Nemotron-3-Nano", NEMOTRON_NANO, 31.6, 3.6, 6 * 2 * 128 * 4),
    # The index of sparse attention holds a key of 8 bit and its scale.
    ("DeepSeek-V3.2", DEEPSEEK_V32, 671.9, None, 61 * ((512 + 64) * 2 + 132)),
    ("GLM-5", GLM_5, 744.0, None, 78 * ((512 + 64) * 2 + 132)),
    ("Kimi-Linear-48B-A3B", KIMI_LINEAR, 49.1, None, 7 * (512 + 64) * 2),
    ("Qwen3.5-397B-A17B", QWEN35_397B, 397.0, None, 15 * 2 * 256 * 4),
    ("ERNIE-4.5-21B-A3B", ERNIE_21B, 21.8, None, 28 * 4 * 128 * 4),
    ("ERNIE-4.5-300B-A47B", ERNIE_300B, 300.0, None, 54 * 8 * 128 * 4),
    ("Hunyuan-A13B", HUNYUAN_A13B, 80.4, 13.0, 32 * 8 * 128 * 4),
    ("granite-4.0-h-small", GRANITE_4_SMALL, 32.2, None, 4 * 8 * 128 * 4),
    ("Falcon-H1-34B", FALCON_H1, 33.6, 33.6, 72 * 4 * 128 * 4),
    ("OLMo-3-32B", OLMO_3, 32.2, 32.2, 64 * 8 * 128 * 4),
    ("EXAONE-4.0-32B", EXAONE_4, 32.0, 32.0, 64 * 8 * 128 * 4),
    ("Command-A", COMMAND_A, 111.0, 111.0, 64 * 8 * 128 * 4),
    ("Seed-OSS-36B", SEED_OSS, 36.15, 36.15, 64 * 8 * 128 * 4),
    ("SmolLM3-3B", SMOLLM3, 3.08, 3.08, 36 * 4 * 128 * 4),
    ("Qwen2.5-VL-7B", QWEN25_VL_7B, 7.62, 7.62, 28 * 4 * 128 * 4),  # without the part for images
    ("dots.llm1", DOTS_1, 142.0, 14.0, 62 * 32 * 128 * 4),
    ("Ling-mini-2.0", LING_MINI_2, 16.26, 1.43, 20 * 4 * 128 * 4),
]


def written(folder, config):
    """Write a configuration as it is published."""
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return path


@pytest.mark.parametrize(("name", "config", "total", "active", "kv_bytes"), CASES)
def test_published_sizes(tmp_path, name, config, total, active, kv_bytes):
    """Total parameters within 1 % of the published count, active ones within 2 %; KV bytes exact."""
    model = read_model(written(tmp_path, config), name=name).model
    assert model.params_b == pytest.approx(total, rel=0.01)
    assert active is None or model.active_params_b == pytest.approx(active, rel=0.02)
    assert model.kv_bytes_per_token == kv_bytes


def test_sliding_windows_hold_their_last_tokens(tmp_path):
    """Beyond the window only the other layers grow."""
    gemma = read_model(written(tmp_path, GEMMA3_27B), name="gemma").model
    layer = 16 * 128 * 4
    assert gemma.windowed_layers == 52
    assert gemma.kv_bytes(1000) == 62 * layer * 1000
    assert gemma.kv_bytes(10_000) == pytest.approx(10 * layer * 10_000 + 52 * layer * 1024)
    gemma2 = read_model(written(tmp_path, GEMMA2_9B), name="gemma").model
    assert gemma2.kv_bytes(8192) == pytest.approx(21 * 8 * 256 * 4 * (8192 + 4096))
    mistral = read_model(written(tmp_path, MISTRAL_7B), name="m").model
    assert mistral.kv_bytes(30_000) == mistral.kv_bytes(4096)


def test_catalogue_agrees(tmp_path):
    """What the catalogue computed from the same configuration, it says too."""
    for name, config in (("Llama-3.1-70B", LLAMA_70B), ("Qwen3-235B-A22B", QWEN3_235B)):
        own, known = read_model(written(tmp_path, config), name=name).model, catalog.model(name)
        assert own.params_b == pytest.approx(known.params_b, rel=1e-3)
        assert own.active_params_b == pytest.approx(known.active_params_b, rel=3e-3)  # routers
        assert own.kv_bytes_per_token == known.kv_bytes_per_token
        assert own.max_context == known.max_context


def test_quantised_weights(tmp_path):
    """A quantised checkpoint comes at its own precision; embeddings and routers stay at 16 bit."""
    deepseek = read_model(written(tmp_path, DEEPSEEK_V3), name="d")
    assert deepseek.model.precisions == ("fp8", "int8")
    assert deepseek.model.weight_gb("fp8") == pytest.approx(671 + 2 * 129280 * 7168 / 1e9, rel=0.01)
    assert any("predict further" in text for text in deepseek.assumed)
    oss = read_model(written(tmp_path, GPT_OSS_120B), name="o").model
    assert oss.precisions == ("int4",)
    assert oss.weight_gb("int4") == pytest.approx(61, rel=0.05)
    llama = read_model(written(tmp_path, LLAMA_70B), name="l")
    assert llama.model.precisions == ()
    assert any("16 bit" in text for text in llama.assumed)


def test_name_comes_from_the_file_or_its_folder(tmp_path):
    """As Hugging Face stores it."""
    folder = tmp_path / "Llama-3.1-70B-Instruct"
    folder.mkdir()
    assert read_model(written(folder, LLAMA_70B)).model.name == "Llama-3.1-70B-Instruct"
    named = {**LLAMA_70B, "_name_or_path": "meta-llama/Other-70B"}
    assert read_model(written(folder, named)).model.name == "Other-70B"


@pytest.mark.parametrize(
    ("change", "where", "says"),
    [
        ({"hidden_size": None}, "$.hidden_size", "is missing"),
        ({"num_hidden_layers": 80.5}, "$.num_hidden_layers", "whole number"),
        ({"num_attention_heads": True}, "$.num_attention_heads", "whole number"),
        ({"num_key_value_heads": 7}, "$.num_key_value_heads", "divisor"),
        ({"model_type": "mamba2"}, "$.model_type", "not known"),
        ({"quantization_config": {"quant_method": "magic"}}, "$.quantization_config.quant_method", "unknown"),
        (
            {"quantization_config": {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}},
            "$.quantization_config.quant_algo",
            "unknown",
        ),
        (
            {"quantization_config": {"quant_method": "gptq", "bits": 3}},
            "$.quantization_config.bits",
            "4 or 8",
        ),
        ({"max_position_embeddings": -1}, "$.max_position_embeddings", "from 1"),
    ],
)
def test_faults_name_their_place(tmp_path, change, where, says):
    """File, JSON path, and what would be valid."""
    with pytest.raises(DataError) as caught:
        read_model(written(tmp_path, {**LLAMA_70B, **change}), name="l")
    assert caught.value.path == where
    assert says in caught.value.message
    assert caught.value.source.endswith("config.json")
    with pytest.raises(DataError):
        read_model(written(tmp_path, []), name="l")


def test_layers_that_read_chunks(tmp_path):
    """Of Llama 4, every fourth layer reads all tokens."""
    model = read_model(written(tmp_path, LLAMA4_MAVERICK), name="l").model
    assert (model.windowed_layers, model.window_tokens) == (36, 8192)
    assert model.kv_bytes(100_000) == pytest.approx(8 * 128 * 4 * (12 * 100_000 + 36 * 8192))


def test_layers_without_attention_hold_no_tokens(tmp_path):
    """Theirs is told; a pattern must fit the number of layers."""
    own = read_model(written(tmp_path, QWEN3_NEXT), name="q")
    assert any("12 of 48 layers hold tokens" in text for text in own.assumed)
    with pytest.raises(DataError, match="expected 52 of the letters"):
        read_model(written(tmp_path, {**NEMOTRON_NANO, "hybrid_override_pattern": "M*"}), name="n")
    with pytest.raises(DataError, match="layers are mixtures of experts"):
        read_model(written(tmp_path, {**NEMOTRON_NANO, "n_routed_experts": None}), name="n")
    with pytest.raises(DataError, match="is missing"):
        read_model(written(tmp_path, {**QWEN3_NEXT, "num_experts": None}), name="q")
    types = ["linear_attention", "linear_attention", "linear_attention", "full_attention"] * 12
    own = read_model(written(tmp_path, {**QWEN3_NEXT, "layer_types": types}), name="q").model
    assert own.kv_bytes_per_token == 24_576
    with pytest.raises(DataError, match="linear_attention or full_attention"):
        read_model(written(tmp_path, {**QWEN3_NEXT, "layer_types": ["gated"] * 48}), name="q")
    latent = {**NEMOTRON_NANO, "moe_latent_size": 672}
    assert read_model(written(tmp_path, latent), name="n").model.params_b < 12.0


def test_a_type_that_is_not_known_gets_no_hint(tmp_path):
    """Another architecture's name would count other layers without a word."""
    with pytest.raises(DataError, match="are not known; known are llama, mistral") as caught:
        read_model(written(tmp_path, {**QWEN3_NEXT, "model_type": "qwen3_5_moe"}), name="q")
    assert "did you mean" not in caught.value.message


def test_infinity_is_read_as_transformers_writes_it(tmp_path):
    """A limit that does not bind; it is no number of JSON."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA_70B, "time_step_limit": [0.0, float("inf")]}))
    assert "Infinity" in path.read_text()
    assert read_model(path, name="l").model.params_b == pytest.approx(70.55, rel=0.01)


def test_mixtures_are_checked(tmp_path):
    """Experts and kinds of layers must agree with their number."""
    with pytest.raises(DataError, match="at most 256"):
        read_model(written(tmp_path, {**DEEPSEEK_V3, "num_experts_per_tok": 300}), name="d")
    with pytest.raises(DataError, match="layer_types"):
        read_model(written(tmp_path, {**GPT_OSS_120B, "layer_types": ["full_attention"]}), name="o")
