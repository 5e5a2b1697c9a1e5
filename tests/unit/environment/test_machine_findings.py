"""GPUs, links, limits and settings around them: each check on both sides of its boundary."""

import pytest

from reckoning.environment import Level, diagnose
from reckoning.environment.diagnosis.topology import gpu_links
from reckoning.environment.scope import Scope
from tests.unit.environment.machines import (
    DFLASH,
    EAGER,
    FLASHINFER,
    GOOD,
    SAMPLED,
    TOPOLOGY,
    arm,
    gpu,
    machine,
    plan,
)


def level(facts, code, *arms, **plan_changes):
    found = [item for item in diagnose(facts, plan(*(arms or (EAGER,)), **plan_changes)) if item.code == code]
    return found[0].level if found else None


def gpus(**changes):
    """Four GPUs, the last of them changed."""
    return machine(driver__gpus=[*(gpu(index) for index in range(3)), gpu(3, **changes)])


@pytest.mark.parametrize(
    ("facts", "code", "expected"),
    [
        (gpus(), "gpus-differ", None),
        (gpus(power_limit_w=300), "gpus-differ", Level.WARN),
        (gpus(name="NVIDIA H200"), "gpus-differ", Level.WARN),
        (gpus(power_limit_w=300), "power-limit-lowered", Level.NOTE),
        (gpus(power_limit_w=600), "power-limit-lowered", None),
        (gpus(pcie_link_width_current=8), "pcie-narrow", Level.WARN),
        (gpus(pcie_link_gen_current=1), "pcie-narrow", None),
        (gpus(pcie_link_gen_hostmax=4), "pcie-old-slot", Level.NOTE),
        (gpus(mig_mode_current="Enabled"), "mig-enabled", Level.WARN),
        (gpus(compute_mode="Exclusive_Process"), "compute-mode", Level.WARN),
        (gpus(persistence_mode="Disabled"), "persistence-off", Level.NOTE),
        (gpus(clocks_event_reasons_active="0x0000000000000001"), "gpu-slowed", None),  # idle
        (
            gpus(clocks_event_reasons_active="0x0000000000000004"),
            "gpu-slowed",
            None,
        ),  # the power cap: normal under load
        (gpus(clocks_event_reasons_active="0x0000000000000020"), "gpu-slowed", Level.WARN),
        (gpus(memory_used_mib=1024), "gpus-in-use", None),
        (gpus(memory_used_mib=1025), "gpus-in-use", Level.WARN),
        (
            machine(driver__processes=[{"pid": 7, "name": "x", "memory_mib": 9, "gpu_uuid": "a"}]),
            "gpus-in-use",
            Level.WARN,
        ),
        (machine(host__shm={"free_gib": 3.9}), "shm-small", Level.WARN),
        (machine(host__shm={"free_gib": 4.0}), "shm-small", None),
        (machine(host__nofile={"soft": 1024, "hard": 4095}), "nofile-low", Level.WARN),
        (machine(host__nofile={"soft": 1024, "hard": 4096}), "nofile-low", None),
        (machine(host__nofile={"soft": 1024, "hard": -1}), "nofile-low", None),  # unlimited
        (machine(host__time={"clocksource": "hpet"}), "clock-slow", Level.WARN),
        (machine(host__time={"clocksource": "kvm-clock"}), "clock-slow", None),
        (machine(host__cpu={"governor": "powersave"}), "cpu-powersave", Level.WARN),
        (machine(host__cpu={"governor": "performance"}), "cpu-powersave", None),
        (machine(host__cpu={"numa_balancing": "1", "numa_nodes": 2}), "numa-balancing", Level.NOTE),
        (machine(host__cpu={"numa_balancing": "1", "numa_nodes": 1}), "numa-balancing", None),
        (machine(host__memory_limit_gib=64.0), "memory-limited", Level.NOTE),
        (machine(python__interpreter={"has_python_h": False}), "python-headers-missing", Level.FAIL),
        (machine(compilers__ninja={"path": None, "version": None}), "ninja-missing", Level.FAIL),
        (machine(driver__topology=TOPOLOGY.replace("NODE", "SYS")), "gpus-across-sockets", Level.NOTE),
        (machine(driver__p2p=TOPOLOGY.replace("NODE", "CNS")), "p2p-not-supported", Level.NOTE),
    ],
)
def test_boundary(facts, code, expected):
    assert level(facts, code) is expected


@pytest.mark.parametrize(
    ("names", "capability", "lacks"),
    [
        (["sm_90", "sm_100"], "12.0", True),
        (["sm_90", "sm_120"], "12.0", False),
        (["sm_120"], "12.1", False),  # machine code of an older minor of the same major runs
        (["sm_121"], "12.0", True),
        (["sm_80"], "8.6", False),
        (["sm_90", "compute_90"], "12.0", False),  # PTX is compiled by the driver
        (["sm_90a"], "9.0", False),
        (["sm_90a", "compute_90a"], "12.0", True),  # PTX with the suffix runs nowhere else
    ],
)
def test_torch_build_against_gpu(names, capability, lacks):
    facts = machine(driver__gpus=[gpu(compute_cap=capability)])
    facts["python"]["torch"].update(arch_list=names, devices=[])
    assert (level(facts, "torch-lacks-gpu", arm("one")) is Level.FAIL) is lacks


@pytest.mark.parametrize(
    ("planned", "expected"),
    [
        ({"gpu_name": "RTX PRO 6000 Blackwell"}, None),
        ({"gpu_name": "NVIDIA H200"}, Level.WARN),
        ({"gpu_memory_gib": 96}, None),
        ({"gpu_memory_gib": 141}, Level.WARN),
        ({"compute_capability": "12.0"}, None),
        ({"compute_capability": "9.0"}, Level.WARN),
    ],
)
def test_plan_for_another_machine(planned, expected):
    assert level(GOOD, "machine-is-not-the-planned", machine=planned) is expected


def test_streams_of_the_plan_set_the_need_for_open_files():
    many = plan(EAGER)
    many["workloads"]["chat"]["concurrency"] = [1, 2000]
    facts = machine(host__nofile={"soft": 4096, "hard": 4096})
    finding = next(item for item in diagnose(facts, many) if item.code == "nofile-low")
    assert "8256 for 2000 streams" in finding.needed


def test_topology_matrix_is_read_pair_by_pair():
    matrix = (
        "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\x1b[0m\n".replace("\x1b[4m", "").replace("\x1b[0m", "")
        + "GPU0\t X \tNV18\tPXB\t0-47\nGPU1\tNV18\t X \tSYS\t0-47\nNIC0\tPXB\tSYS\t X \t\n\nLegend:\n  X = Self\n"
    )
    assert gpu_links(matrix) == {(0, 1): "NV18", (1, 0): "NV18"}
    assert gpu_links(None) == {}


def test_arm_that_is_rejected_is_never_concerned():
    rejected = arm("rejected", status="rejected", tp_size=64)
    assert not [item for item in diagnose(GOOD, plan(rejected)) if "rejected" in item.concerns]


ALONE = {"attention_backend": "triton", "sampling_backend": "pytorch"}
DRAFT = {"speculative_algorithm": "DFLASH", "speculative_draft_attention_backend": "triton"}


@pytest.mark.parametrize(
    ("arm_", "uses"),
    [
        (
            EAGER,
            {
                "any CUDA arm",
                "kernels compiled at run time",
                "Triton kernels",
                "more than one GPU",
                "the model's files",
            },
        ),
        (arm("x", attention_backend="flashinfer", sampling_backend="pytorch"), {"FlashInfer kernels"}),
        (arm("x", attention_backend="triton", sampling_backend="flashinfer"), {"FlashInfer sampling"}),
        (arm("x", **ALONE, moe_runner_backend="flashinfer_cutlass"), {"FlashInfer kernels"}),
        (DFLASH, {"speculative decoding (DFlash)", "FlashInfer kernels"}),
        (arm("x", **ALONE, **DRAFT), {"speculative decoding (DFlash)"}),
        (arm("x", tp_size=2), {"two GPUs with custom all-reduce"}),
    ],
)
def test_what_an_arm_uses(arm_, uses):
    features = {feature.value for feature in Scope(GOOD, plan(arm_, temperature=1.0)).arms[0].features}
    assert uses <= features
    if arm_ is EAGER:
        assert uses == features


def test_fused_all_reduce_makes_a_triton_arm_use_flashinfer_on_hopper():
    hopper = machine(driver__gpus=[gpu(compute_cap="9.0")])
    off = arm("off", **{**EAGER["settings"], "enforce_disable_flashinfer_allreduce_fusion": True})
    arms = Scope(hopper, plan(EAGER, off)).arms
    assert ["FlashInfer kernels" in {feature.value for feature in item.features} for item in arms] == [True, False]


def test_findings_are_in_order_of_gravity_and_stable():
    facts = machine(driver__version="570.1", host__time={"clocksource": "hpet"}, host__memory_limit_gib=1.0)
    levels = [item.level for item in diagnose(facts, plan(EAGER, SAMPLED, FLASHINFER))]
    order = [Level.FAIL, Level.WARN, Level.NOTE, Level.OK]
    assert levels == sorted(levels, key=order.index)
    assert len(set(levels)) == 4
    assert diagnose(facts) == diagnose(facts)


def test_nothing_is_judged_from_nothing():
    assert diagnose({}) == []


def test_gpu_that_cuda_13_dropped_is_not_called_too_new():
    facts = machine(driver__gpus=[gpu(compute_cap="7.0")])
    facts["python"]["torch"]["devices"] = []
    facts["toolkit"]["nvccs"][0]["gpu_code"] = ["sm_75", "sm_80", "sm_120"]
    assert level(facts, "nvcc-dropped-gpu", arm("one")) is Level.FAIL
    assert level(facts, "nvcc-too-old-for-gpu", arm("one")) is None


def test_gpus_that_only_torch_sees_count():
    facts = machine(driver__gpus=[], driver__nvidia_smi=None)
    assert level(facts, "gpus-too-few", arm("four", tp_size=4)) is None
    assert level(facts, "gpus-too-few", arm("eight", tp_size=8)) is Level.FAIL


def test_arm_with_its_own_toolkit_was_not_looked_at():
    own = arm("own", {"CUDA_HOME": "/opt/cuda-12.8"}, tp_size=4)
    same = arm("same", {"CUDA_HOME": GOOD["toolkit"]["cuda_home"]}, tp_size=4)
    found = [item for item in diagnose(GOOD, plan(own, same)) if item.code == "arm-chooses-toolkit"]
    assert [item.concerns for item in found] == [("own",)]


@pytest.mark.parametrize(
    ("place", "nearest", "expected"),
    [
        ("/models/kimi", "/models", Level.FAIL),
        ("models/kimi", "/srv/models", Level.FAIL),
        ("moonshotai/Kimi-K2.6", "/srv", Level.WARN),
        ("./kimi", "/srv", Level.FAIL),
        ("kimi", "/srv", Level.FAIL),
    ],
)
def test_model_that_is_not_there_may_be_the_name_of_a_repository(place, nearest, expected):
    disk = {"use": "model", "place": place, "path": nearest, "exists": False, "free_gib": 9.0}
    assert level(machine(host__disks=[disk]), "model-missing") is expected


@pytest.mark.parametrize(
    ("value", "code", "expected"),
    [
        ("/usr/local/cuda-13.0/lib64/stubs", "stub-at-run-time", Level.FAIL),
        ("/usr/local/cuda-13.0/lib64:/opt/stubs-of-tests/lib", "stub-at-run-time", None),
        ("/usr/local/cuda-12.8/lib64", "library-path-of-another-cuda", Level.WARN),
        ("/opt/x:/usr/local/cuda-13.0/lib64", "library-path-of-another-cuda", None),
        ("/usr/local/cuda/lib64", "library-path-of-another-cuda", None),
    ],
)
def test_library_path(value, code, expected):
    assert level(machine(host__variables={"LD_LIBRARY_PATH": value}), code) is expected
