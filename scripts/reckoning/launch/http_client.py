"""Small blocking requests to one server on this machine: no proxy, no redirect, a deadline on each operation."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Answer:
    """An HTTP status with its body as JSON (or as text when it is none); status 0: no answer, `body` says why."""

    status: int
    body: Any


@dataclass(frozen=True)
class Endpoint:
    """Where the server listens, with the key that it asks for, if any."""

    host: str
    port: int
    api_key: str | None = None

    @property
    def base_url(self) -> str:
        """The server's address for clients."""
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None, *, timeout_s: float) -> Answer:
        """Send one request and return the answer; trouble on the way is an answer with status 0."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)
        headers = {"Content-Type": "application/json"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            response = connection.getresponse()
            text = response.read().decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            return Answer(0, f"{type(error).__name__}: {error}".rstrip(": "))
        finally:
            connection.close()
        try:
            return Answer(response.status, json.loads(text))
        except ValueError:
            return Answer(response.status, text)
