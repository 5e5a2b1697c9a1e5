"""The memory model against what was seen on hardware and against arithmetic done apart from it."""

import pytest

from reckoning.plan.memory import GIB, estimate, expert_bytes, kv_bytes_per_token, missing_facts, partition
from tests.unit.plan.setups import DRAFT, INT4, KIMI, NEW, arm, facts

PRO6000 = {"gpus": 8, "gpu_memory_gib": 95.59, "compute_capability": "12.0"}
K26 = facts(**KIMI, **INT4)
# The slices of the hardware check had a tokenizer of their own, of unrecorded but small size: 0.1 to 2.2 GiB of
# embeddings at most, of which this is the middle.
SLICE_VOCABULARY = 65536


def memory(**changes):
    return arm(**changes).memory


def test_four_layers_in_bf16_under_tp2_agree_with_48_7_gib_seen_on_two_h200():
    slice_ = facts(**{**KIMI, "num_hidden_layers": 4, "vocab_size": SLICE_VOCABULARY})
    assert memory(tp_size=2, facts=slice_).weights_gib == pytest.approx(48.7, rel=0.03)


def test_twelve_layers_in_int4_under_tp2_ep2_agree_with_51_5_gib_seen_on_two_h200():
    slice_ = facts(**{**KIMI, **INT4, "num_hidden_layers": 12, "vocab_size": SLICE_VOCABULARY})
    assert memory(tp_size=2, ep_size=2, facts=slice_).weights_gib == pytest.approx(51.5, rel=0.03)


@pytest.mark.parametrize("vocabulary", [1024, 131072])
def test_both_agree_whatever_the_vocabulary_of_the_slices_was(vocabulary):
    bf16 = facts(**{**KIMI, "num_hidden_layers": 4, "vocab_size": vocabulary})
    int4 = facts(**{**KIMI, **INT4, "num_hidden_layers": 12, "vocab_size": vocabulary})
    assert memory(tp_size=2, facts=bf16).weights_gib == pytest.approx(48.7, rel=0.03)
    assert memory(tp_size=2, ep_size=2, facts=int4).weights_gib == pytest.approx(51.5, rel=0.03)


def test_pp8_puts_63_to_72_gib_of_weights_on_a_gpu():
    stages = memory(pp_size=8, facts=K26, **PRO6000).stages
    assert [stage.layers for stage in stages] == [7, 7, 7, 8, 8, 8, 8, 8]
    assert [stage.moe_layers for stage in stages] == [6, 7, 7, 8, 8, 8, 8, 8]
    assert stages[1].weights_gib == pytest.approx(63, rel=0.03)  # published: 63-72, at about 9 per MoE layer
    assert stages[3].weights_gib == pytest.approx(72, rel=0.03)
    assert 9 * 0.97 < stages[3].weights_gib / 8 < 9 * 1.03
    assert stages[0].weights_gib < stages[1].weights_gib  # its first layer has no experts
    assert stages[-1].weights_gib > stages[-2].weights_gib  # the output head


def test_the_whole_model_agrees_with_the_published_548_gib():
    assert memory(facts=K26).weights_gib == pytest.approx(548, rel=0.03)


def test_tp4_ep2_needs_a_quarter_of_the_weights_per_gpu_and_ep_saves_nothing():
    with_ep, without = (memory(tp_size=4, ep_size=ep, facts=K26, **PRO6000) for ep in (2, 1))
    assert with_ep.weights_gib == without.weights_gib
    assert with_ep.weights_gib > 548 / 4 > 95.59
    assert memory(tp_size=8, facts=K26, **PRO6000).kv_pool_gib > 0


def test_parts_are_what_arithmetic_says():
    stage = memory(tp_size=8, ep_size=8, facts=K26).stages[0]
    routed = 60 * 3 * 7168 * 2048 * 384 / 8 * (4 / 8 + 2 / 32)
    gates = 60 * 7168 * 384 * 2
    attention = 7168 * (1536 + 512 + 64) + (1536 * 64 * 192 + 2 * 512 * 64 * 256 + 64 * 128 * 7168) / 8
    assert stage.experts_gib == pytest.approx((routed + gates) / GIB)
    assert stage.attention_gib == pytest.approx(61 * attention * 2 / GIB)
    assert stage.dense_gib == pytest.approx(3 * 7168 * 18432 * 2 / 8 / GIB)
    assert stage.shared_experts_gib == pytest.approx(60 * 3 * 7168 * 2048 * 2 / 8 / GIB)
    assert stage.embeddings_gib == pytest.approx(2 * 163840 * 7168 * 2 / 8 / GIB)


def test_mla_keeps_576_numbers_per_token_and_layer_on_every_rank():
    assert kv_bytes_per_token(K26, 61, 8, 2.0) == 61 * 576 * 2 == 70272
    assert memory(tp_size=8, facts=K26).stages[0].kv_bytes_per_token == 70272
    assert memory(tp_size=8, facts=K26, kv_cache_dtype="fp8_e4m3").stages[0].kv_bytes_per_token == 35136


def test_grouped_heads_are_shared_among_ranks_and_repeated_beyond():
    qwen = facts(num_attention_heads=32, num_key_value_heads=4, head_dim=128, hidden_size=2048)
    assert kv_bytes_per_token(qwen, 48, 1, 2.0) == 48 * 2 * 4 * 128 * 2
    assert kv_bytes_per_token(qwen, 48, 4, 2.0) == 48 * 2 * 1 * 128 * 2
    assert kv_bytes_per_token(qwen, 48, 8, 2.0) == 48 * 2 * 1 * 128 * 2


@pytest.mark.parametrize(
    ("quantization", "expected"),
    [
        (None, 2.0),
        (INT4["quantization_config"], 0.5625),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 1 + 4 / 16384),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 0.5 + 2 / 128),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 0.5625),
    ],
)
def test_bytes_of_an_expert_weight(quantization, expected):
    assert expert_bytes(facts(quantization_config=quantization), 2.0) == expected


@pytest.mark.parametrize(
    ("layers", "stages", "expected"),
    [(61, 8, (7, 7, 7, 8, 8, 8, 8, 8)), (4, 2, (2, 2)), (5, 2, (2, 3)), (4, 1, (4,)), (3, 3, (1, 1, 1))],
)
def test_extra_layers_go_to_the_last_stages(layers, stages, expected):
    assert partition(layers, stages) == expected
    assert sum(partition(layers, stages)) == layers


def test_a_stated_partition_moves_the_weights():
    env = {"SGLANG_PP_LAYER_PARTITION": "3,1"}
    stages = memory(pp_size=2, env=env, facts=facts(**{**KIMI, "num_hidden_layers": 4})).stages
    assert [stage.layers for stage in stages] == [3, 1]


def test_redundant_experts_are_added_to_every_layer():
    plain, more = (
        memory(tp_size=8, ep_size=8, facts=K26, enable_eplb=True, ep_num_redundant_experts=count) for count in (0, 32)
    )
    added = 60 * 3 * 7168 * 2048 * 32 / 8 * 0.5625 / GIB
    assert more.weights_gib - plain.weights_gib == pytest.approx(added)


def test_a_draft_takes_weights_and_cache():
    draft = facts(**DRAFT, weights_gib=6.05)
    spec = {"speculative_algorithm": "DFLASH", "speculative_draft_model_path": "d"}
    with_draft = memory(tp_size=8, facts=K26, draft=draft, **spec).stages[0]
    without = memory(tp_size=8, facts=K26).stages[0]
    assert with_draft.draft_gib == pytest.approx(6.05 / 8)
    assert with_draft.kv_bytes_per_token - without.kv_bytes_per_token == 6 * 576 * 2
    assert memory(tp_size=8, facts=K26, draft=draft).stages[0].draft_gib == 0  # no speculation, no draft


def test_a_draft_of_known_shape_is_computed():
    shape = {
        "num_hidden_layers": 2,
        "hidden_size": 7168,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 18432,
        "dflash_config": {"target_layer_ids": [1, 2]},
    }
    stage = memory(tp_size=2, facts=K26, draft=facts(**shape), speculative_algorithm="DFLASH").stages[0]
    layer = 7168 * 128 * (2 * 64 + 2 * 8) / 2 + 3 * 7168 * 18432 / 2
    assert stage.draft_gib == pytest.approx((2 * layer + 2 * 7168 * 7168) * 2 / GIB)


def test_kv_tokens_are_the_pool_over_the_bytes_and_max_total_tokens_caps_them():
    found = memory(tp_size=8, facts=K26, mem_fraction_static=0.92, **PRO6000)
    assert found.kv_pool_gib == pytest.approx((95.59 - found.reserve_gib) * 0.92 - found.weights_gib)
    assert found.kv_tokens == int(found.kv_pool_gib * GIB / 70272)
    capped = memory(tp_size=8, facts=K26, mem_fraction_static=0.92, max_total_tokens=8192, **PRO6000)
    assert capped.kv_tokens == 8192


@pytest.mark.parametrize(
    ("changes", "fraction"),
    [
        # by SGLang's formula: (97884 MiB - max(512 + 8192 x 1.5 + 512 x 2 + 1024 + 1536, 10240)) / 97884
        ({"tp_size": 8}, round((97884.16 - 16384) / 97884.16, 3)),
        ({"tp_size": 8, "disable_cuda_graph": True}, round((97884.16 - 13824) / 97884.16, 3)),
        ({"tp_size": 8, "speculative_algorithm": "DFLASH"}, round((97884.16 - 15456 - 4096) / 97884.16, 3)),
        ({"tp_size": 8, "mem_fraction_static": 0.5}, 0.5),
    ],
)  # fmt: skip
def test_an_unset_memory_fraction_is_what_sglang_would_take(changes, fraction):
    assert arm(facts=K26, **PRO6000, **changes).layout.mem_fraction == fraction


def test_newer_versions_reserve_no_extra_for_speculation():
    old, new = (
        arm(version, facts=K26, **PRO6000, speculative_algorithm="DFLASH", tp_size=8).layout.mem_fraction
        for version in ("0.5.12.post1", NEW)
    )
    assert new > old


def test_missing_facts_give_no_estimate_and_are_named():
    assert missing_facts(facts(num_hidden_layers=61, n_routed_experts=384)) == [
        "hidden_size",
        "num_attention_heads",
        "vocab_size",
        "moe_intermediate_size",
    ]
    assert memory(facts=facts(num_hidden_layers=61)) is None
    assert memory(facts=K26, tp_size=2, ep_size=4) is None
    assert memory(facts=K26, device="cpu") is None


def test_nothing_is_left_out_of_a_dense_model():
    dense = facts(
        num_hidden_layers=2,
        hidden_size=64,
        num_attention_heads=4,
        intermediate_size=256,
        vocab_size=100,
        dtype="float32",
    )
    layout = arm().layout
    found = estimate(dense, layout, settings={})
    weights = 2 * (64 * 16 * (8 + 8) + 3 * 64 * 256) + 2 * 100 * 64
    assert found.weights_gib * GIB == pytest.approx(weights * 4)
