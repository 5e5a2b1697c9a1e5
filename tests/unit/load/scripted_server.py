"""A small server that does exactly what a script says: real sockets, own thread, nothing shared with the client's code.

A script is a list of steps for one request: bytes are written, a number is a pause in seconds, and the words `close`,
`reset` and `hang` do what they say. `sse` and `chat` build the usual ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterable
from typing import Any

Step = bytes | float | str
Script = Callable[[int, dict[str, Any]], list[Step]]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def sse(message: Any) -> bytes:
    text = message if isinstance(message, str) else json.dumps(message)
    return chunk(f"data: {text}\n\n".encode())


def delta(text: str | None = None, *, usage: int | None = None, finish: str | None = None, **channels: Any) -> dict:
    fields = {"content": text} if text is not None else {}
    message: dict[str, Any] = {"choices": [{"index": 0, "delta": fields | channels, "finish_reason": finish}]}
    if usage is not None:
        message["usage"] = {"prompt_tokens": 5, "completion_tokens": usage, "total_tokens": 5 + usage}
    return message


def usage_only(tokens: int, prompt: int = 5, cached: int | None = None) -> dict:
    usage: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": tokens}
    if cached is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": cached}
    return {"choices": [], "usage": usage}


def chat(
    tokens: int, *, first_s: float = 0.0, gap_s: float = 0.0, usage: bool = True, finish: str = "stop"
) -> list[Step]:
    """A normal chat answer of `tokens` deltas."""
    steps: list[Step] = [HEAD, sse(delta("", role="assistant"))]
    for n in range(tokens):
        pause = first_s if n == 0 else gap_s
        if pause:
            steps.append(pause)
        steps.append(sse(delta(f" t{n}", usage=n + 1 if usage else None)))
    steps.append(sse(delta(finish=finish)))
    if usage:
        steps.append(sse(usage_only(tokens)))
    return [*steps, sse("[DONE]") + END]


def plain(status: int, body: bytes, reason: str = "Said So") -> list[Step]:
    head = f"HTTP/1.1 {status} {reason}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return [head.encode() + body]


class ScriptedServer:
    """Serves `script(number, body)` for POSTs of prompts; answers SGLang's control requests when `sglang`."""

    def __init__(
        self,
        script: Script,
        *,
        sglang: bool = False,
        flush_status: Iterable[int] = (),
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.script = script
        self.tls = tls
        self.sglang = sglang
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.heads: list[str] = []
        self.control: list[str] = []
        self.open_now = self.most_open = 0
        self.in_flight = self.most_in_flight = 0
        self.connections = 0
        self.flush_status = list(flush_status)
        self.info: dict[str, Any] = {"model_path": "m", "version": "0", "random_seed": 1, "max_running_requests": 1000}
        self.on_flush: Callable[[], None] = lambda: None
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def url(self) -> str:
        return f"{'http' if self.tls is None else 'https'}://127.0.0.1:{self.port}"

    def __enter__(self) -> ScriptedServer:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def shut(self) -> None:
        """Stop listening and reset every connection, as a process that dies does."""
        self._loop.call_soon_threadsafe(self._shut)

    def _shut(self) -> None:
        self._server.close()
        for writer in list(self._writers):
            _reset(writer)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._main())

    async def _main(self) -> None:
        self._stop = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server = await asyncio.start_server(self._client, "127.0.0.1", 0, backlog=2048, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        self._shut()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open_now += 1
        self.most_open = max(self.most_open, self.open_now)
        self._writers.add(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                method, path, _ = head.split(b" ", 2)
                length = next(
                    (int(h.split(b":")[1]) for h in head.split(b"\r\n") if h.lower().startswith(b"content-length")), 0
                )
                body = await reader.readexactly(length)
                if path.startswith((b"/v1/chat", b"/v1/completions", b"/generate")):
                    self.heads.append(head.decode())
                if not await self._answer(method.decode(), path.decode(), body, writer):
                    break
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self.open_now -= 1
            self._writers.discard(writer)
            with contextlib.suppress(Exception):
                writer.close()

    async def _answer(self, method: str, path: str, body: bytes, writer: asyncio.StreamWriter) -> bool:
        if path not in ("/v1/chat/completions", "/v1/completions", "/generate"):
            return await self._play(self._control(method, path), writer)
        message = json.loads(body)
        number = len(self.bodies)
        self.bodies.append(message)
        self.paths.append(path)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return await self._play(self.script(number, message), writer)
        finally:
            self.in_flight -= 1

    def _control(self, method: str, path: str) -> list[Step]:
        self.control.append(path)
        if not self.sglang:
            return plain(404, b"{}")
        if path == "/flush_cache":
            status = self.flush_status.pop(0) if self.flush_status else 200
            if status == 200:
                self.on_flush()
            return plain(status, b"flushed" if status == 200 else b"pending requests")
        if path == "/server_info":
            return plain(200, json.dumps(self.info).encode())
        if path.startswith("/v1/loads"):
            loads = {"loads": [{"num_running_reqs": self.in_flight, "num_waiting_reqs": 0}]}
            return plain(200, json.dumps(loads).encode())
        return plain(404, b"{}")

    async def _play(self, steps: list[Step], writer: asyncio.StreamWriter) -> bool:
        for step in steps:
            if isinstance(step, bytes):
                writer.write(step)
                await writer.drain()
            elif isinstance(step, str):
                if step == "hang":
                    await asyncio.sleep(3600)
                if step == "reset":
                    _reset(writer)
                if step == "die":
                    self._shut()
                return False
            else:
                await asyncio.sleep(step)
        return True


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST instead of FIN."""
    with contextlib.suppress(Exception):
        raw = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
