"""One launch from its start to its outcome. Whatever the server does wrong is an outcome; a broken machine raises."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from reckoning.engine import read_proof
from reckoning.files import write_json
from reckoning.load.crosscheck import Runner
from reckoning.plan.devices import ordinals_of
from reckoning.serverlog import LogReading

from . import arguments, attempts, command, gpu_memory, ports, readiness, telemetry
from .failures import LaunchFailed, describe, without_secrets
from .http_client import Answer, Endpoint
from .machine_lock import ending_with_the_run, machine_lock
from .measuring import Hooks, measure, target_of
from .outcome import Launch, environment_failure, publish
from .progress import Progress, finished, left_s, place_of
from .reaper import reap
from .sampler import Order
from .server import CannotStart, Server, StopReport
from .watch import LogWatch, Monitor

DEFAULT_LIMITS = {
    "start_stall_s": 600.0,
    "start_total_s": 3600.0,
    "request_idle_s": 300.0,
    "request_total_s": 3600.0,
    "stop_grace_s": 60.0,
    "release_s": 120.0,
    "max_attempts": 2,
    "log_mib": 64,
    "telemetry_s": 1.0,
    "cooldown_s": 0.0,
}
# Chance, not the arm: another try can end otherwise. All else would fail again, and an arm that fails is a result.
RETRIED = frozenset({"port-in-use", "killed"})


def run_launch(  # noqa: PLR0917 - the contract of architecture.md
    plan: dict[str, Any],
    engine: dict[str, Any],
    environment: dict[str, Any] | None,
    arm: str,
    block: int,
    folder: Path,
    *,
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Run the launch of `arm` in `block`, write its files into `folder` (outcome.json last), and return the outcome.

    The server runs under a guardian, so that nothing of it outlives this process. Whatever the server does wrong gives
    an outcome with `status` "failed". Raises MachineBusy when another experiment has this machine, and KeyError when
    the plan has no such launch.
    """
    folder = Path(folder)
    place = place_of(plan, arm, block)
    entry = next(item for item in plan["arms"] if item["slug"] == arm)
    launch = next(item for item in plan["launches"] if (item["arm"], item["block"]) == (arm, block))
    limits = DEFAULT_LIMITS | {key: value for key, value in plan.get("limits", {}).items() if value is not None}
    root = folder.parent.parent
    begun = time.monotonic()
    done = finished(plan, root)
    speak = Progress(
        place, progress or (lambda _text: None), lambda: left_s(plan, done, (arm, block), time.monotonic() - begun)
    )

    with ending_with_the_run(), machine_lock(plan["experiment"], root.parent, progress=speak.say) as lock:
        reaped = reap(progress=speak.say)
        while True:
            attempt = attempts.begin(folder, launch.get("digest", ""))
            state = Launch(plan, engine, entry, launch, folder, limits)
            for one in reaped:
                state.find(
                    "abandoned-launch",
                    "warn" if one.left else "note",
                    f"{one.found} processes of an interrupted launch ({one.label}) were still alive and were ended"
                    + (f"; {list(one.left)} could not be ended" if one.left else ""),
                )
            reaped = []
            blocked = environment_failure(environment, arm)
            if blocked:
                state.failure = blocked
            else:
                _attempt(state, attempt, lock, speak)
            failed = state.failure["class"] if state.failure else None
            final = failed not in RETRIED or len(_completed(folder)) + 1 >= limits["max_attempts"]
            attempt.end("failed" if failed else "ok", failed, final=final)
            if final:
                return publish(state, attempt)
            attempt.save()
            speak(f"attempt failed ({failed}), trying again")


def _completed(folder: Path) -> list[attempts.Attempt]:
    """Attempts that ended by themselves: an interruption is not the arm's fault and uses up no try."""
    return [one for one in attempts.read(folder) if one.note.get("ended_at")]


def _attempt(state: Launch, attempt: attempts.Attempt, lock: int, speak: Progress) -> None:
    """Start, measure and stop the server once; failures end in `state.failure`."""
    log = LogWatch(attempt.log, state.clock)
    memory = _gpu_memory_before(state)
    server: Server | None = None
    scratch = Path(tempfile.mkdtemp(prefix="reckoning-"))
    failed: LaunchFailed | None = None
    reading: LogReading | None = None
    sampling: telemetry.Sampling | None = None
    try:
        with ExitStack() as stack:
            port_plan = _reserve_ports(state, stack)
            server = _start(state, attempt, port_plan, scratch=scratch, lock=lock, stack=stack)
            if state.limits["telemetry_s"]:
                sampling = stack.enter_context(_sampling(state, attempt, server))
            endpoint = _endpoint(state)
            served_name = state.plan["model"].get("served_name") or ""
            try:
                readiness.wait_until_ready(server, log, endpoint, served_name, limits=state.limits, say=speak)
                state.durations["start_s"] = state.clock()
                _check_patches(state, attempt)
                _look_at_server(state, attempt, endpoint)
                _measure(state, attempt, server, log, endpoint=endpoint, served_name=served_name, speak=speak)
            except LaunchFailed as error:
                failed, reading = error, _read_now(log, error)
            speak("stopping")
            begun = state.clock()
            report = server.stop(state.limits["stop_grace_s"])
            state.durations["stop_s"] = state.clock() - begun
        _check_nothing_left(state, report, port_plan, memory)
        if state.limits["cooldown_s"]:
            speak("cooling down")
            time.sleep(float(state.limits["cooldown_s"]))
    except LaunchFailed as error:
        failed = error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        state.stages = log.stages
        if sampling and sampling.trouble:
            state.find("telemetry-incomplete", "note", sampling.trouble)
    if failed:
        # The last words of a server that died came with its end. One that lived has since logged how we stopped it.
        if failed.exit_code is not None or reading is None:
            reading = _read_now(log, failed)
        state.failure = describe(failed, reading, state.secrets)


def _read_now(log: LogWatch, failed: LaunchFailed) -> LogReading:
    log.poll()
    return log.reading(stalled=failed.class_ == "stall", exit_code=failed.exit_code)


def _gpu_memory_before(state: Launch) -> gpu_memory.Before:
    before = gpu_memory.before_launch(limit_s=float(state.limits["release_s"]), read=gpu_memory.read_used_mib)
    if before.held:
        state.find("gpu-memory-left", "warn", f"of the launch before, which was interrupted: {before.held}")
    if before.neighbours:
        state.find("gpu-in-use", "warn", before.neighbours)
    return before


def _reserve_ports(state: Launch, stack: ExitStack) -> ports.PortPlan:
    words = state.arm["command"]
    try:
        plan = stack.enter_context(
            ports.reserve(command.fixed_port(words, "--port"), command.fixed_port(words, "--nccl-port"))
        )
    except ports.PortsTaken as error:
        raise LaunchFailed(
            "port-in-use", str(error), "end the process that holds the port", stage="before the start"
        ) from None
    if plan.avoided:
        state.find("port-taken", "note", f"{'; '.join(plan.avoided)}: port {plan.http} is used instead")
    return plan


def _start(
    state: Launch, attempt: attempts.Attempt, port_plan: ports.PortPlan, *, scratch: Path, lock: int, stack: ExitStack
) -> Server:
    python = state.engine.get("python") or sys.executable
    state.port = port_plan.http
    state.command = command.fill(
        state.arm["command"], {"python": python, "port": port_plan.http, "nccl_port": port_plan.nccl}
    )
    overlay = command.overlay_entry(state.engine, state.arm["slug"])
    environment = command.server_environment(
        state.arm.get("env") or {},
        overlay=command.overlay_paths(overlay),
        inherited=os.environ,
        ours=command.settings_of_ours(scratch, os.environ) | dict((overlay or {}).get("env") or {}),
    )
    state.env = environment.ours
    if environment.left_out:
        names = ", ".join(environment.left_out)
        state.find("environment-left-out", "note", f"set in the calling shell and not passed to the server: {names}; "
                   "put what the arm needs into its env")  # fmt: skip
    server = Server(
        state.command,
        environment.full,
        Path.cwd(),
        attempt.log,
        port_plan.all,
        shared=(lock, port_plan.reservation),
        stop_grace_s=state.limits["stop_grace_s"],
        log_limit_bytes=int(state.limits["log_mib"]) << 20,
        label=f"{state.plan['experiment']}/{state.arm['slug']}/block{state.launch['block']}",
    )
    try:
        stack.enter_context(server)
    except CannotStart as error:
        raise LaunchFailed(
            "not-started", f"the command could not be run: {error}", "build the engine again, or correct engine.python",
            stage="before the start",
        ) from None  # fmt: skip
    state.pid = server.identity.pid if server.identity else None
    return server


def _sampling(state: Launch, attempt: attempts.Attempt, server: Server) -> telemetry.Sampling:
    """Return the sampling of the server's processes and of the GPUs that it uses, on the launch's clock."""
    order = Order(
        output=str(attempt.folder / telemetry.SAMPLES),
        zero_s=state.zero,
        every_s=float(state.limits["telemetry_s"]),
        root=server.root,
        ordinals=list(ordinals_of(state.arm.get("settings") or {})) if state.has_gpus else None,
        visible=server.env.get("CUDA_VISIBLE_DEVICES"),
        numbering=server.env.get("CUDA_DEVICE_ORDER"),
    )
    return telemetry.Sampling(order, attempt.folder / telemetry.ERRORS)


def _endpoint(state: Launch) -> Endpoint:
    host = command.option(state.command, "--host") or "127.0.0.1"
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return Endpoint(host, state.port or 0, command.option(state.command, "--api-key"))


def _look_at_server(state: Launch, attempt: attempts.Attempt, endpoint: Endpoint) -> None:
    """Keep the server's own account, and compare it with what was asked."""
    info = readiness.server_info(endpoint)
    if info is None:
        state.find("no-server-info", "note", "the server tells nothing about its arguments: they could not be compared")
        return
    state.server_info = without_secrets(info)
    write_json(attempt.folder / "server_info.json", state.server_info)
    asked, answered = command.option(state.command, "--model-path", "--model"), info.get("model_path")
    if asked and answered and os.path.realpath(asked) != os.path.realpath(answered):
        raise LaunchFailed(
            "wrong-server",
            f"the server on port {state.port} serves {answered}, asked for was {asked}",
            "end the old server on this port, then run the same command again",
            evidence=f"server_info.model_path = {answered}",
            from_log=False,
        )
    state.differences = arguments.differences(state.arm.get("settings") or {}, info)
    for one in state.differences:
        text = "{argument}: requested {requested}, effective {effective} ({note})".format(**one)
        state.find("argument-changed", "warn", text)


def _check_patches(state: Launch, attempt: attempts.Attempt) -> None:
    """The server's log must prove that the arm's patched modules run (see `reckoning.engine.proof`)."""
    overlay = command.overlay_entry(state.engine, state.arm["slug"])
    if overlay is None or "files" not in overlay:
        return
    proof = read_proof(attempt.log.read_text(encoding="utf-8", errors="replace"), overlay)
    if not proof.proven:
        raise LaunchFailed(
            "patch-not-running",
            f"the server does not run the patched tree: {'; '.join(proof.faults[:3])}",
            "look for another copy of the package on the server's path; build the engine again",
            evidence=proof.faults[0],
            from_log=False,
        )


def _measure(
    state: Launch,
    attempt: attempts.Attempt,
    server: Server,
    log: LogWatch,
    *,
    endpoint: Endpoint,
    served_name: str,
    speak: Progress,
) -> None:
    def probe() -> str | None:
        answer = readiness.generate(endpoint, served_name, float(state.limits["request_idle_s"]))
        # Any answer is a sign of life: a server that is busy says 503, and must not be given up for it.
        return str(answer.body)[:120] if isinstance(answer, Answer) and answer.status == 0 else None

    def wait_while_busy() -> None:
        waited = readiness.wait_while_busy(endpoint, float(state.limits["request_idle_s"]), monitor.verdict)
        state.find("busy", "warn", f"the server refused requests; its health page was back after {waited:.1f} s")

    monitor = Monitor(server, log, probe, float(state.limits["request_idle_s"]))
    monitor.start()
    begun = state.clock()
    try:
        state.measurement = measure(
            state.plan,
            state.launch,
            target_of(state.plan, endpoint, served_name, state.server_info),
            Hooks(monitor.verdict, speak, attempt.keep_point, wait_while_busy),
            launch_clock_start=state.zero,
            runner=Runner(state.command[0], attempt.folder / "bench_serving", dict(server.env)),
            raw_folder=attempt.folder / "raw",
        )
    finally:
        monitor.finish()
    took = state.clock() - begun
    state.durations |= {"warmup_s": state.measurement.warmup_s, "measure_s": took - (state.measurement.warmup_s or 0.0)}
    died = monitor.verdict()
    if died:
        raise LaunchFailed(
            "stall" if monitor.stalled else "exited" if (server.code or 0) >= 0 else "killed",
            f"{died} while it was measured",
            "points measured before stand; see the excerpt of the log",
            stage="measuring",
            evidence=died,
            exit_code=server.code,
        )
    _check_after(state, endpoint, served_name)


def _check_after(state: Launch, endpoint: Endpoint, served_name: str) -> None:
    """The server must still give sane output at the end, and at least one point must have been measured."""
    after = readiness.generate(endpoint, served_name, float(state.limits["request_idle_s"]))
    if isinstance(after, readiness.Generation):
        readiness.check_sanity(after)
    else:
        got = f"HTTP {after.status}" if after.status else "no answer"
        state.find("no-answer-at-end", "warn", f"after the last point: {got} to a generation ({str(after.body)[:120]})")
    if state.launch["points"] and not state.measurement.measured:
        reasons = sorted({str(point.get("reason")) for point in state.measurement.points})
        raise LaunchFailed(
            "no-point-measured",
            f"the server lived, but none of its points could be measured: {'; '.join(reasons[:3])}",
            "see the classes of endings in points.json",
            stage="measuring",
        )


def _check_nothing_left(
    state: Launch, report: StopReport, port_plan: ports.PortPlan, memory: gpu_memory.Before
) -> None:
    """Wait, within bounds, until ports and GPU memory are as before; what stays is a finding."""
    if report.killed:
        names = ", ".join(f"{name} ({pid})" for pid, name in report.killed[:5])
        state.find("killed-at-stop", "note", f"did not end by itself within the grace time and was killed: {names}")
    if report.left:
        names = ", ".join(f"{name} ({pid})" for pid, name in report.left)
        state.find("processes-left", "warn", f"could not be ended: {names}")
    deadline = time.monotonic() + float(state.limits["release_s"])
    while (busy := ports.listening(port_plan.all)) and time.monotonic() < deadline:
        time.sleep(0.2)
    if busy:
        state.find(
            "ports-left", "warn", "; ".join(f"port {port} is still held by {ports.owner(port)}" for port in busy)
        )
    held = gpu_memory.after_launch(memory, limit_s=float(state.limits["release_s"]), read=gpu_memory.read_used_mib)
    if held:
        state.find("gpu-memory-left", "warn", held)
