"""The probe on made-up machines: real processes, made-up trees and programs in a temporary folder."""

import json
import os
import re
import stat
import sys
import time
from pathlib import Path

import jsonschema
import pytest

from reckoning.environment import Level, check, diagnose, probe
from reckoning.environment.facts import SCHEMA, read_facts
from reckoning.environment.probing.caches import cache_facts
from reckoning.environment.probing.driver import driver_facts
from reckoning.environment.probing.host import compiler_facts, host_facts, pci_facts
from reckoning.environment.probing.machine import Machine
from reckoning.environment.probing.toolkit import find_cuda_home, toolkit_facts
from reckoning.environment.scrub import scrub
from reckoning.files import read_json, write_json
from tests.unit.environment.machines import EAGER, arm, plan

SCHEMAS = Path(__file__).parents[3] / "workflow" / "schemas"


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def toolkit(
    folder: Path, version: str, headers=("cuda.h", "cuda_runtime.h"), libraries=("lib64/libcudart.so",)
) -> Path:
    release = ".".join(version.split(".")[:2])
    script(folder / "bin" / "nvcc", f'echo "Cuda compilation tools, release {release}, V{version}"\n')
    for name in headers:
        (folder / "include" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "include" / name).write_text("")
    if "cuda.h" in headers:
        major, minor = release.split(".")
        (folder / "include" / "cuda.h").write_text(f"#define CUDA_VERSION {int(major) * 1000 + int(minor) * 10}\n")
    for name in libraries:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    return folder


def machine(root: Path, **environ: str) -> Machine:
    root.mkdir(exist_ok=True)
    return Machine(root, {"PATH": "/usr/bin:/bin", "HOME": str(root / "home"), **environ})


# --- which toolkit ---


def test_cuda_home_wins_over_cuda_path_and_path(tmp_path):
    a, b, c = (toolkit(tmp_path / name, "13.0.1") for name in "abc")
    on_path = f"{c}/bin:/usr/bin:/bin"
    assert find_cuda_home(machine(tmp_path, CUDA_HOME=str(a), CUDA_PATH=str(b), PATH=on_path)) == (str(a), "CUDA_HOME")
    assert find_cuda_home(machine(tmp_path, CUDA_PATH=str(b), PATH=on_path)) == (str(b), "CUDA_PATH")
    assert find_cuda_home(machine(tmp_path, PATH=on_path)) == (str(c), "nvcc on PATH")


def test_empty_variable_counts_as_unset(tmp_path):
    b = toolkit(tmp_path / "b", "13.0.1")
    assert find_cuda_home(machine(tmp_path, CUDA_HOME="", PATH=f"{b}/bin")) == (str(b), "nvcc on PATH")


def test_default_folder_is_the_last_resort(tmp_path):
    here = machine(tmp_path, PATH="/nowhere")
    assert find_cuda_home(here) == (None, "none")
    toolkit(tmp_path / "usr/local/cuda", "13.0.1")
    assert find_cuda_home(here) == (str(tmp_path / "usr/local/cuda"), "/usr/local/cuda")


def test_links_are_not_resolved_as_which_does_not(tmp_path):
    real = toolkit(tmp_path / "cuda-13.0", "13.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nvcc").symlink_to(real / "bin" / "nvcc")
    home, _ = find_cuda_home(machine(tmp_path, PATH=f"{tmp_path}/bin:/bin"))
    assert home == str(tmp_path)


def test_every_nvcc_is_seen_and_one_is_used(tmp_path):
    used = toolkit(tmp_path / "opt/cu13", "13.3.27")
    other = toolkit(tmp_path / "path/cuda", "12.8.61")
    toolkit(tmp_path / "usr/local/cuda-12.6", "12.6.20")
    facts = toolkit_facts(machine(tmp_path, CUDA_HOME=str(used), PATH=f"{other}/bin:/usr/bin:/bin"))
    seen = {
        item["release"]: (item["used"], item["on_path"]) for item in facts["nvccs"] if str(tmp_path) in item["path"]
    }
    assert seen == {"13.3": (True, False), "12.8": (False, True), "12.6": (False, False)}


def test_headers_of_both_cccl_layouts_are_seen(tmp_path):
    old = toolkit_facts(machine(tmp_path, CUDA_HOME=str(toolkit(tmp_path / "old", "12.9.1", ["nv/target"]))))
    new = toolkit_facts(machine(tmp_path, CUDA_HOME=str(toolkit(tmp_path / "new", "13.0.1", ["cccl/nv/target"]))))
    for facts, origin in ((old, "cuda_home"), (new, "cuda_home-cccl")):
        assert [item["origin"] for item in facts["includes"] if "nv/target" in item["headers"]] == [origin]


def test_wheel_toolkit_is_described_as_it_is(tmp_path):
    home = toolkit(tmp_path / "cu13", "13.0.1", libraries=["lib/libcudart.so.13"])
    facts = toolkit_facts(machine(tmp_path, CUDA_HOME=str(home)))
    parts = {item["part"]: item for item in facts["libraries"]}
    assert parts["lib64"]["exists"] is False
    assert parts["lib"]["files"] == ["libcudart.so.13"]


def test_cuda_version_and_newest_gcc_are_read(tmp_path):
    home = toolkit(tmp_path / "cuda", "13.0.1")
    (home / "include/crt").mkdir()
    (home / "include/crt/host_config.h").write_text("#if __GNUC__ > 15\n#error unsupported\n#endif\n")
    facts = toolkit_facts(machine(tmp_path, CUDA_HOME=str(home)))
    assert facts["includes"][0]["cuda_version"] == 13000
    assert facts["max_gcc"] == 15


# --- commands ---


def test_command_that_hangs_is_ended_with_its_children(tmp_path):
    marker = tmp_path / "child"
    program = script(tmp_path / "hang", f"sleep 300 & echo $! > {marker}; echo begun; wait\n")
    here = machine(tmp_path)
    began = time.monotonic()
    result = here.run([str(program)], timeout_s=1.0)
    assert result.timed_out and result.code is None
    assert time.monotonic() - began < 60
    child = int(marker.read_text())
    for _ in range(100):
        if not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text().split(")")[1][:3]:
            break
        time.sleep(0.05)
    else:
        pytest.fail("the child outlived its command")
    assert here.commands[-1].as_fact()["timed_out"] is True


def test_command_that_is_missing_is_a_fact(tmp_path):
    result = machine(tmp_path).run(["/nowhere/nvcc"])
    assert result.code is None and not result.timed_out
    assert "FileNotFoundError" in result.errors


def test_nvcc_that_prints_nonsense_has_no_release(tmp_path):
    script(tmp_path / "bin" / "nvcc", "echo Segmentation fault >&2; exit 139\n")
    facts = toolkit_facts(machine(tmp_path, CUDA_HOME=str(tmp_path)))
    assert facts["nvccs"][0]["release"] is None
    assert {finding.code for finding in diagnose({"toolkit": facts})} >= {"toolkit-missing"}


# --- nvidia-smi ---

SMI = """
case "$*" in
  "") echo "| NVIDIA-SMI 570.133.20   Driver Version: 570.133.20   CUDA Version: 12.8 |" ;;
  *clocks_event_reasons*) echo 'Field "clocks_event_reasons.active" is not a valid field to query.'; exit 2 ;;
  --query-gpu=index,name,uuid,pci.bus_id*)
    echo "0, NVIDIA RTX PRO 6000 Blackwell, GPU-aa, 00000000:01:00.0, 570.133.20, 12.0, 97887, 4, 80.5, \
600.00, 600.00, \
600.00, 180, 2430, 405, 14001, Enabled, [N/A], Disabled, Default, 1, 5, 5, 5, 8, 16, 31, 0" ;;
  --query-compute-apps*) echo "123, /usr/bin/python3 -m secret, 2048, GPU-aa" ;;
  "topo -m") printf '\\tGPU0\\tCPU Affinity\\nGPU0\\t X \\t0-7\\n' ;;
  *) exit 3 ;;
esac
"""


def test_nvidia_smi_is_read(tmp_path):
    script(tmp_path / "bin" / "nvidia-smi", SMI)
    facts = driver_facts(machine(tmp_path, PATH=f"{tmp_path}/bin:/usr/bin:/bin"))
    assert (facts["version"], facts["cuda_ceiling"]) == ("570.133.20", "12.8")
    card = facts["gpus"][0]
    assert card["memory_total_mib"] == 97887
    assert card["power_draw_w"] == 80.5
    assert card["mig_mode_current"] is None
    assert (card["pcie_link_width_current"], card["pcie_link_width_max"]) == (8, 16)
    assert "clocks_event_reasons_active" not in card
    assert facts["processes"] == [{"pid": 123, "name": "python3", "memory_mib": 2048, "gpu_uuid": "GPU-aa"}]
    found = {finding.code: finding.level for finding in diagnose({"driver": facts})}
    assert found["driver-too-old"] is Level.FAIL
    assert found["pcie-narrow"] is Level.WARN
    assert found["gpus-in-use"] is Level.WARN
    assert found["persistence-off"] is Level.NOTE


def test_ceiling_that_is_not_a_number_is_unknown(tmp_path):
    script(tmp_path / "bin" / "nvidia-smi", 'echo "Driver Version: 580.95.05   CUDA Version: N/A"\n')
    facts = driver_facts(machine(tmp_path, PATH=f"{tmp_path}/bin:/usr/bin:/bin"))
    assert facts["cuda_ceiling"] is None
    assert facts["version"] == "580.95.05"


def test_broken_driver_is_reported_in_its_own_words(tmp_path):
    said = "Failed to initialize NVML: Driver/library version mismatch"
    script(tmp_path / "bin" / "nvidia-smi", f"echo '{said}'; exit 18\n")
    facts = driver_facts(machine(tmp_path, PATH=f"{tmp_path}/bin:/usr/bin:/bin"))
    finding = next(item for item in diagnose({"driver": facts}) if item.code == "driver-broken")
    assert finding.found == said
    assert "reboot" in finding.remedy


def test_machine_without_gpu_stops_cuda_arms_only(tmp_path):
    facts = {"driver": driver_facts(machine(tmp_path, PATH="/nowhere"))}
    finding = next(item for item in diagnose(facts, plan(EAGER)) if item.code == "gpus-too-few")
    assert finding.found == "no GPU" and finding.concerns == ("eager-triton",)


def test_hidden_gpus_do_not_count(tmp_path):
    facts = {"driver": {"gpus": [{"index": i, "name": "x"} for i in range(4)]}}
    facts["host"] = {"variables": {"CUDA_VISIBLE_DEVICES": "0,1"}}
    arms = plan(arm("two", tp_size=2), arm("four", tp_size=2, pp_size=2), arm("eight", tp_size=4, dp_size=2))
    finding = next(item for item in diagnose(facts, arms) if item.code == "gpus-too-few")
    assert finding.concerns == ("eight", "four")


# --- host ---


def test_wsl_kernel_flags_and_clock_are_read_from_the_root(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/version").write_text("Linux version 5.15.90.1-microsoft-standard-WSL2\n")
    (tmp_path / "proc/cmdline").write_text("BOOT_IMAGE=/vmlinuz root=/dev/sda1 password=hunter2 iommu=pt quiet\n")
    clock = tmp_path / "sys/devices/system/clocksource/clocksource0"
    clock.mkdir(parents=True)
    (clock / "current_clocksource").write_text("hpet\n")
    (clock / "available_clocksource").write_text("tsc hpet\n")
    facts = host_facts(machine(tmp_path), None)
    assert facts["wsl"] is True
    assert facts["kernel_flags"] == ["iommu=pt"]
    assert facts["time"]["clocksource"] == "hpet"
    assert {item.code for item in diagnose({"host": facts})} >= {"clock-slow"}


def test_only_variables_that_matter_are_recorded_and_no_secret(tmp_path):
    here = machine(
        tmp_path,
        HF_TOKEN="hf_secret",
        SGLANG_API_KEY="sk-secret",
        NCCL_P2P_DISABLE="1",
        FLASHINFER_CUDA_ARCH_LIST="12.0f",
        AWS_REGION="x",
    )
    variables = host_facts(here, None)["variables"]
    assert variables == {"NCCL_P2P_DISABLE": "1", "FLASHINFER_CUDA_ARCH_LIST": "12.0f"}


def test_model_that_is_missing_fails_unless_it_will_be_made(tmp_path):
    facts = {"host": host_facts(machine(tmp_path), str(tmp_path / "no-model"))}
    missing = [item for item in diagnose(facts, plan(EAGER)) if item.code == "model-missing"]
    assert missing[0].level is Level.FAIL and missing[0].concerns == ("eager-triton",)
    made = plan(EAGER, model={"maker": "tiny-kimi"})
    assert not [item for item in diagnose(facts, made) if item.code == "model-missing"]


def test_access_control_is_read(tmp_path):
    text = "20:01.0 PCI bridge: x\\n\\tCapabilities: ACS\\n\\t\\tACSCtl: SrcValid+ ReqRedir+ CmpltRedir+\\n"
    script(tmp_path / "bin" / "lspci", f"printf '{text}'\n")
    facts = pci_facts(machine(tmp_path, PATH=f"{tmp_path}/bin:/usr/bin:/bin"))
    assert facts["acs"] == [{"device": "20:01.0", "control": "ACSCtl: SrcValid+ ReqRedir+ CmpltRedir+"}]


def test_compilers_that_are_missing_or_too_new(tmp_path):
    none = compiler_facts(machine(tmp_path, PATH="/nowhere"))
    assert {item.code for item in diagnose({"compilers": none})} == {"ninja-missing", "host-compiler-missing"}
    script(tmp_path / "bin/gcc", 'case "$1" in -dump*) echo 16.1.0;; *) echo "gcc (GCC) 16.1.0";; esac\n')
    new = compiler_facts(machine(tmp_path, PATH=f"{tmp_path}/bin:/usr/bin:/bin"))
    for newest, expected in ((15, True), (16, False)):
        facts = {"compilers": new, "toolkit": {"max_gcc": newest}}
        assert ("host-compiler-too-new" in {item.code for item in diagnose(facts)}) is expected


# --- caches ---


def test_caches_locks_and_toolkits(tmp_path):
    home = tmp_path / "home"
    built = home / ".cache/flashinfer/0.6.11/120f/cached_ops/sampling"
    built.mkdir(parents=True)
    (built / "sampling.so").write_text("x")
    (built / "build.ninja").write_text("cuda_home = /usr/local/cuda-12.8\n")
    lock = home / ".cache/torch_extensions/py312/x/lock"
    lock.parent.mkdir(parents=True)
    lock.write_text("")
    old = time.time() - 7200
    os.utime(lock, (old, old))
    free = home / ".cache/flashinfer/tmp/sampling.lock"
    free.parent.mkdir()
    free.write_text("")
    os.utime(free, (old, old))
    facts = {
        "caches": cache_facts(machine(tmp_path), []),
        "toolkit": toolkit_facts(machine(tmp_path, CUDA_HOME=str(toolkit(tmp_path / "cuda-13.0", "13.0.1")))),
    }
    found = diagnose(facts)
    stale = [item for item in found if item.code == "cache-lock-stale"]
    assert [str(lock) in item.found for item in stale] == [True]
    assert "/usr/local/cuda-12.8" in next(item for item in found if item.code == "cache-of-another-toolkit").found
    hidden = next(item for item in found if item.code == "cache-hides-missing-header")
    assert "sampling.so" in hidden.found


def test_libraries_older_than_their_sources(tmp_path):
    source = tmp_path / "site/flashinfer/data/include/a.cuh"
    source.parent.mkdir(parents=True)
    source.write_text("")
    library = tmp_path / "home/.cache/flashinfer/0.6/x.so"
    library.parent.mkdir(parents=True)
    library.write_text("")
    packages = [{"name": "flashinfer-python", "version": "0.6", "location": str(tmp_path / "site")}]
    for age, expected in ((3600, True), (-3600, False)):
        when = source.stat().st_mtime - age
        os.utime(library, (when, when))
        found = {item.code for item in diagnose({"caches": cache_facts(machine(tmp_path), packages)})}
        assert ("cache-older-than-source" in found) is expected


# --- the engine's interpreter ---


def test_engines_packages_are_asked_in_its_interpreter(tmp_path):
    site = tmp_path / "site"
    for tree, version in (("a", "0.5.12"), ("b", "0.5.9")):
        info = site / tree / f"sglang-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n")
    (site / "a" / "torch.py").write_text(
        "__version__ = '2.11.0+cu130'\n"
        "class version: cuda = '13.0'\n"
        "class _C: pass\n"
        "class cuda:\n"
        "    @staticmethod\n"
        "    def is_available():\n"
        "        import warnings\n"
        "        warnings.warn('CUDA initialization: driver too old (found version 12080)')\n"
        "        return False\n"
    )
    here = machine(tmp_path, PYTHONPATH=f"{site}/a:{site}/b")
    facts = probe(sys.executable, machine=here)["python"]
    assert facts["error"] is None
    assert [item["version"] for item in facts["packages"] if item["name"] == "sglang"] == ["0.5.12", "0.5.9"]
    assert facts["torch"]["cuda"] == "13.0"
    assert "12080" in facts["torch"]["warnings"][0]


def test_interpreter_that_does_not_answer_is_a_finding(tmp_path):
    broken = script(tmp_path / "python", "echo no module named encodings >&2; exit 1\n")
    facts = probe(str(broken), machine=machine(tmp_path))
    finding = next(item for item in diagnose(facts) if item.code == "engine-python-broken")
    assert "encodings" in finding.found


# --- nothing that says who or where ---


def test_names_and_homes_are_removed():
    facts = {"a": "/home/alice/x", "b": ["node17.example.org runs /root/y", "alice@node17"], "/root/k": "/rooted"}
    clean = scrub(facts, home="/root", host="node17.example.org", user="alice")
    text = json.dumps(clean)
    assert "alice" not in text and "node17" not in text
    assert clean["a"] == "~/x"
    assert clean["~/k"] == "/rooted"
    assert "~/y" in clean["b"][0]


def test_facts_of_this_machine_fit_their_schema_and_name_nobody(tmp_path):
    facts = probe(sys.executable, str(tmp_path), prove=False)
    jsonschema.validate(facts, read_json(SCHEMA))
    path = tmp_path / "facts.json"
    write_json(path, facts)
    assert read_facts(path) == json.loads(path.read_text())
    text = path.read_text()
    assert f'"{Path.home()}/' not in text
    assert not re.search(rf"(?<![\w.-]){re.escape(os.uname().nodename)}(?![\w-])", text)


def test_facts_of_another_shape_are_refused_with_all_faults(tmp_path):
    path = tmp_path / "facts.json"
    write_json(path, {"schema_version": 7, "host": 3})
    with pytest.raises(
        ValueError, match=r"(?s)facts\.json.*toolkit.*host: 3 is not of type.*schema_version: 1 was expected"
    ):
        read_facts(path)


def test_check_writes_both_files_for_a_plan(tmp_path):
    write_json(
        tmp_path / "plan.json", plan(arm("tp1", tp_size=1), machine={"device": "cpu"}, model={"maker": "tiny-kimi"})
    )
    findings = check(tmp_path / "plan.json", tmp_path / "facts.json", tmp_path / "environment.json", sys.executable)
    written = read_json(tmp_path / "environment.json")
    jsonschema.validate(written, read_json(SCHEMAS / "environment.schema.json"))
    jsonschema.validate(read_json(tmp_path / "facts.json"), read_json(SCHEMA))
    assert written["stopped_arms"] == []
    assert written["experiment"] == "test"
    assert [item["code"] for item in written["findings"]] == [item.code for item in findings]
    assert sum(written["counts"].values()) == len(findings)
