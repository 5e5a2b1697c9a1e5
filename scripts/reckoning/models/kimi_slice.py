"""A slice of Kimi K2.6: its layers at full width, only four of them, and a DFlash draft to go with it. No weights.

For a server started with `--load-format dummy`: kernels, memory and communication of each layer are those of the real
model, its text means nothing and an acceptance length measured with it shows the cost of speculation, never its gain.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reckoning.models import tokenizer
from reckoning.models.tiny_kimi import CONFIG as TINY

LAYERS = 4
VOCABULARY = 163840
CONTEXT = 262144

CONFIG: dict[str, Any] = {
    **TINY,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 384,
    "num_experts_per_tok": 8,
    "routed_scaling_factor": 2.827,
    "rope_theta": 50000.0,
    "rope_scaling": {**TINY["rope_scaling"], "factor": 64.0, "original_max_position_embeddings": 4096},
    "torch_dtype": "bfloat16",
    "max_position_embeddings": CONTEXT,
    "vocab_size": VOCABULARY,
}

DRAFT: dict[str, Any] = {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "num_hidden_layers": 2,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "block_size": 8,
    "num_target_layers": LAYERS,
    "dflash_config": {"block_size": 8, "mask_token_id": 3, "target_layer_ids": [1, 2]},
    "rope_theta": 50000.0,
    "rope_scaling": None,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "sliding_window": None,
    "use_sliding_window": False,
    "max_window_layers": LAYERS,
    **{
        key: TINY[key]
        for key in (
            "bos_token_id",
            "eos_token_id",
            "pad_token_id",
            "hidden_act",
            "initializer_range",
            "rms_norm_eps",
            "tie_word_embeddings",
            "use_cache",
        )
    },
    "torch_dtype": "bfloat16",
    "max_position_embeddings": CONTEXT,
    "vocab_size": VOCABULARY,
}


def write(folder: Path) -> dict[str, Any]:
    """Write the slice's configuration and tokenizer into `folder`; return the facts."""
    return _write(folder, CONFIG)


def write_draft(folder: Path) -> dict[str, Any]:
    """Write the DFlash draft's configuration and tokenizer into `folder`; return the facts."""
    return _write(folder, DRAFT)


def _write(folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    tokenizer.write_json(folder / "config.json", config)
    tokenizer.write(folder, VOCABULARY, CONTEXT)
    return {"parameters": None, "vocabulary": VOCABULARY, "layers": config["num_hidden_layers"]}
