"""The command line of `python -m reckoning.load`: its options, what is wrong with them, and what they mean."""

from __future__ import annotations

import argparse
import math
import os
import random
import re
import urllib.parse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .prompts import KINDS, OF_A_FILE, WorkloadError, texts_of_file

OWN_PROMPTS = Path(__file__).resolve().parents[3] / "resources" / "prompts" / "chat.yaml"
RESULTS = ("points.json", "requests.parquet")
USAGES = ("every-chunk", "at-end", "none")


def parser() -> argparse.ArgumentParser:
    """Return the command line; every option says what it is in the field's terms."""
    cli = argparse.ArgumentParser(
        prog="python -m reckoning.load",
        description="Measure a running server with a closed loop of C streams (or Poisson arrivals).",
        epilog="Exit status: 0 all points measured, 1 some failed, 2 nothing could be measured, 130 interrupted, "
        "143 ended by SIGTERM (both keep the points that were finished).",
    )
    cli.add_argument("--base-url", required=True, help="http://host:port of the server")
    cli.add_argument("--concurrency", required=True, type=numbers, help="streams, e.g. 1,8,32")
    cli.add_argument("--out", required=True, type=Path, help="folder for points.json, requests.parquet and raw/")
    cli.add_argument("--overwrite", action="store_true", help="replace the results that --out holds already")
    cli.add_argument("--model", help="model name (default: the first of /v1/models)")
    cli.add_argument("--kind", choices=("auto", "sglang", "openai"), default="auto", help="of server (default: ask it)")
    cli.add_argument("--api-key-env", metavar="NAME", help="environment variable that holds the API key")
    cli.add_argument(
        "--tokenizer", metavar="PATH", help="tokenizer.json, or the model's folder (default: ask the server)"
    )
    load = cli.add_argument_group("workload")
    load.add_argument("--workload", choices=KINDS, default="prompts", help="what is asked (default: %(default)s)")
    load.add_argument("--file", help="prompts (YAML list of id, text) or JSON lines (default: five prompts of our own)")
    load.add_argument("--text-field", default="prompt", help="of a JSON line: holds the prompt (default: %(default)s)")
    load.add_argument("--input-tokens", type=int, help="length of each prompt, for random and long-context")
    load.add_argument("--output-tokens", type=int, default=128, help="asked for, at most (default: %(default)s)")
    load.add_argument("--ignore-eos", action="store_true", help="ask for exactly --output-tokens (SGLang, vLLM)")
    load.add_argument("--temperature", type=float, default=0.0, help="of sampling (default: %(default)s)")
    load.add_argument(
        "--endpoint",
        choices=("chat", "generate", "completions"),
        help="chat: /v1/chat/completions; generate: SGLang's /generate; completions: /v1/completions (default: chat; "
        "for random generate, or completions where the server is no SGLang)",
    )
    load.add_argument("--cached-prompts", action="store_true", help="do not flush, and do not make prompts unique")
    load.add_argument(
        "--usage",
        choices=USAGES,
        default="every-chunk",
        help="the server's token counts that are asked for; some servers know only at-end, or refuse every request "
        "with stream_options, for which there is none (default: %(default)s)",
    )
    amount = cli.add_argument_group("amount")
    amount.add_argument("--requests-per-stream", type=int, default=4, help="of each point (default: %(default)s)")
    amount.add_argument(
        "--repeats", type=int, default=2, help="of each level, in shuffled order (default: %(default)s)"
    )
    amount.add_argument("--min-duration", type=float, default=0.0, metavar="S", help="a point lasts so long at least")
    amount.add_argument("--max-duration", type=float, metavar="S", help="and so long at most (default: no limit)")
    amount.add_argument(
        "--request-rate", type=float, metavar="PER_S", help="Poisson arrivals; streams become the most in flight"
    )
    amount.add_argument(
        "--idle-timeout",
        type=float,
        default=300.0,
        metavar="S",
        help="without a byte, of a request (default: %(default)g)",
    )
    amount.add_argument(
        "--total-timeout", type=float, default=3600.0, metavar="S", help="of a request (default: %(default)g)"
    )
    amount.add_argument("--seed", type=int, default=1, help="of prompts and order (default: %(default)s)")
    amount.add_argument("--keep-raw", action="store_true", help="keep every byte and its time, compressed")
    return cli


def numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of whole numbers such as 1,8,32") from None


def faults_of(options: argparse.Namespace) -> list[str]:
    """Return everything that is wrong with the options, each with the remedy; nothing is sent to the server before."""
    return [*_url_faults(options.base_url), *_number_faults(options), *_workload_faults(options), *_out_faults(options)]


def _url_faults(text: str) -> Iterator[str]:
    try:
        url = urllib.parse.urlsplit(text)
        known = url.scheme in ("http", "https") and bool(url.hostname) and (url.port or 1) > 0
    except ValueError:
        known = False
    if not known:
        shown = re.sub(r"//[^/@]*@", "//", text)  # no password on the screen
        yield f"--base-url {shown}: not of the form http://host:port or https://host"
    elif url.username is not None or url.password is not None:
        yield "--base-url: name and password in the address are not used; give a key with --api-key-env NAME"
    elif url.query or url.fragment:
        yield f"--base-url {text}: leave out what follows the path"


def _number_faults(options: argparse.Namespace) -> Iterator[str]:
    for level, count in Counter(options.concurrency).items():
        if level < 1:
            yield f"--concurrency {level}: not a number >= 1"
        if count > 1:
            yield f"--concurrency: {level} is given {count} times; for more points of a level use --repeats"
    bounds = {"input_tokens": 1, "output_tokens": 1, "requests_per_stream": 1, "repeats": 1}
    bounds |= {"temperature": 0, "min_duration": 0, "seed": 0}
    for name, least in bounds.items():
        value = getattr(options, name)
        if value is not None and not (math.isfinite(value) and value >= least):
            yield f"--{name.replace('_', '-')} {value}: not a number >= {least}"
    for name in ("max_duration", "request_rate", "idle_timeout", "total_timeout"):
        value = getattr(options, name)
        if value is not None and not (math.isfinite(value) and value > 0):
            yield f"--{name.replace('_', '-')} {value:g}: not a number above 0"
    if options.max_duration is not None and options.max_duration < options.min_duration:
        yield f"--max-duration {options.max_duration:g}: shorter than --min-duration {options.min_duration:g}"


def _workload_faults(options: argparse.Namespace) -> Iterator[str]:
    kind = options.workload
    if kind not in OF_A_FILE:
        if options.input_tokens is None:
            yield f"--workload {kind} needs --input-tokens"
        if options.file:
            yield f"--file {options.file}: a workload of kind {kind} reads no file; did you mean --workload jsonl?"
    else:
        if options.input_tokens is not None:
            yield f"--input-tokens {options.input_tokens}: a file's prompts have their length; use --workload random"
        if kind == "jsonl" and not options.file:
            yield "--workload jsonl needs --file"
        else:
            try:
                texts_of_file(_file_keys(options))
            except (WorkloadError, OSError) as error:
                yield f"--file: {error}"
    if options.tokenizer is not None and not Path(options.tokenizer).exists():
        yield f"--tokenizer {options.tokenizer}: does not exist"
    if options.api_key_env is not None and not os.environ.get(options.api_key_env):
        yield f"--api-key-env {options.api_key_env}: this environment variable is not set"


def _out_faults(options: argparse.Namespace) -> Iterator[str]:
    """Make the folder now: that it cannot be made would else be seen when everything has been measured."""
    out = options.out
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        yield f"--out {out}: {error.strerror}; name a folder that can be made"
        return
    if not os.access(out, os.W_OK | os.X_OK):
        yield f"--out {out}: cannot be written"
    held = [name for name in RESULTS if (out / name).exists()]
    if held and not options.overwrite:
        yield f"--out {out}: holds {' and '.join(held)} already; name another folder, or give --overwrite"


def _file_keys(options: argparse.Namespace) -> dict[str, Any]:
    file = options.file or (str(OWN_PROMPTS) if options.workload == "prompts" else None)
    return {"kind": options.workload, "file": file, "text_field": options.text_field}


def workload_of(options: argparse.Namespace, kind: str) -> dict[str, Any]:
    """Return the workload that the options describe, in the keys of an experiment's config."""
    flushed = kind == "sglang" and not options.cached_prompts
    workload = _file_keys(options) | {
        "input_tokens": options.input_tokens,
        "output_tokens": options.output_tokens,
        "ignore_eos": options.ignore_eos,
        "temperature": options.temperature,
        "flush": flushed,
        "fresh_prompts": not flushed and not options.cached_prompts,
        "min_duration_s": options.min_duration,
        "max_duration_s": options.max_duration,
        "keep_raw": options.keep_raw,
        "usage": options.usage != "none",
        "continuous_usage": options.usage == "every-chunk",
    }
    if options.endpoint:
        workload["endpoint"] = options.endpoint
    if options.request_rate:
        workload |= {"arrival": "poisson", "request_rate_per_s": options.request_rate}
    return workload


def points_of(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the points in an order that is shuffled from the seed, so that drift does not look like an effect."""
    points = [
        {
            "workload": "load",
            "concurrency": concurrency,
            "repeat": repeat,
            "seed": options.seed * 1000 + repeat,
            "requests": concurrency * options.requests_per_stream,
            "warmup_requests": concurrency,
        }
        for repeat in range(1, options.repeats + 1)
        for concurrency in sorted(options.concurrency)
    ]
    random.Random(options.seed).shuffle(points)
    return [{"index": index, **point} for index, point in enumerate(points)]
