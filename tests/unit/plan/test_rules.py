# ruff: noqa: E501 - a case reads best on one line
"""Every rule from both sides: the arm that it just rejects, and the neighbour that it just allows."""

import pytest
import yaml

from reckoning.experiment import Unavailable
from reckoning.experiment.places import REPOSITORY
from reckoning.plan.flags import recorded_table
from reckoning.plan.rules import REGISTRY, judge
from tests.unit.plan.setups import DFLASH, DRAFT, INT4, KIMI, NEW, OLD, OLDEST, arm, demand, facts

FP8 = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
SMALL_MOE = facts(n_routed_experts=128, moe_intermediate_size=768, **FP8)
KIMI_INT4 = facts(**KIMI, **INT4)
PRO6000 = {"gpus": 8, "gpu_memory_gib": 95.59, "compute_capability": "12.0", "nvlink": False}
K26 = {"facts": KIMI_INT4, **PRO6000}
TRITON_PP = {"attention_backend": "triton", "facts": facts(num_hidden_layers=61)}
FLAGS = {"flags": recorded_table(OLD)}
SPEC = {**DFLASH, "draft": facts(**DRAFT), "facts": facts(vocab_size=163840)}

# (rule, settings that it objects to, the nearest ones that it lets pass)
BOTH_SIDES = [
    ("sizes-positive", {"pp_size": 0}, {"pp_size": 1}),
    # CASE 17: the whole matrix
    ("ep-divides-tp", {"tp_size": 8, "ep_size": 7}, {"tp_size": 8, "ep_size": 8}),
    ("ep-divides-tp", {"tp_size": 4, "ep_size": 8}, {"tp_size": 8, "ep_size": 4}),
    ("ep-divides-tp", {"tp_size": 6, "ep_size": 4}, {"tp_size": 6, "ep_size": 3}),
    ("ep-divides-tp", {"tp_size": 1, "ep_size": 2}, {"tp_size": 2, "ep_size": 2}),
    ("ep-divides-tp", {"tp_size": 2, "ep_size": 4, "pp_size": 4}, {"tp_size": 4, "ep_size": 4, "pp_size": 2}),
    ("sizes-positive", {"tp_size": 4, "ep_size": 0}, {"tp_size": 4, "ep_size": 1}),
    ("moe-dp-layout", {"tp_size": 8, "ep_size": 2, "moe_dp_size": 2}, {"tp_size": 8, "ep_size": 4, "moe_dp_size": 2}),
    ("moe-dp-layout", {"tp_size": 8, "ep_size": 8, "moe_dp_size": 2}, {"tp_size": 8, "ep_size": 1, "moe_dp_size": 2}),
    ("moe-dp-layout", {"tp_size": 8, "moe_dp_size": 3}, {"tp_size": 8, "moe_dp_size": 4}),
    (
        "moe-dp-layout",
        {"tp_size": 8, "ep_size": 4, "moe_dp_size": 2, "pp_size": 2},
        {"tp_size": 8, "ep_size": 4, "moe_dp_size": 2, "pp_size": 1},
    ),
    ("attn-cp-layout", {"tp_size": 8, "ep_size": 4, "moe_dp_size": 2}, {"tp_size": 8, "ep_size": 4, "moe_dp_size": 2, "attn_cp_size": 2}),
    ("attn-cp-layout", {"tp_size": 8, "attn_cp_size": 3}, {"tp_size": 8, "attn_cp_size": 4}),
    (
        "attn-cp-layout",
        {"tp_size": 8, "attn_cp_size": 4, "dp_size": 4, "enable_dp_attention": True},
        {"tp_size": 8, "attn_cp_size": 4, "dp_size": 2, "enable_dp_attention": True},
    ),
    ("enough-gpus", {"tp_size": 8, "pp_size": 2, "gpus": 15}, {"tp_size": 8, "pp_size": 2, "gpus": 16}),
    ("enough-gpus", {"tp_size": 1, "gpus": 0}, {"tp_size": 1, "gpus": 1}),
    # CASE 23: dp without dp attention makes copies
    ("enough-gpus", {"tp_size": 8, "dp_size": 2, "gpus": 8}, {"tp_size": 8, "dp_size": 2, "gpus": 16}),
    (
        "enough-gpus",
        {"tp_size": 8, "dp_size": 2, "gpus": 8},
        {"tp_size": 8, "dp_size": 2, "gpus": 8, "enable_dp_attention": True},
    ),
    ("enough-gpus", {"tp_size": 16, "nodes": 2, "gpus": 7}, {"tp_size": 16, "nodes": 2, "gpus": 8}),
    # CASE 19
    ("nodes-divide-ranks", {"tp_size": 8, "nodes": 3}, {"tp_size": 8, "nodes": 4}),
    ("nodes-divide-ranks", {"tp_size": 3, "pp_size": 3, "nodes": 2}, {"tp_size": 3, "pp_size": 2, "nodes": 2}),
    ("one-node", {"tp_size": 8, "nodes": 2}, {"tp_size": 8, "nodes": 1}),
    (
        "dp-attention-divides-tp",
        {"tp_size": 8, "dp_size": 3, "enable_dp_attention": True},
        {"tp_size": 8, "dp_size": 8, "enable_dp_attention": True},
    ),
    (
        "dp-attention-divides-tp",
        {"tp_size": 8, "dp_size": 16, "enable_dp_attention": True},
        {"tp_size": 16, "dp_size": 16, "enable_dp_attention": True},
    ),
    ("dp-attention-divides-tp", {"version": NEW, "tp_size": 8, "attn_dp_size": 3}, {"version": NEW, "tp_size": 8, "attn_dp_size": 4}),
    ("dp-attention-idle", {"enable_dp_attention": True}, {"enable_dp_attention": True, "tp_size": 2, "dp_size": 2}),
    (
        "dp-replicas-with-dp-attention",
        {"version": NEW, "tp_size": 8, "attn_dp_size": 2, "dp_size": 2},
        {"version": NEW, "tp_size": 8, "attn_dp_size": 2},
    ),
    (
        "cpu-threads-per-rank",
        {"device": "cpu", "tp_size": 2, "env": {"SGLANG_CPU_OMP_THREADS_BIND": "0-1"}},
        {"device": "cpu", "tp_size": 2, "env": {"SGLANG_CPU_OMP_THREADS_BIND": "0|1"}},
    ),
    # CASE 19
    ("heads-divide", {"facts": facts(num_attention_heads=12), "tp_size": 24}, {"facts": facts(num_attention_heads=12), "tp_size": 12}),
    ("heads-divide", {"facts": facts(num_attention_heads=40), "tp_size": 16}, {"facts": facts(num_attention_heads=40), "tp_size": 8}),
    (
        "heads-divide",
        {"facts": facts(num_attention_heads=48, num_key_value_heads=12), "tp_size": 8},
        {"facts": facts(num_attention_heads=48, num_key_value_heads=8), "tp_size": 16},
    ),
    # CASE 25
    (
        "experts-divide",
        {"facts": SMALL_MOE, "tp_size": 8, "ep_size": 8, "ep_num_redundant_experts": 10},
        {"facts": SMALL_MOE, "tp_size": 8, "ep_size": 8, "ep_num_redundant_experts": 16},
    ),
    ("experts-divide", {"facts": facts(n_routed_experts=10), "tp_size": 4, "ep_size": 4}, {"facts": facts(n_routed_experts=12), "tp_size": 4, "ep_size": 4}),
    ("expert-width-divides", {"facts": facts(n_routed_experts=8, moe_intermediate_size=100), "tp_size": 8}, {"facts": facts(n_routed_experts=8, moe_intermediate_size=100), "tp_size": 4}),
    (
        "expert-width-divides",
        {"facts": facts(n_routed_experts=8, moe_intermediate_size=128, **INT4), "tp_size": 8},
        {"facts": facts(n_routed_experts=8, moe_intermediate_size=128, **INT4), "tp_size": 4},
    ),
    # CASE 18: all four
    ("fp8-block-divides", {"facts": SMALL_MOE, "tp_size": 8, "ep_size": 1}, {"facts": SMALL_MOE, "tp_size": 8, "ep_size": 8}),
    ("fp8-block-divides", {"facts": SMALL_MOE, "tp_size": 4, "ep_size": 1}, {"facts": SMALL_MOE, "tp_size": 4, "ep_size": 2}),
    ("context-fits", {"context_length": 199, "demands": demand()}, {"context_length": 200, "demands": demand()}),
    (
        "context-fits",
        {"facts": facts(max_position_embeddings=199), "demands": demand()},
        {"facts": facts(max_position_embeddings=199), "context_length": 200, "demands": demand()},
    ),
    (
        "facts-disagree",
        {"facts": facts(n_routed_experts=384), "stated_facts": {"n_routed_experts": 256}},
        {"facts": facts(n_routed_experts=384), "stated_facts": {"n_routed_experts": 384}},
    ),
    # CASE 20
    ("pp-layer-partition", {"facts": facts(num_hidden_layers=4), "pp_size": 5}, {"facts": facts(num_hidden_layers=4), "pp_size": 4}),
    (
        "pp-layer-partition",
        {"facts": facts(num_hidden_layers=78), "pp_size": 4, "env": {"SGLANG_PP_LAYER_PARTITION": "19,20,20"}},
        {"facts": facts(num_hidden_layers=78), "pp_size": 4, "env": {"SGLANG_PP_LAYER_PARTITION": "19,20,20,19"}},
    ),
    (
        "pp-layer-partition",
        {"facts": facts(num_hidden_layers=78), "pp_size": 4, "env": {"SGLANG_PP_LAYER_PARTITION": "19,20,20,18"}},
        {"facts": facts(num_hidden_layers=77), "pp_size": 4, "env": {"SGLANG_PP_LAYER_PARTITION": "19,20,20,18"}},
    ),
    (
        "pp-layer-partition",
        {"pp_size": 2, "env": {"SGLANG_PP_LAYER_PARTITION": "3, 1"}},
        {"pp_size": 2, "env": {"SGLANG_PP_LAYER_PARTITION": "3,1"}},
    ),
    (
        "pp-layer-partition",
        {"version": OLD, "env": {"SGLANG_PP_LAYER_PARTITION": "3,1"}},
        {"version": NEW, "env": {"SGLANG_PP_LAYER_PARTITION": "3,1"}},
    ),
    ("pp-start-layer", {**TRITON_PP, "pp_size": 4}, {**TRITON_PP, "pp_size": 4, "patches": frozenset({"sglang-pp-start-layer"})}),
    ("pp-start-layer", {**TRITON_PP, "pp_size": 4}, {**TRITON_PP, "pp_size": 4, "version": NEW}),
    ("pp-start-layer", {**TRITON_PP, "pp_size": 4}, {**TRITON_PP, "pp_size": 4, "attention_backend": "flashinfer"}),
    ("pp-speculation", {"pp_size": 2, "speculative_algorithm": "EAGLE"}, {"pp_size": 1, "speculative_algorithm": "EAGLE"}),
    (
        "pp-speculation-eagle-only",
        {"version": NEW, "pp_size": 2, "speculative_algorithm": "EAGLE"},
        {"version": NEW, "pp_size": 2, "speculative_algorithm": "EAGLE", "env": {"SGLANG_ENABLE_PP_SPEC": "1"}},
    ),
    (
        "pp-speculation-eagle-only",
        {"version": NEW, "pp_size": 2, "speculative_algorithm": "NGRAM", "env": {"SGLANG_ENABLE_PP_SPEC": "1"}},
        {"version": NEW, "pp_size": 2, "speculative_algorithm": "EAGLE", "disaggregation_mode": "prefill"},
    ),
    ("pp-mixed-chunk", {"version": OLDEST, "pp_size": 2, "enable_mixed_chunk": True}, {"version": OLD, "pp_size": 2, "enable_mixed_chunk": True}),
    ("pp-no-overlap", {"pp_size": 2}, {"pp_size": 2, "disable_overlap_schedule": True}),
    # CASE 22
    ("dflash-version", {**DFLASH, "version": OLDEST}, {**DFLASH, "version": OLD}),
    ("dflash-needs-gpu", {**DFLASH, "device": "cpu"}, DFLASH),
    ("dflash-draft-path", {"speculative_algorithm": "DFLASH"}, DFLASH),
    ("dflash-pp", {**DFLASH, "pp_size": 2}, {**DFLASH, "pp_size": 1}),
    ("dflash-pp", {**DFLASH, "pp_size": 2, "version": NEW}, {**DFLASH, "pp_size": 1, "version": NEW}),
    (
        "dflash-dp-attention",
        {**DFLASH, "tp_size": 2, "dp_size": 2, "enable_dp_attention": True},
        {**DFLASH, "tp_size": 2, "dp_size": 2, "enable_dp_attention": True, "version": NEW},
    ),
    (
        "dflash-dp-attention-head",
        {**DFLASH, "tp_size": 2, "attn_dp_size": 2, "version": NEW},
        {**DFLASH, "tp_size": 2, "attn_dp_size": 2, "version": NEW, "enable_dp_lm_head": True},
    ),
    (
        "dflash-block",
        {**DFLASH, "speculative_dflash_block_size": 8, "speculative_num_draft_tokens": 16},
        {**DFLASH, "speculative_dflash_block_size": 16, "speculative_num_draft_tokens": 16},
    ),
    ("dflash-block", {**DFLASH, "speculative_dflash_block_size": 0}, {**DFLASH, "speculative_dflash_block_size": 1}),
    (
        "dflash-window",
        {**DFLASH, "speculative_dflash_block_size": 16, "speculative_draft_window_size": 15},
        {**DFLASH, "speculative_dflash_block_size": 16, "speculative_draft_window_size": 16},
    ),
    ("dflash-window", {**SPEC, "speculative_draft_window_size": 7}, {**SPEC, "speculative_draft_window_size": 8}),
    ("dflash-topk", {**DFLASH, "speculative_eagle_topk": 4}, {**DFLASH, "speculative_eagle_topk": 1}),
    ("dflash-steps", {**DFLASH, "speculative_num_steps": 3}, {**DFLASH, "speculative_num_steps": 1}),
    (
        "speculation-running-requests",
        {"speculative_algorithm": "EAGLE", "demands": demand(1, 49)},
        {"speculative_algorithm": "EAGLE", "demands": demand(1, 48)},
    ),
    ("dflash-ep-graphs", {**DFLASH, "tp_size": 8, "ep_size": 8}, {**DFLASH, "tp_size": 8, "ep_size": 8, "disable_cuda_graph": True}),
    (
        "dflash-ep-graphs",
        {**DFLASH, "tp_size": 8, "ep_size": 8},
        {**DFLASH, "tp_size": 8, "ep_size": 8, "patches": frozenset({"sglang-dflash-ep-cuda-graph"})},
    ),
    ("dflash-ep-graphs", {**DFLASH, "tp_size": 8, "ep_size": 8}, {**DFLASH, "tp_size": 8, "ep_size": 1}),
    # CASE 31
    (
        "draft-vocabulary",
        {**DFLASH, "facts": facts(vocab_size=152064), "draft": facts(vocab_size=152576, dflash_config={"mask_token_id": 151669})},
        {**DFLASH, "facts": facts(vocab_size=152064), "draft": facts(vocab_size=152064, dflash_config={"mask_token_id": 151669})},
    ),
    (
        "draft-vocabulary",
        {**DFLASH, "facts": facts(vocab_size=152064), "draft": facts(dflash_config={"mask_token_id": 152064})},
        {**DFLASH, "facts": facts(vocab_size=152064), "draft": facts(dflash_config={"mask_token_id": 152063})},
    ),
    (
        "draft-vocabulary",
        {**DFLASH, "facts": facts(vocab_size=100), "draft": facts(vocab_size=90)},
        {**DFLASH, "facts": facts(vocab_size=100), "draft": facts(vocab_size=90, draft_vocab_size=90)},
    ),
    ("draft-block", {**SPEC, "speculative_dflash_block_size": 16}, {**SPEC, "speculative_dflash_block_size": 8}),
    # CASE 25
    ("eplb-needs-ep", {"enable_eplb": True}, {"enable_eplb": True, "tp_size": 2, "ep_size": 2}),
    (
        "eplb-recorder",
        {"enable_eplb": True, "expert_distribution_recorder_mode": "per_token"},
        {"enable_eplb": True, "expert_distribution_recorder_mode": "stat"},
    ),
    (
        "eplb-buffer",
        {"enable_eplb": True, "expert_distribution_recorder_buffer_size": 1001},
        {"enable_eplb": True, "expert_distribution_recorder_buffer_size": 1000},
    ),
    ("eplb-rebalance-stalls", {"enable_eplb": True, "tp_size": 2, "ep_size": 2}, {"tp_size": 2, "ep_size": 2}),
    (
        "eplb-memory",
        {**K26, "tp_size": 8, "ep_size": 8, "enable_eplb": True, "ep_num_redundant_experts": 32, "mem_fraction_static": 0.92},
        {**K26, "tp_size": 8, "ep_size": 8, "enable_eplb": True, "ep_num_redundant_experts": 8, "mem_fraction_static": 0.92},
    ),
    (
        "ep-dispatch-without-a2a",
        {"version": NEW, "ep_dispatch_algorithm": "static"},
        {"version": NEW, "ep_dispatch_algorithm": "dynamic"},
    ),
    ("ep-dispatch-without-a2a", {"version": NEW, "ep_dispatch_algorithm": "lp"}, {"version": OLD, "ep_dispatch_algorithm": "lp"}),
    (
        "a2a-sets-ep",
        {"tp_size": 8, "ep_size": 4, "moe_a2a_backend": "deepep"},
        {"tp_size": 8, "ep_size": 8, "moe_a2a_backend": "deepep"},
    ),
    (
        "flashinfer-moe-ep",
        {"tp_size": 8, "ep_size": 4, "moe_runner_backend": "flashinfer_cutlass"},
        {"tp_size": 8, "ep_size": 8, "moe_runner_backend": "flashinfer_cutlass"},
    ),
    (
        "cutlass-fp8-ep",
        {"tp_size": 2, "ep_size": 2, "moe_runner_backend": "cutlass", "quantization": "fp8"},
        {"tp_size": 2, "ep_size": 1, "moe_runner_backend": "cutlass", "quantization": "fp8"},
    ),
    # CASE 13
    (
        "trtllm-mla-architecture",
        {"compute_capability": "12.0", "attention_backend": "trtllm_mla"},
        {"compute_capability": "10.3", "attention_backend": "trtllm_mla"},
    ),
    (
        "trtllm-mla-architecture",
        {"compute_capability": "12.1", "decode_attention_backend": "trtllm_mla"},
        {"compute_capability": "10.0", "decode_attention_backend": "trtllm_mla"},
    ),
    (
        "trtllm-mha-prefill-sm120",
        {"compute_capability": "12.0", "attention_backend": "trtllm_mha"},
        {"compute_capability": "12.0", "attention_backend": "trtllm_mha", "prefill_attention_backend": "triton"},
    ),
    (
        "trtllm-mha-prefill-sm120",
        {"compute_capability": "12.0", "attention_backend": "trtllm_mha"},
        {"compute_capability": "12.0", "attention_backend": "trtllm_mha", "version": NEW},
    ),
    (
        "trtllm-mha-fp8-sm120",
        {"compute_capability": "12.0", "attention_backend": "trtllm_mha", "version": NEW, "kv_cache_dtype": "fp8_e4m3"},
        {"compute_capability": "10.0", "attention_backend": "trtllm_mha", "version": NEW, "kv_cache_dtype": "fp8_e4m3"},
    ),
    (
        "trtllm-moe-architecture",
        {"compute_capability": "12.0", "moe_runner_backend": "flashinfer_trtllm"},
        {"compute_capability": "10.0", "moe_runner_backend": "flashinfer_trtllm"},
    ),
    (
        "attention-architecture",
        {"compute_capability": "8.9", "attention_backend": "fa3", "facts": facts(kv_lora_rank=512)},
        {"compute_capability": "9.0", "attention_backend": "fa3", "facts": facts(kv_lora_rank=512)},
    ),
    (
        "attention-architecture",
        {"compute_capability": "12.0", "attention_backend": "fa3"},
        {"compute_capability": "8.0", "attention_backend": "fa3"},
    ),
    (
        "hybrid-gdn-flashinfer",
        {"version": OLDEST, "compute_capability": "12.0", "attention_backend": "flashinfer", "facts": facts(linear_num_value_heads=32)},
        {"version": OLD, "compute_capability": "12.0", "attention_backend": "flashinfer", "facts": facts(linear_num_value_heads=32)},
    ),
    # CASE 29: custom all-reduce switches itself off beyond two PCIe GPUs
    ("pcie-pair-custom-all-reduce", {"tp_size": 2, "nvlink": False}, {"tp_size": 4, "nvlink": False}),
    ("pcie-pair-custom-all-reduce", {"tp_size": 2, "nvlink": False}, {"tp_size": 2, "nvlink": True}),
    ("pcie-pair-custom-all-reduce", {"tp_size": 2, "nvlink": False}, {"tp_size": 2, "nvlink": False, "disable_custom_all_reduce": True}),
    ("weights-fit", {**K26, "tp_size": 4, "ep_size": 2}, {**K26, "tp_size": 8, "ep_size": 2}),
    ("room-for-kv", {**K26, "tp_size": 8, "mem_fraction_static": 0.7}, {**K26, "tp_size": 8, "mem_fraction_static": 0.8}),
    # by SGLang's formula for this GPU: (97884 - 16384) / 97884 = 0.833
    ("room-outside-static", {**K26, "tp_size": 8, "mem_fraction_static": 0.834}, {**K26, "tp_size": 8, "mem_fraction_static": 0.833}),
    ("room-outside-static", {**K26, "tp_size": 8, "mem_fraction_static": 0.89}, {**K26, "tp_size": 8, "mem_fraction_static": 0.89, "chunked_prefill_size": 4096}),
    (
        "kv-holds-level",
        {**K26, "tp_size": 8, "mem_fraction_static": 0.92, "demands": demand(128, outputs=2000)},
        {**K26, "tp_size": 8, "mem_fraction_static": 0.92, "demands": demand(64, outputs=2000)},
    ),
    (
        "kv-holds-level",
        {**K26, "tp_size": 8, "mem_fraction_static": 0.92, "demands": demand(256, outputs=2000)},
        {**K26, "tp_size": 8, "mem_fraction_static": 0.92, "demands": demand(256, outputs=2000), "max_running_requests": 64},
    ),
    ("running-limit", {"max_running_requests": 127, "demands": demand(1, 128)}, {"max_running_requests": 128, "demands": demand(1, 128)}),
    # CASE 27
    (
        "graphs-hold-level",
        {**DFLASH, "max_running_requests": 9, "cuda_graph_max_bs": 8, "demands": demand(1)},
        {**DFLASH, "max_running_requests": 8, "cuda_graph_max_bs": 8, "demands": demand(1)},
    ),
    ("graphs-hold-level", {"cuda_graph_max_bs": 32, "demands": demand(33)}, {"cuda_graph_max_bs": 32, "demands": demand(32)}),
    (
        "graphs-hold-level",
        {"version": NEW, "cuda_graph_bs_decode": [1, 32], "demands": demand(33)},
        {"version": NEW, "cuda_graph_bs_decode": [1, 40], "demands": demand(33)},
    ),
    ("graphs-hold-level", {"cuda_graph_max_bs": 32, "demands": demand(33)}, {"disable_cuda_graph": True, "demands": demand(33)}),
    ("memory-unknown", {"facts": facts(num_hidden_layers=61)}, {"device": "cpu", "facts": facts(num_hidden_layers=61)}),
    ("memory-unknown", {"facts": KIMI_INT4}, K26),
    ("unknown-flag", {**FLAGS, "tp_sise": 2}, {**FLAGS, "tp_size": 2}),
    ("abbreviated-flag", {**FLAGS, "mem_fraction": 0.8}, {**FLAGS, "mem_fraction_static": 0.8}),
    ("flag-value", {**FLAGS, "tp_size": 2.5}, {**FLAGS, "tp_size": 2}),
    ("flag-twice", {**FLAGS, "tp_size": 2, "tensor_parallel_size": 2}, {**FLAGS, "tensor_parallel_size": 2}),
    ("flag-deprecated", {"version": NEW, "flags": recorded_table(NEW), "disable_cuda_graph": True}, {**FLAGS, "disable_cuda_graph": True}),
    ("flags-unchecked", {}, FLAGS),
    ("unknown-patch", {"patches": frozenset({"p"}), "known_patches": frozenset()}, {"patches": frozenset({"p"}), "known_patches": frozenset({"p"})}),
    ("declared-unavailable", {"unavailable": Unavailable("not there yet", None)}, {}),
    ("effective-settings", {"tp_size": 8, "moe_a2a_backend": "deepep"}, {"tp_size": 8, "ep_size": 8, "moe_a2a_backend": "deepep"}),
]  # fmt: skip


def found(rule, settings):
    return [problem for problem in judge(arm(**settings)) if problem.rule == rule]


@pytest.mark.parametrize(
    ("rule", "objected", "allowed"), BOTH_SIDES, ids=[f"{i}-{row[0]}" for i, row in enumerate(BOTH_SIDES)]
)
def test_a_rule_objects_on_one_side_and_is_silent_on_the_other(rule, objected, allowed):
    problems = found(rule, objected)
    assert problems, f"{rule} lets {objected} pass"
    assert problems[0].level == REGISTRY[rule].level
    assert problems[0].reason and problems[0].remedy
    assert not found(rule, allowed), f"{rule} objects to {allowed}"


def test_every_rule_is_tested():
    assert {rule for rule, _, _ in BOTH_SIDES} == set(REGISTRY)


@pytest.mark.parametrize(
    ("rule", "settings", "text"),
    [
        ("ep-divides-tp", {"tp_size": 8, "ep_size": 7}, "use ep_size 1, 2, 4, 8"),
        ("ep-divides-tp", {"tp_size": 2, "ep_size": 4}, "ZeroDivisionError"),
        ("heads-divide", {"facts": facts(num_attention_heads=12), "tp_size": 24}, "12 attention heads cannot be split over tp=24"),
        ("heads-divide", {"facts": facts(num_attention_heads=12), "tp_size": 24}, "1, 2, 3, 4, 6, 12"),
        ("fp8-block-divides", {"facts": SMALL_MOE, "tp_size": 8}, "use ep_size 4 with tp_size 8"),
        ("fp8-block-divides", {"facts": SMALL_MOE, "tp_size": 4}, "768 over moe_tp=4 is 192"),
        ("experts-divide", {"facts": SMALL_MOE, "tp_size": 8, "ep_size": 8, "ep_num_redundant_experts": 10}, "to 8 or 16"),
        ("experts-divide", {"facts": SMALL_MOE, "tp_size": 8, "ep_size": 8, "ep_num_redundant_experts": 10}, "= 138"),
        ("weights-fit", {**K26, "tp_size": 4, "ep_size": 2}, "tp x pp = 8 GPUs"),
        ("speculation-running-requests", {"speculative_algorithm": "DFLASH", "demands": demand(64)}, "max_running_requests: 64"),
        ("unknown-flag", {**FLAGS, "tp_sise": 2}, "did you mean tp_size?"),
        ("unknown-flag", {**FLAGS, "cuda_graph_max_bs_decode": 2}, "use cuda_graph_max_bs"),
        ("abbreviated-flag", {**FLAGS, "mem_fraction": 0.8}, "silently take for mem_fraction_static"),
        ("abbreviated-flag", {**FLAGS, "cuda_graph": 8}, "beginning of several arguments: cuda_graph_bs, cuda_graph_max_bs"),
        ("flag-twice", {**FLAGS, "tp_size": 2, "tensor_parallel_size": 2}, "same server argument"),
        ("flag-value", {**FLAGS, "kv_cache_dtype": "fp7"}, "one of auto, fp8_e5m2"),
    ],
)  # fmt: skip
def test_reasons_name_the_numbers_and_remedies_say_what_to_write(rule, settings, text):
    problem = found(rule, settings)[0]
    assert text in f"{problem.reason} | {problem.remedy}"


def test_dp_attention_divides_the_prefill_chunk():
    settings = {"tp_size": 8, "dp_size": 8, "enable_dp_attention": True, "chunked_prefill_size": 8192}
    assert "chunked_prefill_size: 8192 -> 1024" in found("effective-settings", settings)[0].reason


def test_an_uneven_pipeline_fails_and_an_even_short_one_runs_by_luck():
    # 4 layers over 2 stages: index 0 - 2 = -2 exists in a list of two; with 3,1 index -3 does not exist in a list of one
    base = {"pp_size": 2, "attention_backend": "triton", "facts": facts(num_hidden_layers=4)}
    assert [problem.level for problem in found("pp-start-layer", base)] == ["warn"]
    uneven = {**base, "env": {"SGLANG_PP_LAYER_PARTITION": "3,1"}}
    assert [problem.level for problem in found("pp-start-layer", uneven)] == ["reject"]


@pytest.mark.parametrize("rule", [rule for rule in REGISTRY.values() if rule.versions], ids=lambda rule: rule.id)
def test_versions_of_a_rule_are_respected(rule):
    outside = [
        version for version in (OLDEST, "0.5.11", OLD, "0.5.16", "0.5.20", NEW, "0.6.1") if not rule.applies_to(version)
    ]
    assert outside, f"{rule.id} names versions and holds for all"
    assert rule.applies_to(None), "an unknown engine is held to every rule"
    for version in outside:
        for name, objected, _ in BOTH_SIDES:
            if name == rule.id:
                assert not found(name, {**objected, "version": version})


@pytest.mark.parametrize(
    ("version", "inside"),
    [("0.5.9", True), ("0.5.10", True), ("0.5.16", True), ("0.5.17.post1", True), ("0.5.18", False), ("0.5.9.dev1", False), ("0.5.12.post1+cu130", True), ("0.5.23", False)],
)  # fmt: skip
def test_versions_are_compared_as_versions(version, inside):
    assert REGISTRY["pp-start-layer"].applies_to(version) is inside


@pytest.mark.parametrize(
    ("rule", "patch"),
    [("pp-start-layer", "sglang-pp-start-layer"), ("dflash-ep-graphs", "sglang-dflash-ep-cuda-graph")],
)
def test_a_rule_that_a_patch_mends_holds_for_the_versions_of_the_patch(rule, patch):
    described = yaml.safe_load((REPOSITORY / "envs" / "patches" / patch / "patch.yaml").read_text())
    assert set(REGISTRY[rule].versions.split(",")) == set(described["versions"].split(","))


def test_problems_come_with_the_gravest_first():
    problems = judge(arm(tp_size=2, ep_size=4, nvlink=False, pp_size=2))
    assert [problem.level for problem in problems] == ["reject", "warn", "note", "note", "note"]
