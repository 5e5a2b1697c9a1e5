"""A server that can do each fault on purpose and looks to the launcher like SGLang: pages, stream and log lines.

Standard library only. Usage: scripted_server.py --port P [--fault NAME[=VALUE]]... [--model-path M] [--tp-size N] ...
Unknown options are accepted, as the launcher's command has many. Values are seconds or counts, see FAULTS.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import signal
import socket
import struct
import sys
import time
from pathlib import Path

FAULTS = {
    "never-listen": "logs its start and then only sleeps, silent",
    "listen-late": "listens after VALUE s; logs a line every 0.2 s until then",
    "listen-late-silent": "listens after VALUE s; logs nothing until then",
    "hang-at": "stops for ever after logging VALUE (a log line)",
    "say": "logs VALUE at its start",
    "say-at-post": "logs VALUE at each POST",
    "die-at-start": "exits with code VALUE before it listens",
    "hang-first-post": "the first POST is answered after VALUE s",
    "hang-posts": "no POST is ever answered; /health is 200",
    "die-first-post": "the first POST kills the process",
    "die-at": "dies as soon as VALUE generations are in flight",
    "last-words": "what die-at logs",
    "exit-0-after": "exits with code 0 at the VALUE-th generation",
    "busy": "answers 503 to everything for VALUE s from the first streamed generation on",
    "busy-always": "answers every streamed generation with 503",
    "garbage": "VALUE is bang, repeat or empty: every output is that",
    "garbage-later": "like garbage, from the first streamed generation on",
    "trickle": "VALUE s between tokens",
    "reset": "resets the connection after 3 tokens of every VALUE-th streamed generation",
    "stop-logging": "logs nothing from the first streamed generation on, and works",
    "freeze-after": "from the VALUE-th streamed generation on nothing moves: no token, no log line, no page",
    "ignore-term": "ignores SIGTERM",
    "escape": "at SIGTERM leaves a child in another session that holds the port and ignores SIGTERM",
    "escape-at-once": "the same child is there from the start",
    "fill-log": "writes VALUE MiB of log at the first streamed generation",
    "other-model": "says that it serves VALUE",
    "unauthorised": "answers 401 to all who do not send VALUE as their key",
    "effective": "VALUE is JSON: arguments that differ in server_info",
}


class Script:
    """What was asked for on the command line, and what has happened so far."""

    def __init__(self, arguments: list[str]) -> None:
        parser = argparse.ArgumentParser(allow_abbrev=False)
        parser.add_argument("--port", type=int, required=True)
        parser.add_argument("--host", default="127.0.0.1")
        parser.add_argument("--model-path", default="scripted")
        parser.add_argument("--served-model-name", default="scripted")
        parser.add_argument("--token-ms", type=float, default=2.0)
        parser.add_argument("--fault", action="append", default=[])
        self.options, self.rest = parser.parse_known_args(arguments)
        self.faults = dict(fault.partition("=")[::2] for fault in self.options.fault)
        unknown = set(self.faults) - set(FAULTS)
        if unknown:
            parser.error(f"unknown faults {sorted(unknown)}")
        self.posts = self.streamed = self.in_flight = 0
        self.busy_until = 0.0
        self.frozen = asyncio.Event()

    def value(self, fault: str, default: float = 0.0) -> float:
        """Return a fault's number."""
        return float(self.faults.get(fault) or default)


def log(text: str) -> None:
    """Write a log line as SGLang does."""
    print(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] {text}", flush=True)


def settings_of(words: list[str]) -> dict[str, object]:
    """Return options like `--tp-size 2` as server_info shows them."""
    found: dict[str, object] = {}
    for word, following in itertools.pairwise([*words, "--"]):
        if word.startswith("--"):
            value: object = True if following.startswith("--") else following
            if isinstance(value, str) and value.lstrip("-").isdigit():
                value = int(value)
            found[word[2:].replace("-", "_")] = value
    return found


class Server:
    """The pages and the stream."""

    def __init__(self, script: Script) -> None:
        self.script = script

    async def serve(self) -> None:
        """Start up with the stages that the faults allow, then serve until SIGTERM."""
        script, faults = self.script, self.script.faults
        log("server_args=ServerArgs(model_path='scripted', api_key=None)")
        log("Init torch distributed begin.")
        if "say" in faults:
            log(faults["say"])
        if "hang-at" in faults:
            log(faults["hang-at"])
            await asyncio.sleep(1e6)
        log("Load weight begin. avail mem=90.00 GB")
        if "die-at-start" in faults:
            os._exit(int(script.value("die-at-start", 1)))
        late = time.monotonic() + script.value("listen-late")
        while time.monotonic() < late:
            log("Capturing batches (bs=8 avail_mem=9.00 GB)")
            await asyncio.sleep(0.2)
        await asyncio.sleep(script.value("listen-late-silent"))
        log("Load weight end. type=Scripted, avail mem=80.00 GB")
        if "never-listen" in faults:
            await asyncio.sleep(1e6)
        server = await asyncio.start_server(self.connection, script.options.host, script.options.port)
        if "escape-at-once" in faults:
            self.escape(server.sockets[0])
        log(f"Uvicorn running on http://{script.options.host}:{script.options.port}")
        log("The server is fired up and ready to roll!")
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()

        def terminate() -> None:
            if "ignore-term" in faults:
                log("SIGTERM ignored")
                return
            if "escape" in faults:
                self.escape(server.sockets[0])
            ended.set()

        loop.add_signal_handler(signal.SIGTERM, terminate)
        await ended.wait()

    def escape(self, held: asyncio.trsock.TransportSocket) -> None:
        """Leave a child that is in no session and no group of ours, keeps the port, and hears no SIGTERM."""
        if os.fork() == 0:
            os.setsid()
            if os.fork() != 0:
                os._exit(0)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            Path("/proc/self/comm").write_text("sglang::sched")
            _ = held  # inherited by the fork: the port stays taken
            while True:
                time.sleep(1)

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode().split("\r\n")
                method, path, _ = lines[0].split(" ", 2)
                headers = {key.lower(): value for key, _, value in (line.partition(": ") for line in lines[1:])}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                key = self.script.faults.get("unauthorised")
                if key and headers.get("authorization") != f"Bearer {key}":
                    reply(writer, 401, {"error": "unauthorised"})
                    continue
                await self.answer(method, path.partition("?")[0], json.loads(body) if body else {}, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def answer(self, method: str, path: str, body: dict, writer: asyncio.StreamWriter) -> None:
        """Answer one request, or do what the script says."""
        script, faults = self.script, self.script.faults
        if script.frozen.is_set():
            await asyncio.sleep(1e6)
        if time.monotonic() < script.busy_until:
            return reply(writer, 503, {"error": "busy"})
        if method == "GET":
            return reply(writer, *self.page(path))
        if path == "/flush_cache":
            return reply(writer, 200, {})
        if path not in ("/generate", "/v1/chat/completions"):
            return reply(writer, 404, {"error": "not found"})
        script.posts += 1
        if "say-at-post" in faults:
            log(faults["say-at-post"])
        if "hang-posts" in faults:
            await asyncio.sleep(1e6)
        if script.posts == 1:
            if "die-first-post" in faults:
                log("Scheduler hit an exception: RuntimeError: CUDA error: an illegal memory access was encountered")
                os._exit(1)
            await asyncio.sleep(script.value("hang-first-post"))
        script.in_flight += 1
        try:
            if "die-at" in faults and script.in_flight >= script.value("die-at"):
                log(faults.get("last-words") or "RuntimeError: CUDA error: an illegal memory access was encountered")
                os._exit(1)
            if "exit-0-after" in faults and script.posts >= script.value("exit-0-after"):
                os._exit(0)
            if body.get("stream"):
                return await self.stream(path, body, writer)
            return reply(writer, 200, self.whole(path, body))
        finally:
            script.in_flight -= 1

    def page(self, path: str) -> tuple[int, object]:
        """Return a status and a page."""
        options, faults = self.script.options, self.script.faults
        if path in ("/health", "/health_generate"):
            return 200, {}
        if path == "/v1/models":
            return 200, {"data": [{"id": options.served_model_name}]}
        if path == "/v1/loads":
            waiting = {"num_running_reqs": self.script.in_flight, "num_waiting_reqs": 0}
            return 200, {"loads": [waiting]}
        if path in ("/server_info", "/get_server_info"):
            info = settings_of(self.script.rest) | {
                "model_path": faults.get("other-model", options.model_path),
                "served_model_name": options.served_model_name,
                "port": options.port,
                "version": "0.0.scripted",
                "api_key": "sk-not-for-anybody",
                "internal_states": [{"effective_max_running_requests_per_dp": 64}],
            }
            return 200, info | json.loads(faults.get("effective") or "{}")
        return 404, {"error": "not found"}

    def words(self, count: int, *, streamed: bool) -> list[str]:
        """Return the tokens of an answer."""
        kind = self.script.faults.get("garbage") or (
            self.script.faults.get("garbage-later") if self.later(streamed) else None
        )
        if kind:
            return [{"bang": "!", "repeat": " the", "empty": ""}[kind]] * count
        return [f" word{number % 7}" for number in range(count)]

    def later(self, streamed: bool) -> bool:
        """Whether the load has begun."""
        return streamed or self.script.streamed > 0

    def whole(self, path: str, body: dict) -> dict:
        """Return an answer in one piece."""
        if path == "/generate":
            count = body.get("sampling_params", {}).get("max_new_tokens", 16)
            words = self.words(count, streamed=False)
            ids = [
                0 if word in ("!", "") else 9 if word == " the" else 10 + index % 7 for index, word in enumerate(words)
            ]
            return {"text": "".join(words), "output_ids": ids, "meta_info": {"completion_tokens": count}}
        words = self.words(body.get("max_tokens", 16), streamed=False)
        message = {"role": "assistant", "content": "".join(words)}
        return {"choices": [{"message": message, "finish_reason": "length"}], "usage": usage(len(words))}

    async def stream(self, path: str, body: dict, writer: asyncio.StreamWriter) -> None:
        """Stream an answer as server-sent events, one token an event, usage in each."""
        script, faults = self.script, self.script.faults
        script.streamed += 1
        mine = script.streamed
        if mine == 1:
            if "busy" in faults:
                script.busy_until = time.monotonic() + script.value("busy")
            if "fill-log" in faults:
                for _ in range(int(script.value("fill-log") * 1024)):
                    print("x" * 1023)
        if "busy-always" in faults or time.monotonic() < script.busy_until:
            return reply(writer, 503, {"error": "busy"})
        if "freeze-after" in faults and mine >= script.value("freeze-after"):
            script.frozen.set()
        count = body.get("max_completion_tokens") or body.get("max_tokens") or 8
        if path == "/generate":
            count = body.get("sampling_params", {}).get("max_new_tokens", 8)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        text = ""
        for number, word in enumerate(self.words(count, streamed=True), 1):
            while script.frozen.is_set():
                await asyncio.sleep(1)
            await asyncio.sleep(script.value("trickle") or script.options.token_ms / 1e3)
            text += word
            last = number == count
            if path == "/generate":
                meta = {
                    "completion_tokens": number,
                    "prompt_tokens": 9,
                    "finish_reason": {"type": "length"} if last else None,
                }
                event(writer, {"text": text, "meta_info": meta})
            else:
                choice = {"index": 0, "delta": {"content": word}, "finish_reason": "length" if last else None}
                event(writer, {"choices": [choice], "usage": usage(number)})
            await writer.drain()
            if "reset" in faults and number == 3 and mine % max(int(script.value("reset", 1)), 1) == 0:
                connection: socket.socket = writer.get_extra_info("socket")
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
                raise ConnectionResetError
        event(writer, {"choices": [], "usage": usage(count)})
        event(writer, "[DONE]")
        writer.write(b"0\r\n\r\n")
        if "stop-logging" not in faults and mine % 4 == 0:
            log(
                "Decode batch, #running-req: 4, #token: 128, gen throughput (token/s): 100.00, #queue-req: 0, "
                "cuda graph: True"
            )


def usage(tokens: int) -> dict:
    """Return a usage object."""
    return {"prompt_tokens": 9, "completion_tokens": tokens, "total_tokens": 9 + tokens}


def event(writer: asyncio.StreamWriter, value: object) -> None:
    """Write one server-sent event as one chunk."""
    data = b"data: " + (value if isinstance(value, str) else json.dumps(value)).encode() + b"\n\n"
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def reply(writer: asyncio.StreamWriter, status: int, body: object) -> None:
    """Write one JSON answer."""
    data = json.dumps(body).encode()
    writer.write(
        f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data
    )


if __name__ == "__main__":
    asyncio.run(Server(Script(sys.argv[1:])).serve())
