"""A tiny mixture of experts of the Kimi K2 shape: the same layers and routing, a ten-thousandth of the width.

DeepseekV3ForCausalLM with multi-head latent attention, one dense layer, then 16 routed and one shared expert a layer,
sigmoid scores with a correction bias (noaux_tc), YaRN positions. The weights are random, so its text means nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from reckoning.models import tokenizer

SEED = 2606
VOCABULARY = tokenizer.TRAINED

CONFIG: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "hidden_size": 256,
    "intermediate_size": 512,
    "moe_intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "q_lora_rank": 96,
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
    "n_routed_experts": 16,
    "n_shared_experts": 1,
    "num_experts_per_tok": 4,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "n_group": 1,
    "topk_group": 1,
    "norm_topk_prob": True,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "routed_scaling_factor": 2.5,
    "rope_theta": 50000.0,
    "rope_scaling": {
        "type": "yarn",
        "factor": 2.0,
        "original_max_position_embeddings": 1024,
        "beta_fast": 1.0,
        "beta_slow": 1.0,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
    },
    "attention_bias": False,
    "attention_dropout": 0.0,
    "num_nextn_predict_layers": 0,
    "ep_size": 1,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
    "torch_dtype": "float32",
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "use_cache": True,
    "max_position_embeddings": 2048,
    "vocab_size": VOCABULARY,
}

GENERATION_KEYS = ("bos_token_id", "eos_token_id", "pad_token_id")


def write(folder: Path) -> dict[str, Any]:
    """Write configuration, tokenizer and weights into `folder`; return the facts."""
    tokenizer.write_json(folder / "config.json", CONFIG)
    tokenizer.write_json(folder / "generation_config.json", {key: CONFIG[key] for key in GENERATION_KEYS})
    tokenizer.write(folder, VOCABULARY, CONFIG["max_position_embeddings"])
    weights = dict(tensors())
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
    return {
        "parameters": int(sum(item.size for item in weights.values())),
        "vocabulary": VOCABULARY,
        "seed": SEED,
    }


def tensors() -> Iterator[tuple[str, np.ndarray]]:
    """Yield every weight in a fixed order: float32, from SEED, scaled so that activations keep their size."""
    random = np.random.Generator(np.random.PCG64(SEED))
    c = CONFIG

    def normal(*shape: int, scale: float = 1.0) -> np.ndarray:
        return random.standard_normal(shape, dtype=np.float32) * np.float32(scale)

    def linear(name: str, outputs: int, inputs: int) -> tuple[str, np.ndarray]:
        return f"{name}.weight", normal(outputs, inputs, scale=1.4 / inputs**0.5)

    def ones(name: str, size: int) -> tuple[str, np.ndarray]:
        return f"{name}.weight", np.ones(size, dtype=np.float32)

    def mlp(prefix: str, width: int) -> Iterator[tuple[str, np.ndarray]]:
        yield linear(f"{prefix}.gate_proj", width, c["hidden_size"])
        yield linear(f"{prefix}.up_proj", width, c["hidden_size"])
        yield linear(f"{prefix}.down_proj", c["hidden_size"], width)

    def attention(prefix: str) -> Iterator[tuple[str, np.ndarray]]:
        heads, hidden = c["num_attention_heads"], c["hidden_size"]
        yield linear(f"{prefix}.q_a_proj", c["q_lora_rank"], hidden)
        yield ones(f"{prefix}.q_a_layernorm", c["q_lora_rank"])
        yield linear(f"{prefix}.q_b_proj", heads * (c["qk_nope_head_dim"] + c["qk_rope_head_dim"]), c["q_lora_rank"])
        yield linear(f"{prefix}.kv_a_proj_with_mqa", c["kv_lora_rank"] + c["qk_rope_head_dim"], hidden)
        yield ones(f"{prefix}.kv_a_layernorm", c["kv_lora_rank"])
        yield linear(f"{prefix}.kv_b_proj", heads * (c["qk_nope_head_dim"] + c["v_head_dim"]), c["kv_lora_rank"])
        yield linear(f"{prefix}.o_proj", hidden, heads * c["v_head_dim"])

    def experts(prefix: str) -> Iterator[tuple[str, np.ndarray]]:
        yield linear(f"{prefix}.gate", c["n_routed_experts"], c["hidden_size"])
        yield f"{prefix}.gate.e_score_correction_bias", normal(c["n_routed_experts"], scale=0.1)
        for number in range(c["n_routed_experts"]):
            yield from mlp(f"{prefix}.experts.{number}", c["moe_intermediate_size"])
        yield from mlp(f"{prefix}.shared_experts", c["moe_intermediate_size"] * c["n_shared_experts"])

    yield "model.embed_tokens.weight", normal(c["vocab_size"], c["hidden_size"])
    for layer in range(c["num_hidden_layers"]):
        prefix = f"model.layers.{layer}"
        yield ones(f"{prefix}.input_layernorm", c["hidden_size"])
        yield from attention(f"{prefix}.self_attn")
        yield ones(f"{prefix}.post_attention_layernorm", c["hidden_size"])
        if layer < c["first_k_dense_replace"]:
            yield from mlp(f"{prefix}.mlp", c["intermediate_size"])
        else:
            yield from experts(f"{prefix}.mlp")
    yield ones("model.norm", c["hidden_size"])
    yield linear("lm_head", c["vocab_size"], c["hidden_size"])
