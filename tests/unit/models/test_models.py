"""The embedded models: the Kimi K2 shape, the same bytes every time, whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors import safe_open
from tokenizers import Tokenizer

from reckoning import files, models
from reckoning.models import kimi_slice, tiny_kimi
from reckoning.models.__main__ import main

# Written once and compared ever since: weights that change make old measurements incomparable without a word.
WEIGHTS_SHA256 = "fc3636fe4cb45352444bc218b2154b68d1cc5a031f139bdae98f0fda4385c5fc"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny-kimi"
    models.make("tiny-kimi", path)
    return path


def shapes(path: Path) -> dict[str, list[int]]:
    with safe_open(path / "model.safetensors", framework="np") as weights:
        return {name: weights.get_slice(name).get_shape() for name in weights.keys()}  # noqa: SIM118


def test_the_bytes_are_the_same_every_time(tiny, tmp_path):
    again = models.make("tiny-kimi", tmp_path / "again")
    assert again["files"] == files.read_json(tiny / "made.json")["files"]
    assert again["files"]["model.safetensors"] == WEIGHTS_SHA256


def test_the_number_of_parameters_is_what_the_shape_says(tiny):
    """Counted by hand from the configuration of a DeepSeek-V3 model."""
    hidden, heads = 256, 8
    attention = 96 * hidden + 96 + heads * 48 * 96 + (64 + 16) * hidden + 64 + heads * 64 * 64 + hidden * heads * 32
    norms = 2 * hidden
    dense = 3 * hidden * 512
    experts = 16 * 3 * hidden * 128 + 3 * hidden * 128 + 16 * hidden + 16
    total = 4 * (attention + norms) + dense + 3 * experts + 2 * 1024 * hidden + hidden
    assert files.read_json(tiny / "made.json")["facts"]["parameters"] == total
    found = 0
    for shape in shapes(tiny).values():
        size = 1
        for length in shape:
            size *= length
        found += size
    assert found == total


def test_the_first_layer_is_dense_and_the_others_have_experts_and_a_correction_bias(tiny):
    names = shapes(tiny)
    assert names["model.layers.0.mlp.gate_proj.weight"] == [512, 256]
    assert not [name for name in names if name.startswith("model.layers.0.mlp.experts")]
    for layer in (1, 2, 3):
        assert names[f"model.layers.{layer}.mlp.gate.weight"] == [16, 256]
        assert names[f"model.layers.{layer}.mlp.gate.e_score_correction_bias"] == [16]
        assert names[f"model.layers.{layer}.mlp.experts.15.down_proj.weight"] == [256, 128]


def test_the_shape_is_that_of_kimi_k2(tiny):
    config = json.loads((tiny / "config.json").read_text())
    expected = {
        "architectures": ["DeepseekV3ForCausalLM"],
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "first_k_dense_replace": 1,
        "n_shared_experts": 1,
    }
    assert {key: config[key] for key in expected} == expected
    assert config["rope_scaling"]["type"] == "yarn"


def test_the_tokenizer_gives_every_text_back(tiny):
    tokenizer = Tokenizer.from_file(str(tiny / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == 1024 == json.loads((tiny / "config.json").read_text())["vocab_size"]
    for text in ("Write a haiku about a server room at night.", "def f(x):\n\treturn {'é': x}", "漢字 🙂"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_every_token_of_the_slice_decodes_to_text(tmp_path):
    """A client that counts chunks would otherwise see none for a random token."""
    models.make("kimi-k2.6-slice", tmp_path / "slice")
    tokenizer = Tokenizer.from_file(str(tmp_path / "slice" / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == 163840
    special = set(range(3))
    sampled = set(range(0, 163840, 97)) | {1023, 1024, 163839}
    assert all(tokenizer.decode([token]) for token in sampled - special)
    text = "Sort a list."
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_the_slice_has_the_published_widths():
    """61 layers, 384 experts of width 2048, hidden 7168, MLA 512 + 64: here four of the layers."""
    config = kimi_slice.CONFIG
    widths = {key: config[key] for key in ("hidden_size", "n_routed_experts", "moe_intermediate_size", "kv_lora_rank")}
    assert widths == {"hidden_size": 7168, "n_routed_experts": 384, "moe_intermediate_size": 2048, "kv_lora_rank": 512}
    expert = 3 * config["hidden_size"] * config["moe_intermediate_size"]
    # About 9 GB per MoE layer in INT4: half a byte a weight and a 16-bit scale for each 32.
    assert 8.4e9 < 384 * expert * (0.5 + 2 / 32) < 9.6e9
    assert kimi_slice.DRAFT["dflash_config"]["mask_token_id"] < config["vocab_size"] == kimi_slice.DRAFT["vocab_size"]
    assert max(kimi_slice.DRAFT["dflash_config"]["target_layer_ids"]) < config["num_hidden_layers"]


def test_a_folder_that_was_not_made_here_is_never_overwritten(tmp_path):
    (tmp_path / "config.json").write_text("mine")
    with pytest.raises(FileExistsError, match="was not made here"):
        models.make("tiny-kimi", tmp_path)
    assert (tmp_path / "config.json").read_text() == "mine"


def test_a_damaged_folder_is_made_again(tmp_path):
    made = models.make("tiny-kimi", tmp_path / "m")
    (tmp_path / "m" / "model.safetensors").write_bytes(b"half")
    assert models.make("tiny-kimi", tmp_path / "m") == made
    assert files.sha256_file(tmp_path / "m" / "model.safetensors") == made["files"]["model.safetensors"]


def test_a_failed_making_leaves_nothing(tmp_path, monkeypatch):
    def fail(folder):
        (folder / "config.json").write_text("{}")
        raise OSError(28, "No space left on device")

    monkeypatch.setitem(models.MAKERS, "broken", (1, fail))
    with pytest.raises(OSError, match="No space left"):
        models.make("broken", tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_maker_is_answered_with_those_that_exist(tmp_path):
    with pytest.raises(ValueError, match="'tiny' is not known; there are kimi"):
        models.make("tiny", tmp_path / "m")


def test_the_command_says_what_it_made(tmp_path, capsys):
    assert main(["tiny-kimi", str(tmp_path / "m")]) == 0
    assert "6.7 M parameters, vocabulary 1024" in capsys.readouterr().out
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    assert main(["tiny-kimi", str(tmp_path / "other")]) == 2
    assert "was not made here" in capsys.readouterr().err


def test_prepare_makes_the_model_and_its_draft(tmp_path):
    plan = {"maker": "kimi-k2.6-slice", "path": "models/slice", "draft": {"path": "models/slice-dflash"}}
    models.prepare(plan, tmp_path, lambda text: None)
    assert json.loads((tmp_path / "models/slice/config.json").read_text()) == kimi_slice.CONFIG
    assert json.loads((tmp_path / "models/slice-dflash/config.json").read_text()) == kimi_slice.DRAFT


def test_tensor_names_are_yielded_once():
    names = [name for name, _ in tiny_kimi.tensors()]
    assert len(names) == len(set(names))
