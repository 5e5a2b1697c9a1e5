"""Arms, models and machines that the tests of the planner start from."""

from typing import Any

from reckoning.models import kimi_slice
from reckoning.plan.facts import ModelFacts
from reckoning.plan.rules import Demand, Setup

OLD, NEW, OLDEST = "0.5.12.post1", "0.5.23", "0.5.9"

# Shapes of Kimi K2.6, whole; INT4 in groups of 32 for the routed experts alone.
KIMI: dict[str, Any] = {**kimi_slice.CONFIG, "num_hidden_layers": 61}
INT4 = {
    "quantization_config": {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 32, "type": "int"}}},
    }
}
DRAFT = {"num_hidden_layers": 6, "vocab_size": 163840, "dflash_config": {"block_size": 8, "mask_token_id": 163838}}
DFLASH = {"speculative_algorithm": "DFLASH", "speculative_draft_model_path": "draft", "max_running_requests": 64}


def facts(**values: Any) -> ModelFacts:
    return ModelFacts(values, "test")


def demand(*levels: int, inputs: int = 100, outputs: int = 100) -> tuple[Demand, ...]:
    return (Demand("chat", levels or (1,), inputs, outputs),)


def arm(version: str = OLD, **changes: Any) -> Setup:
    """Return a setup: keywords that are fields of Setup set those, all others are settings of the server."""
    fields = {key: changes.pop(key) for key in list(changes) if key in Setup.__dataclass_fields__}
    return Setup(settings={**fields.pop("settings", {}), **changes}, version=version, **fields)
