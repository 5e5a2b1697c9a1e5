"""The plan as tables for people."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from reckoning.plan.shapes import Arm, Plan

_STYLES = {"runnable": "green", "rejected": "red", "unavailable": "yellow"}
_SHOWN_LAUNCHES = 8
_WIDTH_OF_FILES = 118


def show(plan: Plan, *, every_note: bool = False, console: Console | None = None) -> None:
    """Print the plan: arms with memory and time, what rules say, the order of launches, and the time of the run."""
    if console is None:
        console = Console(highlight=False)
        console = console if console.is_terminal else Console(highlight=False, width=_WIDTH_OF_FILES)
    console.print(Text(f"{plan.title}  [{plan.experiment}]", style="bold"))
    engine = plan.engine
    console.print(
        f"SGLang {engine['version'] or '(version unknown)'} from {engine['lock'] or engine['python']}, {_machine(plan)}"
    )
    console.print(_arms(plan))
    for line in _problems(plan, every_note):
        console.print(line, soft_wrap=False)
    _show_order(plan, every_note, console)
    _show_time(plan, console)


def _machine(plan: Plan) -> str:
    machine = plan.machine
    if machine["device"] == "cpu":
        return "on a CPU"
    size = f" of {machine['gpu_memory_gib']} GiB" if machine["gpu_memory_gib"] else ""
    return f"{machine['gpus'] or 'unknown number of'} x {machine['gpu_name'] or 'GPU'}{size}"


def _arms(plan: Plan) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("arm", "status", "tp", "pp", "ep"):
        table.add_column(name, no_wrap=True, justify="left" if name in ("arm", "status") else "right")
    for name in ("weights GiB", "KV GiB", "KV tokens", "launch"):
        table.add_column(name, justify="right", no_wrap=True)
    for arm in plan.arms:
        sizes = [str(arm.settings.get(name, 1)) for name in ("tp_size", "pp_size", "ep_size")]
        status = Text(arm.status, style=_STYLES[arm.status])
        table.add_row(Text(arm.name), status, *sizes, *_capacity(arm), _launch(arm))
    return table


def _capacity(arm: Arm) -> tuple[str, str, str]:
    memory = arm.memory
    if memory is None:
        return "-", "-", "-"
    weights = [stage["weights_gib"] for stage in memory["stages"]]
    span = f"{min(weights):.1f}" if len(weights) == 1 else f"{min(weights):.1f}-{max(weights):.1f}"
    pool = memory["kv_pool_gib"]
    return (
        span,
        "-" if pool is None else f"{pool:.1f}",
        "-" if memory["kv_tokens"] is None else f"{memory['kv_tokens']:,}",
    )


def _launch(arm: Arm) -> str:
    if arm.status != "runnable" or arm.time is None:
        return "-"
    minutes, seconds = divmod(round(arm.time["launch_s"]), 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min {seconds:02d} s"


def _problems(plan: Plan, every_note: bool) -> Iterator[Text]:
    """Yield each finding once, with the arms that it concerns."""
    concerned: dict[tuple[str, str, str, str], list[str]] = {}
    for arm in plan.arms:
        for problem in arm.problems:
            if every_note or problem.level != "note":
                key = (problem.level, problem.rule, problem.reason, problem.remedy)
                concerned.setdefault(key, []).append(arm.name)
    order = {"reject": 0, "unavailable": 1, "warn": 2, "note": 3}
    styles = {"reject": "red", "unavailable": "yellow", "warn": "magenta", "note": "dim"}
    for (level, rule, reason, remedy), names in sorted(concerned.items(), key=lambda item: order[item[0][0]]):
        line = Text(f"{level} ", style=styles[level])
        line.append(f"{', '.join(names)}: ", style="bold")
        line.append(f"{reason}. ", style="default").append(f"Remedy: {remedy}. ", style="default")
        yield line.append(f"[{rule}]", style="dim")


def _show_order(plan: Plan, everything: bool, console: Console) -> None:
    if not plan.launches:
        console.print("\nNothing can run.")
        return
    console.print(f"\n{len(plan.launches)} launches in {plan.blocks} randomised blocks (seed {plan.seed}):")
    shown = plan.launches if everything else plan.launches[:_SHOWN_LAUNCHES]
    console.print("  " + ", ".join(f"{launch.arm} ({launch.block})" for launch in shown), end="")
    console.print(" ..." if len(shown) < len(plan.launches) else "")
    count = len(plan.launches[0].points)
    console.print(f"Each launch measures {count} points in an order of its own.")


def _show_time(plan: Plan, console: Console) -> None:
    time = plan.time
    console.print(f"\nTime: {time['text']} in all. Basis: {'; '.join(time['basis'])}.")
    for other in time["what_if"]:
        console.print(f"  with {other['change']}: {other['text']}")
