"""Facts of a model that rules and the memory model need, from its config.json or from the experiment file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reckoning.experiment.places import find

# Families call the same thing differently; the first name is the one that we use.
_SYNONYMS = {
    "n_routed_experts": ("num_experts", "num_local_experts"),
    "num_experts_per_tok": ("num_experts_per_token", "moe_topk"),
    "moe_intermediate_size": ("expert_ffn_hidden_size",),
    "n_shared_experts": ("num_shared_experts",),
    "dtype": ("torch_dtype",),
}


@dataclass(frozen=True)
class ModelFacts:
    """A model's config.json as far as it is known, read through properties; `source` says where it is from."""

    values: Mapping[str, Any] = field(default_factory=dict)
    source: str = "unknown"

    def get(self, name: str, default: Any = None) -> Any:
        """Return a value under our name for it or a family's own, or `default`."""
        for key in (name, *_SYNONYMS.get(name, ())):
            if self.values.get(key) is not None:
                return self.values[key]
        return default

    @property
    def layers(self) -> int | None:
        return self.get("num_hidden_layers")

    @property
    def experts(self) -> int:
        """Routed experts per MoE layer; 0 for a dense model."""
        return self.get("n_routed_experts", 0)

    @property
    def dense_layers(self) -> int:
        """Leading layers without experts."""
        return self.get("first_k_dense_replace", 0) if self.experts else (self.layers or 0)

    @property
    def heads(self) -> int | None:
        return self.get("num_attention_heads")

    @property
    def kv_heads(self) -> int | None:
        return self.get("num_key_value_heads", self.heads)

    @property
    def expert_width(self) -> int | None:
        """Inner width of one expert; Mixtral-like models call it intermediate_size."""
        return self.get("moe_intermediate_size", self.get("intermediate_size"))

    @property
    def uses_mla(self) -> bool:
        """Whether attention keeps one compressed latent per token (DeepSeek, Kimi)."""
        return self.get("kv_lora_rank") is not None

    @property
    def block_size(self) -> int | None:
        """Tokens that a DFlash draft proposes at once, from its own config."""
        nested = self.get("dflash_config") or {}
        return nested.get("block_size", self.get("block_size"))

    @property
    def quantization(self) -> Mapping[str, Any]:
        return self.get("quantization_config") or {}

    def is_moe_layer(self, layer: int) -> bool:
        """Return whether a layer (from 0) holds experts."""
        if not self.experts or layer < self.dense_layers:
            return False
        frequency = self.get("moe_layer_freq", 1)
        return not isinstance(frequency, int) or layer % frequency == 0


def read_facts(path: str, given: Mapping[str, Any]) -> ModelFacts:
    """Return the facts of the model at `path`: its config.json when it is on this disk, else those that were given."""
    config = config_on_disk(path)
    if config is None:
        return ModelFacts(dict(given), "experiment file" if given else "unknown")
    try:
        found = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = None
    if not isinstance(found, Mapping):
        return ModelFacts(dict(given), f"experiment file ({config} cannot be read)")
    return ModelFacts(flattened(found), os.fspath(config))


def flattened(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config.json with the language model of a multimodal one (text_config) at the top."""
    inner = config.get("text_config")
    outer = {key: value for key, value in config.items() if key != "text_config"}
    return {**outer, **inner, "architectures": config.get("architectures")} if isinstance(inner, Mapping) else outer


def config_on_disk(path: str) -> Path | None:
    """Return the config.json of a model folder, or of a hub name that is in the local cache; None when neither is."""
    folder = find(path)
    if folder is not None and (folder / "config.json").is_file():
        return folder / "config.json"
    if path.count("/") != 1 or path.startswith((".", "/")):
        return None
    home = os.environ.get("HF_HUB_CACHE") or Path(os.environ.get("HF_HOME", "~/.cache/huggingface")) / "hub"
    snapshots = Path(home).expanduser() / f"models--{path.replace('/', '--')}" / "snapshots"
    found = sorted(snapshots.glob("*/config.json"), key=lambda file: file.stat().st_mtime)
    return found[-1] if found else None


def disagreements(disk: ModelFacts, given: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the facts that the experiment file states otherwise than config.json: {key: (on disk, given)}."""
    return {
        key: (disk.get(key), value)
        for key, value in given.items()
        if disk.get(key) is not None and disk.get(key) != value
    }
