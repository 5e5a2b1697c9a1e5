"""What is asked of the server beside the load: identity, idleness, cache flush, counters. Never while a point runs."""

from __future__ import annotations

import hashlib
import json
import socket
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy would be part of the measurement
IDENTITY_KEYS = ("model_path", "served_model_name", "version", "random_seed", "tp_size", "pp_size", "ep_size", "port")


class ServerError(RuntimeError):
    """The server did not answer a control request as it should."""


@dataclass(frozen=True)
class Flush:
    """Whether the cache is known to be empty, after how many tries, and what the server said otherwise."""

    done: bool
    tries: int
    reason: str | None = None


class Server:
    """Control requests to one server. `kind` is `sglang` or `openai`; the latter has no counters and no flush."""

    def __init__(
        self, base_url: str, kind: str = "openai", api_key: str | None = None, timeout_s: float = 20.0
    ) -> None:
        self.base_url = base_url.rstrip("/").removesuffix("/v1")
        self.kind = kind
        self._api_key = api_key
        self._timeout_s = timeout_s

    def _ask(self, path: str, body: Mapping[str, Any] | None = None, method: str | None = None) -> tuple[int, bytes]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base_url + path, data=data, method=method)
        request.add_header("Content-Type", "application/json")
        if self._api_key:
            request.add_header("Authorization", f"Bearer {self._api_key}")
        try:
            with _DIRECT.open(request, timeout=self._timeout_s) as reply:
                return reply.status, reply.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except (OSError, ValueError) as error:
            raise ServerError(f"{path}: {_why(error)}") from error

    def get(self, path: str) -> Any:
        """Return the JSON at `path`, or None when the server has no such page."""
        status, data = self._ask(path)
        if status != 200:
            return None
        try:
            return json.loads(data)
        except ValueError as error:
            raise ServerError(f"{path}: not JSON: {data[:80]!r}") from error

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        status, data = self._ask(path, body)
        if status != 200:
            raise ServerError(f"{path}: HTTP {status}: {data[:200].decode('utf-8', 'replace')}")
        return json.loads(data)

    def info(self) -> dict[str, Any] | None:
        """Return SGLang's server_info (new name first), None where there is none."""
        if self.kind != "sglang":
            return None
        for path in ("/server_info", "/get_server_info"):
            found = self.get(path)
            if isinstance(found, dict):
                return found
        return None

    def first_model(self) -> str:
        """Return the first model that /v1/models lists; ServerError says why there is none."""
        status, data = self._ask("/v1/models")
        if status in (401, 403):
            raise ServerError(
                f"/v1/models: HTTP {status}, the server wants an API key: put it into an environment variable and name "
                "that with --api-key-env (or it is the wrong one)"
            )
        if status not in (200, 404, 405):
            raise ServerError(f"/v1/models: HTTP {status}: {data[:200].decode('utf-8', 'replace')}")
        try:
            return str(json.loads(data)["data"][0]["id"])
        except (ValueError, LookupError, TypeError):
            raise ServerError("the server lists no model: name it with --model") from None

    def requests_in_flight(self) -> int | None:
        """Return running plus waiting requests of all ranks, or None when the server does not tell."""
        if self.kind != "sglang":
            return None
        loads = self.get("/v1/loads?include=core")
        if isinstance(loads, dict) and isinstance(loads.get("loads"), list):
            return sum(
                int(one.get("num_running_reqs", 0)) + int(one.get("num_waiting_reqs", 0)) for one in loads["loads"]
            )
        loads = self.get("/get_load")
        if isinstance(loads, list):
            return sum(int(one.get("num_reqs", 0)) for one in loads)
        return None

    def wait_idle(self, limit_s: float, alive: Callable[[], str | None]) -> int | None:
        """Wait until nothing is in flight; return what still is at the limit (None: the server does not tell)."""
        until = time.monotonic() + limit_s
        while (count := self.requests_in_flight()) and time.monotonic() < until and alive() is None:
            time.sleep(0.1)
        return count

    def flush(self, limit_s: float, alive: Callable[[], str | None]) -> Flush:
        """Empty the prefix cache. SGLang answers 200 only when it did, and 400 while requests run: then ask again."""
        until = time.monotonic() + limit_s
        tries = 0
        reason = "not tried"
        while True:
            tries += 1
            try:
                status, data = self._ask("/flush_cache", method="POST")
            except ServerError as error:
                return Flush(False, tries, str(error))
            if status == 200:
                return Flush(True, tries)
            reason = f"HTTP {status}: {data[:200].decode('utf-8', 'replace').strip()}"
            if status in (401, 403, 404, 405) or time.monotonic() >= until or alive() is not None:
                return Flush(False, tries, reason)
            time.sleep(0.2)

    def can_tokenize(self, model: str) -> bool:
        try:
            return bool(self.post("/tokenize", {"model": model, "prompt": "a b"}).get("tokens"))
        except (ServerError, ValueError, AttributeError):
            return False

    def vocabulary(self) -> int | None:
        for path in ("/model_info", "/get_model_info"):
            found = self.get(path)
            if isinstance(found, dict) and isinstance(found.get("vocab_size"), int):
                return found["vocab_size"]
        return None


def _why(error: Exception) -> str:
    """Say in words what kept us from an answer."""
    reason = getattr(error, "reason", error)
    if isinstance(reason, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {reason.verify_message}"
    if isinstance(reason, ssl.SSLError):
        return f"no TLS ({reason.reason or reason}): does this port speak plain http?"
    if isinstance(reason, TimeoutError):
        return f"no answer in time ({reason})"
    if isinstance(reason, socket.gaierror):
        return f"unknown host: {reason.strerror}"
    if isinstance(reason, OSError) and reason.strerror:
        return f"no connection: {reason.strerror}"
    return str(reason) or type(reason).__name__


def identity(info: Mapping[str, Any] | None) -> str | None:
    """Return a digest of what tells one server process from another.

    SGLang draws `random_seed` anew at each start unless it is set, which makes it the best single mark.
    """
    if info is None:
        return None
    marks = json.dumps({key: info.get(key) for key in IDENTITY_KEYS}, sort_keys=True, default=str)
    return hashlib.sha256(marks.encode()).hexdigest()[:16]


def max_running_requests(info: Mapping[str, Any] | None) -> int | None:
    """Return how many requests the server runs at once over all data-parallel ranks, as it says itself."""
    states = _states(info)
    effective = [state.get("effective_max_running_requests_per_dp") for state in states]
    if effective and all(isinstance(value, int) for value in effective):
        return sum(effective)
    value = (info or {}).get("max_running_requests")
    return value if isinstance(value, int) else None


def acceptance_length(info: Mapping[str, Any] | None) -> float | None:
    """Return the server's mean acceptance length since its counters were reset (a flush resets them).

    With several data-parallel ranks the server gives ratios without weights: their mean is used when they agree within
    a tenth, else None.
    """
    values = [state.get("avg_spec_accept_length") for state in _states(info)]
    known = [float(value) for value in values if isinstance(value, int | float) and value > 0]
    if not known or max(known) > 1.1 * min(known):
        return None
    return sum(known) / len(known)


def _states(info: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    states = (info or {}).get("internal_states") or []
    return [state for state in states if isinstance(state, Mapping)]
