"""Where the numbers come from, so that no one can mistake a demonstration for a measurement."""

from __future__ import annotations

from dataclasses import dataclass

from reckoning.report.collect import Results


@dataclass(frozen=True)
class Provenance:
    """`kind` as in findings.json or `unknown`; `banner` heads the page; `watermark` lies on every figure (or none)."""

    kind: str
    banner: str
    watermark: str
    machine: str
    measured_at: str
    note: str


_WORDS = {
    "cpu-demonstration": ("CPU demonstration: says nothing about GPUs", "CPU demonstration"),
    "measured": ("Measured", ""),
    "recording": ("Recording of an earlier run, replayed", "recording"),
    "synthetic": ("Synthetic data: invented numbers, not a measurement", "synthetic data"),
    "unknown": ("Origin unknown: the results do not say where these numbers come from", "origin unknown"),
}


def provenance_of(results: Results) -> Provenance:
    """Return the provenance that findings.json states; without it, what the plan's device allows to say."""
    stated = results.findings.get("provenance")
    stated = stated if isinstance(stated, dict) else {}
    machine = results.plan.get("machine") if isinstance(results.plan.get("machine"), dict) else {}
    kind = stated.get("kind")
    if kind not in _WORDS:
        kind = "cpu-demonstration" if machine.get("device") == "cpu" else "unknown"
    # A run on a CPU is never more than a demonstration, whatever a file claims.
    if kind == "measured" and machine.get("device") == "cpu":
        kind = "cpu-demonstration"
    banner, watermark = _WORDS[kind]
    return Provenance(
        kind=kind,
        banner=banner,
        watermark=watermark,
        machine=str(stated.get("machine") or _machine_words(machine)),
        measured_at=str(stated.get("measured_at") or ""),
        note=str(stated.get("note") or ""),
    )


def _machine_words(machine: dict[str, object]) -> str:
    if machine.get("device") == "cpu":
        return "CPU only, no GPU used"
    if machine.get("gpu_name"):
        return f"{machine.get('gpus') or '?'} × {machine['gpu_name']}"
    return ""
