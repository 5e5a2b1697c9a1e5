"""Running the proofs. Everything happens in a temporary folder; nothing outside it is written."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reckoning.environment.probing.machine import CommandResult, Machine
from reckoning.serverlog import read_log

SOURCES = Path(__file__).resolve().parent
COMPILE_S, RUN_S, PEERS_S, FLASHINFER_S = 180.0, 60.0, 90.0, 420.0


def prove(
    machine: Machine,
    facts: Mapping[str, Any],
    *,
    architectures: Sequence[tuple[int, int]] = (),
    engine_python: str | None = None,
    on_gpus: bool = True,
) -> dict[str, Any] | None:
    """Compile, link and run for the GPUs in `facts`, and compile for `architectures` too; return what happened.

    Each step is `{done, ok, seconds, error}`; a step that needs an earlier one that failed is not done. `error` is the
    compiler's first error line. None when there is neither a GPU nor an architecture to compile for.
    """
    present = _present(facts) if on_gpus else []
    targets = sorted({item for item in [*present, *architectures] if item})
    toolkit = facts["toolkit"]
    nvcc = next((item for item in toolkit["nvccs"] if item["used"] and item["release"]), None)
    if not targets or nvcc is None:
        return None
    flags = [f"-gencode=arch={name.replace('sm', 'compute', 1)},code={name}" for name in map(_target, targets)]
    home = str(toolkit["cuda_home"])
    with tempfile.TemporaryDirectory(prefix="reckoning-proof-") as folder:
        bench = _Bench(machine, Path(folder), nvcc["path"], home, flags)
        steps = {"compile": bench.compile("arithmetic.cu"), "compile_sampling": bench.compile("sampling.cu")}
        steps["link"] = bench.link("arithmetic.o") if steps["compile"]["ok"] else _not_done()
        if any(present):
            steps["run"] = bench.run("arithmetic.cu", RUN_S) if steps["compile"]["ok"] else _not_done()
            several = len(present) > 1 and steps["run"]["ok"]
            steps["peers"] = bench.run("peers.cu", PEERS_S) if several else _not_done()
            if engine_python and _has_flashinfer(facts):
                steps["flashinfer"] = bench.flashinfer(engine_python)
    return {"targets": [_target(item) for item in targets], "cuda_home": home, "nvcc": nvcc["path"], "steps": steps}


class _Bench:
    """One temporary folder in which sources are compiled with the flags of the GPUs that are here."""

    def __init__(self, machine: Machine, folder: Path, nvcc: str, home: str, flags: list[str]) -> None:
        self.machine, self.folder, self.nvcc, self.home, self.flags = machine, folder, nvcc, home, flags

    def compile(self, source: str) -> dict[str, Any]:
        """Compile to an object with the include folder that the JIT adds."""
        target = self.folder / Path(source).with_suffix(".o")
        include = [] if self.home == "/usr" else ["-isystem", f"{self.home}/include"]
        argv = [
            self.nvcc,
            "-c",
            *self.flags,
            *include,
            "--compiler-options=-fPIC",
            str(SOURCES / source),
            "-o",
            str(target),
        ]
        return _step(self._run(argv, COMPILE_S))

    def link(self, name: str) -> dict[str, Any]:
        """Link as FlashInfer's build file does: with $CUDA_HOME/lib64, its stubs, and no other folder."""
        compiler = self.machine.variable("CXX") or "c++"
        extra = (self.machine.variable("FLASHINFER_EXTRA_LDFLAGS") or "").split()
        folders = [f"-L{self.home}/lib64", f"-L{self.home}/lib64/stubs"]
        argv = [compiler, str(self.folder / name), "-shared", *folders, "-lcudart", "-lcuda", *extra]
        return _step(self._run([*argv, "-o", str(self.folder / "linked.so")], COMPILE_S))

    def run(self, source: str, limit_s: float) -> dict[str, Any]:
        """Build a program (with the static runtime) and run it; its JSON lines are kept as `output`."""
        program = self.folder / Path(source).stem
        built = self._run([self.nvcc, *self.flags, str(SOURCES / source), "-o", str(program)], COMPILE_S)
        if not built.ok:
            return _step(built)
        result = self._run([str(program)], limit_s)
        return {**_step(result), "output": _json_lines(result.output)}

    def flashinfer(self, python: str) -> dict[str, Any]:
        """Compile and use FlashInfer's sampling kernels with an empty cache."""
        environ = {"FLASHINFER_WORKSPACE_BASE": str(self.folder), "TVM_FFI_CACHE_DIR": str(self.folder / "tvm-ffi")}
        argv = [python, str(SOURCES / "flashinfer_op.py")]
        result = self.machine.run(argv, FLASHINFER_S, environ=environ, folder=self.folder)
        lines = _json_lines(result.output)
        step = {**_step(result), "output": lines}
        if step["ok"] and not (lines and lines[-1].get("right")):
            step.update(ok=False, error="the kernel drew another token than the only possible one")
        return step

    def _run(self, argv: list[str], limit_s: float) -> CommandResult:
        return self.machine.run(argv, limit_s, folder=self.folder)


def _step(result: CommandResult) -> dict[str, Any]:
    error = None
    if not result.ok:
        error = (
            f"no answer within {result.seconds:.0f} s"
            if result.timed_out
            else first_error(result.output + result.errors)
        )
        error = error or f"exit code {result.code}"
    return {
        "done": True,
        "ok": result.ok,
        "timed_out": result.timed_out,
        "seconds": round(result.seconds, 1),
        "error": error,
    }


def first_error(text: str) -> str | None:
    """Return the line that names the cause in a compiler's, linker's or Python's output."""
    text = text.replace(f"{SOURCES}/", "")
    cause = read_log(text).cause
    if cause and cause.class_ != "unknown":
        return cause.evidence[:500]
    lines = [line for line in text.splitlines() if re.search(r"\b(?:error|fatal|Error)\b", line)]
    return (lines or [cause.evidence if cause else None])[0]


def _json_lines(text: str) -> list[dict[str, Any]]:
    found = []
    for line in text.splitlines():
        try:
            value = json.loads(line)
        except json.JSONDecodeError:
            if line.startswith("{"):  # the pair in whose copy the program hung: its line was never finished
                found.append({"unfinished": line.rstrip(", ")})
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def _not_done() -> dict[str, Any]:
    return {"done": False, "ok": False, "timed_out": False, "seconds": 0.0, "error": None}


def _present(facts: Mapping[str, Any]) -> list[tuple[int, int] | None]:
    """Return the capability of each GPU, as nvidia-smi or, where there is none, torch knows it."""
    gpus = facts["driver"]["gpus"]
    if gpus:
        return [_capability(gpu.get("compute_cap")) for gpu in gpus]
    devices = ((facts.get("python") or {}).get("torch") or {}).get("devices") or []
    return [(device["capability"][0], device["capability"][1]) for device in devices]


def _capability(text: str | None) -> tuple[int, int] | None:
    found = re.fullmatch(r"(\d+)\.(\d+)", text or "")
    return (int(found[1]), int(found[2])) if found else None


def _target(capability: tuple[int, int]) -> str:
    """Return the target that FlashInfer compiles for: 90a, 100a, 120f, 121a, and the plain name below 9.0."""
    major, minor = capability
    if major < 9:
        return f"sm_{major}{minor}"
    return f"sm_{major}{minor}{'f' if capability == (12, 0) else 'a'}"


def _has_flashinfer(facts: Mapping[str, Any]) -> bool:
    return any(item["name"] == "flashinfer-python" for item in (facts.get("python") or {}).get("packages") or [])
