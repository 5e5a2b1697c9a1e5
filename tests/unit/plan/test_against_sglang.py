"""The rules against SGLang itself: for hundreds of settings the planner and the engine's own checks must agree."""

import itertools
import json
import os
import subprocess
from pathlib import Path

import pytest

from reckoning.experiment.places import REPOSITORY
from reckoning.models import tiny_kimi
from reckoning.plan.facts import ModelFacts
from reckoning.plan.flags import recorded_table
from reckoning.plan.rules import Setup, judge

VERSION = "0.5.12.post1"
# Rules whose objection this version itself makes while it resolves and checks its arguments.
SAID_BY_THE_ENGINE = {
    "pp-speculation",
    "dflash-draft-path",
    "dflash-pp",
    "dflash-dp-attention",
    "dflash-block",
    "dflash-window",
    "nodes-divide-ranks",
    "dp-attention-divides-tp",
    "moe-dp-layout",
    "attn-cp-layout",
    "eplb-needs-ep",
    "flashinfer-moe-ep",
    "cutlass-fp8-ep",
}
TARGET = {**tiny_kimi.CONFIG, "torch_dtype": "bfloat16"}
DRAFT = {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 1024,
    "num_target_layers": 4,
    "block_size": 4,
    "dflash_config": {"mask_token_id": 2, "target_layer_ids": [0, 2], "block_size": 4},
}


def engine():
    """Return (interpreter, PYTHONPATH) of an engine that is built here, or None."""
    given = os.environ.get("RECKONING_ENGINE_PYTHON")
    if given:
        return given, os.environ.get("RECKONING_ENGINE_PYTHONPATH", "")
    root = REPOSITORY / ".engines"
    pythons = sorted(root.glob(f"sglang-{VERSION}-cpu-*/bin/python"))
    overlays = [path.parent for path in root.glob("overlays/*/sgl_kernel") if (path.parent / "triton").is_dir()]
    if not pythons or not overlays:
        return None
    return str(pythons[0]), str(max(overlays, key=lambda path: path.stat().st_mtime))


def combinations(draft):
    """Return settings whose corners the rules are about; each list is a full product of its values."""

    def product(**values):
        names = list(values)
        for chosen in itertools.product(*values.values()):
            yield {name: value for name, value in zip(names, chosen, strict=True) if value is not None}

    dflash = {"speculative_algorithm": ["DFLASH"], "speculative_draft_model_path": [draft]}
    yield from product(speculative_algorithm=["EAGLE", "NGRAM", None], pp_size=[1, 2], tp_size=[1, 2])
    yield from product(speculative_algorithm=["DFLASH"], speculative_draft_model_path=[draft, None], pp_size=[1, 2])
    yield from product(
        **dflash,
        speculative_dflash_block_size=[None, 0, 4, 8],
        speculative_num_draft_tokens=[None, 4, 8],
        speculative_draft_window_size=[None, 0, 3, 4, 7, 8],
    )
    yield from product(**dflash, enable_dp_attention=[None, True], dp_size=[1, 2], tp_size=[2])
    yield from product(**dflash, max_running_requests=[None, 9], speculative_num_steps=[None, 3])
    yield from product(tp_size=[1, 4, 6, 8], dp_size=[1, 2, 3, 16], enable_dp_attention=[True])
    yield from product(tp_size=[4, 8], ep_size=[1, 2, 4, 8], moe_dp_size=[1, 2, 3], pp_size=[1, 2])
    yield from product(tp_size=[4, 8], ep_size=[1, 2, 4], moe_dp_size=[2], attn_cp_size=[1, 2, 4])
    yield from product(tp_size=[4, 6], attn_cp_size=[1, 2, 4])
    yield from product(tp_size=[3, 8], pp_size=[1, 2], nnodes=[1, 2, 3, 4])
    yield from product(enable_eplb=[True], tp_size=[4], ep_size=[1, 2, 4])
    yield from product(moe_a2a_backend=["deepep", "mooncake", "none"], tp_size=[4], ep_size=[1, 2, 4])
    yield from product(moe_runner_backend=["flashinfer_cutlass"], tp_size=[4], ep_size=[1, 2, 4])
    yield from product(moe_runner_backend=["cutlass"], quantization=["fp8"], tp_size=[2], ep_size=[1, 2])


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    found = engine()
    if found is None:
        pytest.skip(f"no engine with SGLang {VERSION} is built under .engines (make it with the rule engine)")
    folder = tmp_path_factory.mktemp("models")
    for name, config in (("target", TARGET), ("draft", DRAFT)):
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config))
    always = {"model_path": str(folder / "target"), "device": "cuda", "attention_backend": "triton"}
    cases = list(combinations(str(folder / "draft")))
    questions = [{"settings": {**always, **case}, "env": {}} for case in cases]
    python, path = found
    env = {**os.environ, "PYTHONPATH": path, "SGLANG_USE_CPU_ENGINE": "1", "HF_HUB_OFFLINE": "1"}
    program = Path(__file__).with_name("ask_sglang.py")
    done = subprocess.run(
        [python, str(program)], input=json.dumps(questions), capture_output=True, text=True, env=env, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answers = json.loads(done.stdout.rpartition("ANSWER ")[2])
    setups = [
        Setup(
            settings={**always, **case},
            version=VERSION,
            flags=recorded_table(VERSION),
            facts=ModelFacts(TARGET),
            draft=ModelFacts(DRAFT),
            nodes=case.get("nnodes", 1),
        )
        for case in cases
    ]
    return list(zip(cases, setups, answers, strict=True))


@pytest.mark.engine
@pytest.mark.slow
def test_the_planner_rejects_what_the_engine_refuses_and_nothing_else(compared):
    wrong = []
    for case, setup, answer in compared:
        rejected = sorted({problem.rule for problem in judge(setup)} & SAID_BY_THE_ENGINE)
        if bool(rejected) != (answer["error"] is not None):
            wrong.append((case, rejected, answer["error"]))
    assert not wrong, f"{len(wrong)} of {len(compared)}: {wrong[:5]}"
    assert sum(answer["error"] is not None for _, _, answer in compared) > 50


@pytest.mark.engine
@pytest.mark.slow
def test_effective_values_are_those_of_the_engine(compared):
    wrong = []
    for case, setup, answer in compared:
        if answer["error"] is not None:
            continue
        layout, real = setup.layout, answer["effective"]
        pairs = {
            "ep_size": (layout.ep, real["ep_size"]),
            "overlap": (layout.overlap, not real["disable_overlap_schedule"]),
        }
        if setup.speculative is not None:
            pairs["max_running_requests"] = (layout.max_running_requests, real["max_running_requests"])
        if setup.speculative == "DFLASH":
            pairs["block"] = (layout.block_size, real["speculative_num_draft_tokens"])
        wrong += [(case, name, pair) for name, pair in pairs.items() if pair[0] != pair[1]]
    assert not wrong, f"{len(wrong)}: {wrong[:5]}"
