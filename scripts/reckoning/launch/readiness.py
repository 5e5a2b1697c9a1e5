"""Ready means: a real, short generation with sane output, from our own process. A health page proves nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from . import ports, sanity
from .failures import LaunchFailed
from .http_client import Answer, Endpoint
from .server import Server
from .watch import LogWatch, exit_words

POLL_S = 0.2
PROMPTS = ("Describe a small town by the sea in one sentence.", "Name five things that one finds in a kitchen.")
PROBE_TOKENS = 8
INFO_PATHS = ("/server_info", "/get_server_info")
INFO_TIMEOUT_S = 30.0
RETRIED_STATUS = frozenset({429, 500, 502, 503, 504})


@dataclass(frozen=True)
class Generation:
    """Answers to the probing prompts; `ids` is empty where the server gives no token ids."""

    texts: tuple[str, ...]
    ids: tuple[tuple[int, ...], ...]


def generate(endpoint: Endpoint, served_name: str, timeout_s: float) -> Generation | Answer:
    """Ask for short generations, by SGLang's own endpoint or the OpenAI one; a refusal is returned as it came."""
    texts, ids = [], []
    for prompt in PROMPTS:
        sampling = {"max_new_tokens": PROBE_TOKENS, "temperature": 1.0, "ignore_eos": True}
        answer = endpoint.ask("POST", "/generate", {"text": prompt, "sampling_params": sampling}, timeout_s=timeout_s)
        if answer.status == 404:
            message = {"model": served_name, "messages": [{"role": "user", "content": prompt}], "temperature": 1.0}
            body = message | {"max_tokens": PROBE_TOKENS}
            answer = endpoint.ask("POST", "/v1/chat/completions", body, timeout_s=timeout_s)
        if answer.status != 200:
            return answer
        text, tokens = _content(answer.body)
        texts.append(text)
        ids.append(tokens)
    return Generation(tuple(texts), tuple(ids))


def _content(body: Any) -> tuple[str, tuple[int, ...]]:
    if not isinstance(body, dict):
        return "", ()
    if "choices" in body:
        message = (body["choices"] or [{}])[0].get("message") or {}
        return (message.get("content") or message.get("reasoning_content") or message.get("reasoning") or ""), ()
    tokens = body.get("output_ids")
    return body.get("text") or "", tuple(tokens) if isinstance(tokens, list) else ()


def server_info(endpoint: Endpoint, timeout_s: float = INFO_TIMEOUT_S) -> dict[str, Any] | None:
    """Return what the server says of itself, or None when it has no such page."""
    for path in INFO_PATHS:
        answer = endpoint.ask("GET", path, timeout_s=timeout_s)
        if answer.status == 200 and isinstance(answer.body, dict):
            return answer.body
    return None


class Attempt(threading.Thread):
    """One generation in the background: a first request can take minutes, and the log must be watched meanwhile."""

    def __init__(self, endpoint: Endpoint, served_name: str, timeout_s: float) -> None:
        super().__init__(daemon=True, name="ready-probe")
        self.call = lambda: generate(endpoint, served_name, timeout_s)
        self.result: Generation | Answer | None = None

    def run(self) -> None:
        """Ask."""
        self.result = self.call()


def wait_until_ready(
    server: Server,
    log: LogWatch,
    endpoint: Endpoint,
    served_name: str,
    *,
    limits: Mapping[str, float],
    say: Callable[[str], None],
) -> Generation:
    """Wait for a sane generation and return it; raise LaunchFailed when the server dies, stalls, or answers wrongly.

    Time is given as long as the log grows: the wait ends after `start_stall_s` without a new line, in any case after
    `start_total_s`. The last stage is in the message.
    """
    attempt: Attempt | None = None
    last: Answer | None = None
    while True:
        reading = log.poll()
        say(reading.last_stage or "process start")
        if server.exited.is_set():
            raise LaunchFailed(
                "exited" if (server.code or 0) >= 0 else "killed",
                f"the server ended while it started ({exit_words(server.code)})",
                "read the excerpt of its log; run the command by hand to see more",
                evidence=exit_words(server.code),
                exit_code=server.code,
            )
        if attempt is None and ports.listening([endpoint.port]):
            _check_listener(server, endpoint.port)
            attempt = Attempt(endpoint, served_name, limits["start_total_s"])
            attempt.start()
        elif attempt and not attempt.is_alive():
            if isinstance(attempt.result, Generation):
                check_sanity(attempt.result)
                return attempt.result
            last, attempt = attempt.result, None
            _check_refusal(last)
        _check_time(log, limits, reading.last_stage, attempt, last)
        server.exited.wait(POLL_S)


def _check_listener(server: Server, port: int) -> None:
    """Whoever listens must be our server: an old one would answer just as well."""
    pids = ports.listeners(port)
    ours = set(server.processes())
    if pids and not ours.intersection(pids):
        raise LaunchFailed(
            "port-in-use",
            f"port {port} is answered by {ports.owner(port)}, which is not the server of this launch",
            f"end process {pids[0]} if it is an old server of yours, then run the same command again",
            evidence=f"listener pid {pids[0]}",
            from_log=False,
        )


def check_sanity(generation: Generation) -> None:
    fault = sanity.fault_of(generation.texts, generation.ids)
    if fault:
        raise LaunchFailed(
            "garbage-output",
            f"the server answers, but with garbage: {fault}",
            "not measured; on PCIe machines try --disable-custom-all-reduce and NCCL_P2P_DISABLE=1, then check the "
            "weights and their quantisation",
            evidence=fault,
            from_log=False,
        )


def _check_refusal(answer: Answer | None) -> None:
    if answer is None or answer.status == 0 or answer.status in RETRIED_STATUS:
        return
    if answer.status in (401, 403):
        raise LaunchFailed(
            "needs-api-key",
            f"the server lives and needs an API key (HTTP {answer.status})",
            "give --api-key in the arm's settings; the launcher and the load then use it",
            evidence=f"HTTP {answer.status}",
            from_log=False,
        )
    raise LaunchFailed(
        "bad-answer",
        f"a short generation was answered with HTTP {answer.status}: {str(answer.body)[:200]}",
        "check the model name and the server's endpoints",
        evidence=f"HTTP {answer.status}",
    )


def _check_time(
    log: LogWatch, limits: Mapping[str, float], stage: str | None, attempt: Attempt | None, last: Answer | None
) -> None:
    quiet, total = log.quiet_s, log.clock()
    if quiet <= limits["start_stall_s"] and total <= limits["start_total_s"]:
        return
    where = f"last stage: {stage or 'process start'}"
    doing = "a first generation is without an answer" if attempt else "the server does not listen yet"
    if last and not attempt:
        answer = "no answer" if last.status == 0 else f"HTTP {last.status}"
        doing = f"the last generation got {answer} ({str(last.body)[:120]})"
    if quiet > limits["start_stall_s"]:
        raise LaunchFailed(
            "stall",
            f"the log has not grown for {quiet:.0f} s; {where}; {doing}",
            "a hang in the distributed start points to NCCL or P2P (NCCL_P2P_DISABLE=1, --disable-custom-all-reduce, "
            "IOMMU / ACS); raise limits.start_stall_s if this stage is only slow",
            evidence=where,
        )
    raise LaunchFailed(
        "start-timeout",
        f"not ready after {total:.0f} s although the log still grows; {where}; {doing}",
        "raise limits.start_total_s; keep the JIT caches between launches",
        evidence=where,
    )


def wait_while_busy(endpoint: Endpoint, limit_s: float, alive: Callable[[], str | None]) -> float:
    """Wait while the server's health page says 503, at most `limit_s`; return the seconds waited."""
    begun = time.monotonic()
    while time.monotonic() - begun < limit_s and alive() is None:
        if endpoint.ask("GET", "/health", timeout_s=INFO_TIMEOUT_S).status != 503:
            break
        time.sleep(POLL_S)
    return time.monotonic() - begun
