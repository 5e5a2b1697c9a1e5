"""Failures that people reported, as facts, with their neighbours on both sides of each boundary."""

import pytest

from reckoning.environment import Level, diagnose
from tests.unit.environment.machines import (
    DFLASH,
    EAGER,
    FLASHINFER,
    GOOD,
    HOME,
    SAMPLED,
    TOPOLOGY,
    arm,
    gpu,
    include,
    library,
    machine,
    nvcc,
    package,
    plan,
    with_nvcc,
    without_headers,
)

ALL_ARMS = (EAGER, DFLASH, SAMPLED, FLASHINFER)


def find(facts, code, plan_=None):
    return [finding for finding in diagnose(facts, plan_) if finding.code == code]


def one(facts, code, plan_=None):
    found = find(facts, code, plan_)
    assert len(found) == 1, [item.code for item in diagnose(facts, plan_)]
    return found[0]


def failing(facts, plan_=None):
    return {finding.code for finding in diagnose(facts, plan_) if finding.level is Level.FAIL}


def test_good_machine_has_nothing_to_report():
    findings = diagnose(GOOD, plan(*ALL_ARMS))
    assert {finding.level for finding in findings} == {Level.OK}


# --- nvcc older than the GPU needs, which FlashInfer reports as a GPU that is too old ---


@pytest.mark.parametrize(
    ("version", "capability", "bad"),
    [
        ("12.8.61", "12.0", True),
        ("12.9.86", "12.0", False),
        ("13.0.88", "12.0", False),
        ("12.8.61", "9.0", False),
        ("12.8.61", "12.1", True),
        ("12.9.41", "12.1", False),
        ("12.6.20", "12.0", True),
        ("12.10.1", "12.0", False),  # as numbers: 12.10 is newer than 12.9
        ("12.8.61", "10.0", False),
        ("12.8.61", "10.3", True),
    ],
)
def test_nvcc_against_gpu(version, capability, bad):
    facts = with_nvcc(version, driver__gpus=[gpu(compute_cap=capability)], python__torch={"cuda": "12.8"})
    assert bool(find(facts, "nvcc-too-old-for-gpu")) is bad


def test_message_names_the_toolkit_not_the_gpu():
    facts = with_nvcc("12.8.61", "/usr/local/cuda-12.8/bin/nvcc")
    finding = one(facts, "nvcc-too-old-for-gpu", plan(*ALL_ARMS))
    assert finding.level is Level.FAIL
    assert finding.found == "nvcc 12.8 at /usr/local/cuda-12.8/bin/nvcc is used by the JIT; sm_120 needs >= 12.9"
    assert "sm75 or higher" in finding.why
    assert "newer GPU" not in finding.remedy
    assert "cuda-toolkit-13-0" in finding.remedy
    assert finding.concerns == ("dflash", "flashinfer")  # greedy requests do not compile FlashInfer's sampling
    sampling = one(facts, "nvcc-too-old-for-gpu", plan(*ALL_ARMS, temperature=1.0))
    assert sampling.concerns == ("dflash", "flashinfer", "sampled")


def test_nvcc_that_cannot_compile_at_all_concerns_every_arm():
    finding = one(with_nvcc("12.6.20"), "nvcc-too-old-for-gpu", plan(*ALL_ARMS))
    assert "eager-triton" in finding.concerns


# --- several toolkits: four numbers ---


def three_toolkits(header: int, compiler: str):
    home = "/opt/engine/lib/python3.12/site-packages/nvidia/cu13"
    facts = machine(
        toolkit__cuda_home=home,
        toolkit__nvccs=[
            nvcc(compiler, f"{home}/bin/nvcc", on_path=False),
            nvcc("12.8.61", "/usr/local/cuda/bin/nvcc", used=False),
        ],
        toolkit__includes=[
            include(
                f"{home}/include",
                "cuda_home",
                *["cuda.h", "cuda_runtime.h", "cuda_fp8.h", "curand.h", "curand_kernel.h", "nv/target"],
                cuda_version=header,
            )
        ],
    )
    return facts


def test_nvcc_and_headers_of_different_minor_releases_fail():
    finding = one(three_toolkits(13000, "13.3.27"), "nvcc-header-skew")
    assert finding.level is Level.FAIL
    assert finding.found == "nvcc 13.3, cuda.h 13.0, torch 13.0, driver up to 13.0"
    assert "cu13/bin/nvcc" in finding.where


def test_patch_skew_passes_and_other_nvccs_are_listed():
    facts = three_toolkits(13000, "13.0.27")
    assert not find(facts, "nvcc-header-skew")
    listed = one(facts, "nvcc-several")
    assert listed.level is Level.WARN
    assert "12.8 at /usr/local/cuda/bin/nvcc" in listed.found


def test_same_release_twice_is_only_noted():
    facts = machine(toolkit__nvccs=[nvcc("13.0.88"), nvcc("13.0.48", "/opt/cuda/bin/nvcc", used=False)])
    assert one(facts, "nvcc-several").level is Level.NOTE


@pytest.mark.parametrize(
    ("compiler", "torch", "code"),
    [("12.9.41", "13.0", "nvcc-torch-skew"), ("13.1.5", "13.0", "nvcc-torch-minor"), ("13.0.5", "13.0", None)],
)
def test_nvcc_against_torch(compiler, torch, code):
    facts = with_nvcc(compiler)
    facts["python"]["torch"]["cuda"] = torch
    found = [item for item in diagnose(facts) if item.code in ("nvcc-torch-skew", "nvcc-torch-minor")]
    assert [item.code for item in found] == ([code] if code else [])
    assert all(item.level is Level.WARN for item in found)


def test_toolkit_newer_than_the_drivers_ceiling():
    facts = machine(driver__cuda_ceiling="12.8", python__torch={"cuda": None})
    assert "ceiling" in one(facts, "nvcc-newer-than-driver").why


# --- toolkit from wheels: lib/ and versioned names only ---


def wheel_toolkit():
    return machine(toolkit__libraries=[library(f"{HOME}/lib", "lib", "libcudart.so.13")])


def test_wheel_toolkit_compiles_but_does_not_link():
    facts = wheel_toolkit()
    finding = one(facts, "link-cudart")
    assert finding.level is Level.FAIL
    assert f"the folder {HOME}/lib64" in finding.found
    assert "an unversioned libcudart.so" in finding.found
    assert "libcudart.so.13" in finding.found
    assert "cuda-toolkit-13-0" in finding.remedy
    assert not find(facts, "link-possible")
    assert find(facts, "header-runtime-present")


def test_unversioned_name_in_lib_gives_the_flag_to_set():
    facts = machine(toolkit__libraries=[library(f"{HOME}/lib", "lib", "libcudart.so", "libcudart.so.13")])
    assert f'FLASHINFER_EXTRA_LDFLAGS="-L{HOME}/lib"' in one(facts, "link-cudart").remedy


def test_flag_that_is_set_links():
    facts = machine(
        toolkit__libraries=[
            library(f"{HOME}/lib", "extra-ldflags", "libcudart.so", "libcudart.so.13"),
            library(f"{HOME}/lib64/stubs", "lib64-stubs", "libcuda.so"),
        ]
    )
    assert not failing(facts)


def test_empty_lib64_is_not_enough():
    facts = machine(toolkit__libraries=[library(f"{HOME}/lib64", "lib64", "libcudart.so.13")])
    found = one(facts, "link-cudart").found
    assert "the folder" not in found
    assert "unversioned libcudart.so" in found


def test_link_that_was_tried_outweighs_what_was_seen():
    step = {"done": True, "ok": True, "timed_out": False, "seconds": 0.1, "error": None}
    facts = wheel_toolkit()
    facts["proof"] = {"targets": ["sm_120f"], "nvcc": "nvcc", "cuda_home": HOME, "steps": {"link": step}}
    assert not failing(facts)


# --- no stub of the driver's library ---


def test_no_stub_concerns_flashinfer_only():
    facts = machine(toolkit__libraries=[library(f"{HOME}/lib64", "lib64", "libcudart.so")])
    finding = one(facts, "link-libcuda", plan(*ALL_ARMS))
    assert finding.level is Level.FAIL
    assert "cannot find -lcuda" in finding.why
    assert "eager-triton" not in finding.concerns


def test_wsl_keeps_the_library_elsewhere():
    facts = machine(
        host__wsl=True,
        toolkit__libraries=[
            library(f"{HOME}/lib64", "lib64", "libcudart.so"),
            library("/usr/lib/wsl/lib", "wsl", "libcuda.so.1"),
        ],
    )
    finding = one(facts, "link-libcuda")
    assert "/usr/lib/wsl/lib" in finding.found
    assert finding.remedy == 'export FLASHINFER_EXTRA_LDFLAGS="-L/usr/lib/wsl/lib -l:libcuda.so.1"'


def test_system_library_of_the_driver_links():
    facts = machine(
        toolkit__libraries=[
            library(f"{HOME}/lib64", "lib64", "libcudart.so"),
            library("/usr/lib/x86_64-linux-gnu", "system", "libcuda.so", "libcuda.so.1"),
        ]
    )
    assert not find(facts, "link-libcuda")


def test_conda_prefix_keeps_headers_under_targets():
    prefix = "/opt/mamba"
    headers = ["cuda.h", "cuda_runtime.h", "cuda_fp8.h", "curand.h", "curand_kernel.h", "nv/target"]
    facts = machine(
        toolkit__cuda_home=prefix,
        toolkit__rule="nvcc on PATH",
        toolkit__nvccs=[nvcc("13.0.88", f"{prefix}/bin/nvcc")],
        toolkit__includes=[
            include(f"{prefix}/include", "cuda_home"),
            include(f"{prefix}/targets/x86_64-linux/include", "targets", *headers, cuda_version=13000),
        ],
        toolkit__libraries=[
            library(f"{prefix}/lib64", "lib64", exists=False),
            library(f"{prefix}/lib", "lib", "libcudart.so", "libcudart.so.13"),
            library(f"{prefix}/lib/stubs", "lib-stubs", "libcuda.so"),
        ],
    )
    finding = one(facts, "header-runtime-hidden")
    assert finding.remedy.startswith(f"export CPATH={prefix}/targets/x86_64-linux/include")
    assert "nvcc on PATH" in one(facts, "toolkit-found").found
    assert f"-L{prefix}/lib/stubs" in one(facts, "link-libcuda").remedy
    assert f"-L{prefix}/lib" in one(facts, "link-cudart").remedy


def test_distribution_package_in_usr_is_whole():
    headers = ["cuda.h", "cuda_runtime.h", "cuda_fp8.h", "curand.h", "curand_kernel.h", "nv/target"]
    facts = machine(
        toolkit__cuda_home="/usr",
        toolkit__rule="nvcc on PATH",
        toolkit__nvccs=[nvcc("13.0.88", "/usr/bin/nvcc")],
        toolkit__includes=[include("/usr/include", "cuda_home", *headers, cuda_version=13000)],
        toolkit__libraries=[library("/usr/lib/x86_64-linux-gnu", "system", "libcudart.so", "libcuda.so")],
    )
    assert not failing(facts)


def test_wrapper_leads_to_a_folder_without_a_toolkit():
    top = "/usr/local/cuda-13.0"
    wrapper = {**nvcc("13.0.88", "/usr/local/bin/nvcc"), "top": top}
    facts = machine(
        toolkit__cuda_home="/usr/local",
        toolkit__rule="nvcc on PATH",
        toolkit__nvccs=[wrapper],
        toolkit__includes=[
            include("/usr/local/include", "cuda_home"),
            include(f"{top}/include", "nvcc", "cuda.h", cuda_version=13000),
        ],
    )
    finding = one(facts, "cuda-home-is-no-toolkit")
    assert finding.remedy == f"export CUDA_HOME={top}"


# --- curand.h is missing: only sampling and DFlash break ---


@pytest.mark.parametrize("names", [("curand.h",), ("curand_kernel.h",), ("curand.h", "curand_kernel.h")])
def test_curand_is_needed_by_sampling_and_speculation(names):
    finding = one(without_headers(machine(), *names), "header-curand-missing", plan(*ALL_ARMS, temperature=0.7))
    assert finding.level is Level.FAIL
    assert finding.concerns == ("dflash", "sampled")
    assert "libcurand-dev-13-0" in finding.needed
    assert "cuda-curand-dev" not in finding.needed + finding.remedy
    assert all(name in finding.found for name in names)


def test_greedy_arms_do_not_compile_sampling_kernels():
    finding = one(without_headers(machine(), "curand.h"), "header-curand-missing", plan(*ALL_ARMS, temperature=0.0))
    assert finding.concerns == ("dflash",)


def test_plan_without_users_of_curand_is_not_stopped():
    finding = one(without_headers(machine(), "curand.h"), "header-curand-missing", plan(EAGER, FLASHINFER))
    assert finding.level is Level.NOTE
    assert finding.concerns == ()


def test_without_flashinfer_nothing_samples_with_it():
    facts = without_headers(machine(python__packages=[package("torch", "2.11.0+cu130")]), "curand.h")
    assert one(facts, "header-curand-missing", plan(SAMPLED, temperature=1.0)).level is Level.NOTE


def test_cpu_experiment_is_never_stopped_by_cuda():
    facts = without_headers(with_nvcc("12.8.61", driver__gpus=[], driver__version=None), "curand.h", "nv/target")
    cpu = plan(arm("tp1", tp_size=1), machine={"device": "cpu"})
    assert {finding.level for finding in diagnose(facts, cpu)} <= {Level.OK, Level.NOTE}
    assert one(facts, "header-curand-missing", cpu).level is Level.NOTE


# --- nv/target in either place ---


def test_cccl_layout_of_cuda_13_passes():
    assert "nv/target" not in GOOD["toolkit"]["includes"][0]["headers"]
    assert not find(GOOD, "header-cccl-missing")


def test_cccl_layout_of_cuda_12_passes():
    facts = machine()
    facts["toolkit"]["includes"] = facts["toolkit"]["includes"][:1]
    facts["toolkit"]["includes"][0]["headers"].append("nv/target")
    assert not find(facts, "header-cccl-missing")


def test_cccl_in_neither_place_fails():
    finding = one(without_headers(machine(), "nv/target"), "header-cccl-missing")
    assert finding.level is Level.FAIL
    assert "cuda-cccl-13-0" in finding.needed
    assert "nvidia-cuda-cccl" in finding.needed


# --- driver too old ---


@pytest.mark.parametrize(
    ("version", "old"),
    [
        ("580.65.06", False),
        ("580.65.05", True),
        ("580.9", True),
        ("580.65", True),
        ("580.126.09", False),
        ("595.84", False),
        ("570.133.20", True),
        ("1000.1", False),
    ],
)
def test_driver_versions_are_compared_by_component(version, old):
    assert bool(find(machine(driver__version=version), "driver-too-old")) is old


def test_old_driver_stops_every_cuda_arm_and_explains_the_ceiling():
    facts = machine(driver__version="570.133.20", driver__cuda_ceiling="12.8")
    finding = one(facts, "driver-too-old", plan(*ALL_ARMS))
    assert finding.concerns == ("dflash", "eager-triton", "flashinfer", "sampled")
    assert "not the installed toolkit" in finding.why
    assert "580.65.06" in finding.needed


def test_cuda_12_needs_an_older_driver_only():
    facts = with_nvcc("12.9.41", driver__version="570.133.20", driver__gpus=[gpu(compute_cap="9.0")])
    facts["python"]["torch"]["cuda"] = "12.9"
    assert not find(facts, "driver-too-old")


def test_unknown_ceiling_is_unknown():
    facts = machine(driver__cuda_ceiling=None)
    assert not failing(facts)


def test_torch_that_fell_back_to_the_cpu():
    torch = {
        **GOOD["python"]["torch"],
        "available": False,
        "warnings": ["CUDA initialization: The NVIDIA driver on your system is too old (found version 12080)."],
    }
    finding = one(machine(python__torch=torch), "torch-sees-no-gpu", plan(EAGER))
    assert "CUDA 12.8" in finding.found
    assert finding.level is Level.FAIL


# --- FLASHINFER_CUDA_ARCH_LIST ---


@pytest.mark.parametrize(
    ("value", "version", "code", "quoted"),
    [
        ("12.0;12.1", "13.0.88", "arch-list-form", "'12.0;12.1'"),
        ("120", "13.0.88", "arch-list-form", "'120'"),
        ("12.0 ", "13.0.88", "arch-list-form", "''"),
        ("12.0 sm_121", "13.0.88", "arch-list-form", "'sm_121'"),
        ("12.0f", "12.8.61", "arch-list-needs-newer-nvcc", "'12.0f'"),
        ("12.0a", "12.6.20", "arch-list-needs-newer-nvcc", "'12.0a'"),
        ("12.0a", "12.8.61", None, ""),
        ("12.0f", "12.9.41", None, ""),
        ("12.0", "12.8.61", "arch-list-needs-newer-nvcc", "'12.0'"),
        ("12.0", "12.9.41", None, ""),
        ("9.0a 12.0f", "13.0.88", None, ""),
        ("9.0a", "13.0.88", "arch-list-lacks-gpu", "sm_120"),
        ("12.1a", "13.0.88", "arch-list-lacks-gpu", "sm_120"),
    ],
)
def test_arch_list(value, version, code, quoted):
    facts = with_nvcc(version, host__variables={"FLASHINFER_CUDA_ARCH_LIST": value})
    found = [finding for finding in diagnose(facts) if finding.code.startswith("arch-list")]
    assert [finding.code for finding in found] == ([code] if code else [])
    if code:
        assert quoted in found[0].found
        assert found[0].level is Level.FAIL


def test_arch_list_in_torchs_dialect_is_repaired():
    facts = machine(host__variables={"FLASHINFER_CUDA_ARCH_LIST": "12.0;12.1"})
    assert one(facts, "arch-list-form").remedy == 'export FLASHINFER_CUDA_ARCH_LIST="12.0 12.1"'


def test_arch_list_of_one_arm_concerns_that_arm():
    own = arm("own", {"FLASHINFER_CUDA_ARCH_LIST": "120"}, tp_size=4)
    assert one(machine(), "arch-list-form", plan(own, SAMPLED)).concerns == ("own",)


# --- versions of FlashInfer's packages ---


@pytest.mark.parametrize(
    ("packages", "code"),
    [
        ([("flashinfer-python", "0.6.18"), ("flashinfer-cubin", "0.6.12")], "flashinfer-skew"),
        ([("flashinfer-python", "0.6.16"), ("flashinfer-jit-cache", "0.6.16+cu130")], None),
        ([("flashinfer-python", "0.7.0.dev20260922")], None),
        ([("flashinfer-python", "0.6.16"), ("flashinfer-jit-cache", "0.6.16+cu129")], "flashinfer-cuda-build"),
        ([("flashinfer-python", "0.6.16"), ("flashinfer-jit-cache", "0.6.15+cu130")], "flashinfer-skew"),
        ([("flashinfer-python", "0.6.1"), ("flashinfer-jit-cache", "0.6.16+cu130")], "flashinfer-skew"),
    ],
)
def test_flashinfer_versions(packages, code):
    facts = machine(python__packages=[package(*item) for item in packages])
    assert failing(facts) == ({code} if code else set())


def test_flashinfer_alone_is_fine_with_a_note():
    facts = machine(python__packages=[package("flashinfer-python", "0.7.0.dev20260922")])
    finding = one(facts, "flashinfer-versions-agree")
    assert finding.level is Level.NOTE
    assert "no cubin" in finding.found


def test_two_trees_of_one_package():
    trees = [package("sglang", "0.5.12.post1"), package("sglang", "0.5.9", "/home/me/sglang/python")]
    finding = one(machine(python__packages=trees), "package-twice")
    assert "0.5.9 in /home/me/sglang/python" in finding.found


# --- TensorRT-LLM's kernels on the wrong Blackwell ---


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("attention_backend", "trtllm_mla"),
        ("attention_backend", "trtllm_mha"),
        ("decode_attention_backend", "trtllm_mla"),
        ("moe_runner_backend", "flashinfer_trtllm"),
    ],
)
@pytest.mark.parametrize(
    ("capability", "bad"), [("12.0", True), ("12.1", True), ("10.0", False), ("10.3", False), ("9.0", True)]
)
def test_trtllm_backends(setting, value, capability, bad):
    facts = machine(driver__gpus=[gpu(compute_cap=capability)], python__torch={"cuda": "13.0"})
    wanted = arm("wanted", tp_size=1, **{setting: value})
    found = find(facts, "backend-not-for-gpu", plan(wanted, EAGER))
    assert bool(found) is bad
    if bad:
        assert found[0].level is Level.FAIL
        assert found[0].concerns == ("wanted",)
        assert value in found[0].found


def test_hybrid_model_with_flashinfer_attention_is_a_warning():
    hybrid = {"facts": {"architectures": ["Qwen3NextForCausalLM"]}}
    finding = one(machine(), "hybrid-attention-backend", plan(FLASHINFER, EAGER, model=hybrid))
    assert finding.level is Level.WARN
    assert finding.concerns == ("flashinfer",)
    assert "triton" in finding.remedy
    assert not find(machine(), "hybrid-attention-backend", plan(FLASHINFER))


# --- peer-to-peer over PCIe ---

REDIRECT = [{"device": "20:01.0", "control": "ACSCtl: SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+"}]
NO_REDIRECT = [{"device": "20:01.0", "control": "ACSCtl: SrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd-"}]
PAIR = arm("pair", tp_size=2, **{"attention_backend": "triton", "sampling_backend": "pytorch"})


@pytest.mark.parametrize(
    ("acs", "flags", "link", "level"),
    [
        (REDIRECT, [], "PHB", Level.WARN),
        (REDIRECT, ["iommu=pt"], "NODE", Level.WARN),
        (NO_REDIRECT, [], "NODE", Level.NOTE),
        (NO_REDIRECT, ["iommu=pt"], "NODE", None),
        (REDIRECT, [], "NV18", None),
    ],
)
def test_access_control_on_pcie(acs, flags, link, level):
    facts = machine(pci__acs=acs, host__kernel_flags=flags, driver__topology=TOPOLOGY.replace("NODE", link))
    found = find(facts, "p2p-may-hang", plan(PAIR, EAGER))
    assert [finding.level for finding in found] == ([level] if level else [])
    if level is Level.WARN:
        assert found[0].concerns == ("pair",)
        assert "NCCL_P2P_DISABLE=1" in found[0].remedy
        assert "disable_custom_all_reduce" in found[0].remedy


def test_pair_without_custom_all_reduce_is_not_warned():
    safe = arm("safe", tp_size=2, disable_custom_all_reduce=True, attention_backend="triton")
    facts = machine(pci__acs=REDIRECT)
    assert one(facts, "p2p-may-hang", plan(safe)).level is Level.NOTE
