"""A small valid experiment that tests change in one place."""

import copy
from collections.abc import Mapping
from typing import Any

SMALL: dict[str, Any] = {
    "schema_version": 1,
    "experiment": "small",
    "engine": {"lock": "sglang-0.5.12.post1-cpu"},
    "machine": {"device": "cpu"},
    "model": {"path": "models/none"},
    "arms": {"a": {"settings": {"tp_size": 1}}, "b": {"extends": "a", "settings": {"tp_size": 2}}},
    "workloads": {
        "chat": {
            "kind": "prompts",
            "file": "resources/prompts/chat.yaml",
            "output_tokens": 8,
            "concurrency": [1, 4, 16],
            "requests_per_stream": 2,
        }
    },
}


def small(**changes: Any) -> dict[str, Any]:
    """Return the small experiment with top-level keys replaced, or merged where both are mappings."""
    config = copy.deepcopy(SMALL)
    for key, value in changes.items():
        if isinstance(value, Mapping) and isinstance(config.get(key), dict) and key not in ("arms", "hypotheses"):
            config[key] = {**config[key], **value}
        else:
            config[key] = value
    return config


def chat(**changes: Any) -> dict[str, Any]:
    """Return workloads with the chat workload changed."""
    return {"chat": {**SMALL["workloads"]["chat"], **changes}}
