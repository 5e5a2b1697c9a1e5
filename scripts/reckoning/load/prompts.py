"""Workloads: from a workload's keys to the request bodies of a point, reproducible from the point's seed.

Bodies are made before the point starts, so that nothing is serialised while time is taken.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from reckoning.prompt_files import Text, WorkloadError, read_file

from .exchange import Prompt

KINDS = ("prompts", "random", "long-context", "jsonl")
OF_A_FILE = ("prompts", "jsonl")
ENDPOINTS = ("chat", "generate", "completions")


class Tokenizer(Protocol):
    """What is needed of a tokenizer; see `reckoning.load.tokenizer`."""

    def encode(self, text: str) -> list[int]: ...
    def decode(self, ids: Sequence[int]) -> str: ...
    def ordinary_ids(self) -> Sequence[int]: ...


def read_texts(workload: Mapping[str, Any], endpoint: str, tokenizer: Callable[[], Tokenizer], seed: int) -> list[Text]:
    """Return the workload's prompts. `tokenizer` is called only by the kinds that need one.

    `random` and `long-context` are drawn from `seed`, so every arm of an experiment gets the same prompts.
    """
    kind = workload.get("kind", "prompts")
    if kind in OF_A_FILE:
        return texts_of_file(workload)
    if kind == "random":
        return _random_ids(workload, endpoint, tokenizer(), seed)
    if kind == "long-context":
        return _long_context(workload, endpoint, tokenizer(), seed)
    raise WorkloadError(f"workload kind {kind!r} is unknown: use one of {', '.join(KINDS)}")


def texts_of_file(workload: Mapping[str, Any]) -> list[Text]:
    """Return the prompts of a workload whose file holds them; WorkloadError says what is wrong with it."""
    return read_file(workload.get("kind", "prompts"), _file(workload), workload.get("text_field"))


def _file(workload: Mapping[str, Any]) -> Path:
    name = workload.get("file")
    if not name:
        raise WorkloadError(f"workload kind {workload.get('kind')!r} needs `file`")
    path = Path(name)
    if not path.is_file():
        raise WorkloadError(f"workload file {name} does not exist")
    return path


def _input_tokens(workload: Mapping[str, Any]) -> int:
    count = workload.get("input_tokens")
    if not isinstance(count, int) or count < 1:
        raise WorkloadError(f"workload kind {workload['kind']!r} needs `input_tokens`, a number >= 1, not {count!r}")
    return count


def _random_ids(workload: Mapping[str, Any], endpoint: str, tokenizer: Tokenizer, seed: int) -> list[Text]:
    count, ids = _input_tokens(workload), tokenizer.ordinary_ids()
    chance = random.Random(f"random {seed} {count}")
    drawn = [chance.choices(ids, k=count) for _ in range(int(workload.get("prompts") or 64))]
    return [_exact(f"random-{n}", one, count, endpoint, tokenizer) for n, one in enumerate(drawn)]


def _exact(name: str, ids: list[int], count: int, endpoint: str, tokenizer: Tokenizer) -> Text:
    """Return a prompt of exactly `count` tokens: ids as they are, or text that the tokenizer splits into that many.

    A text's tokens need not be the ids it was decoded from, so the cut is moved until the count is right; for the chat
    endpoint the template's tokens come on top.
    """
    if endpoint != "chat":
        return Text(name, ids[:count], count)
    cut = count
    for _ in range(50):
        text = tokenizer.decode(ids[:cut])
        found = len(tokenizer.encode(text))
        if found == count:
            return Text(name, text)
        cut = max(1, cut + (count - found))
        if cut > len(ids):
            ids = ids + ids
    raise WorkloadError(f"found no text of exactly {count} tokens; use endpoint `generate`, which takes token ids")


FILLER = (
    "The inspection of {number} machines took the crew through hall {other}, where the pumps hum and every dial is "
    "read twice. Entry {number}: pressure steady, valve {other} closed, nothing to report before the evening shift. "
)


def _long_context(workload: Mapping[str, Any], endpoint: str, tokenizer: Tokenizer, seed: int) -> list[Text]:
    """Prose of exactly `input_tokens` tokens by the model's tokenizer, different from its first words on."""
    count = _input_tokens(workload)
    texts = []
    for n in range(int(workload.get("prompts") or 8)):
        chance = random.Random(f"long {seed} {n} {count}")
        pieces: list[str] = []
        while len(ids := tokenizer.encode("".join(pieces))) < count:
            missing = count - len(ids)
            pieces += [
                FILLER.format(number=chance.randrange(10**6), other=chance.randrange(10**4))
                for _ in range(1 + missing // 40)
            ]
        texts.append(_exact(f"long-{n}", ids, count, endpoint, tokenizer))
    return texts


# --- request bodies ---------------------------------------------------------------------------------------------


def endpoint_of(workload: Mapping[str, Any], kind: str) -> str:
    """Return `chat`, `generate` or `completions` for a workload on a server of `kind` (`sglang` or `openai`)."""
    asked = workload.get("endpoint")
    if asked is None:
        asked = "generate" if workload.get("kind") == "random" else "chat"
    if asked not in ENDPOINTS:
        raise WorkloadError(f"endpoint {asked!r} is unknown: use one of {', '.join(ENDPOINTS)}")
    if asked == "generate" and kind != "sglang":
        return "completions"  # the OpenAI form of a prompt without chat template; takes token ids as well
    return asked


PATHS = {"chat": "/v1/chat/completions", "generate": "/generate", "completions": "/v1/completions"}


def request_body(text: Text, workload: Mapping[str, Any], endpoint: str, model: str, fresh: str | None) -> Prompt:
    """Return the request for one prompt. `fresh`, when given, is a unique prefix that no cache can have seen."""
    tokens = text.output_tokens or int(workload["output_tokens"])
    content = _with_prefix(text.content, fresh)
    if endpoint == "generate":
        body = _generate_body(content, workload, tokens)
    else:
        body = _openai_body(content, workload, tokens, endpoint, model)
    body |= workload.get("extra_body") or {}
    return Prompt(text.id, msgspec.json.encode(body), tokens, text.prompt_tokens if fresh is None else None)


def _generate_body(content: Any, workload: Mapping[str, Any], tokens: int) -> dict[str, Any]:
    sampling: dict[str, Any] = {
        "max_new_tokens": tokens,
        "temperature": workload.get("temperature", 0.0),
        "ignore_eos": bool(workload.get("ignore_eos", False)),
    }
    if workload.get("top_p") is not None:
        sampling["top_p"] = workload["top_p"]
    if isinstance(content, list) and content and isinstance(content[0], Mapping):
        raise WorkloadError("endpoint `generate` takes text or token ids, not `messages`: use endpoint `chat`")
    return {"input_ids" if isinstance(content, list) else "text": content, "sampling_params": sampling, "stream": True}


def _openai_body(content: Any, workload: Mapping[str, Any], tokens: int, endpoint: str, model: str) -> dict[str, Any]:
    body: dict[str, Any] = {"model": model, "stream": True, "temperature": workload.get("temperature", 0.0)}
    if endpoint == "completions":
        body |= {"prompt": content, "max_tokens": tokens}
    else:
        if isinstance(content, list) and content and isinstance(content[0], int):
            raise WorkloadError("endpoint `chat` takes text, not token ids: use endpoint `generate`")
        body["messages"] = [{"role": "user", "content": content}] if isinstance(content, str) else content
        body["max_tokens"] = tokens
    if workload.get("top_p") is not None:
        body["top_p"] = workload["top_p"]
    if workload.get("ignore_eos"):
        body["ignore_eos"] = True  # not in OpenAI's own API, so it is sent only where it is asked for
    if workload.get("usage", True):
        body["stream_options"] = {"include_usage": True}
        if workload.get("continuous_usage", True):
            body["stream_options"]["continuous_usage_stats"] = True
    return body


def _with_prefix(content: Any, fresh: str | None) -> Any:
    if fresh is None:
        return content
    if isinstance(content, str):
        return f"[{fresh}] {content}"
    if isinstance(content[0], int):  # the prompt's own ids in another order: same length, same ids, no shared prefix
        return random.Random(fresh).sample(content, len(content))
    first = dict(content[0])
    first["content"] = f"[{fresh}] {first.get('content', '')}"
    return [first, *content[1:]]


def prompt_sequence(
    texts: Sequence[Text],
    workload: Mapping[str, Any],
    endpoint: str,
    model: str,
    *,
    seed: int,
    fresh_label: str | None,
) -> Iterator[Prompt]:
    """Yield requests without end: the prompts in an order shuffled from `seed`, round after round.

    Every arm sees the same sequence at the same point and repeat. Without `fresh_label` each body is serialised once;
    with it every request gets a prefix of its own.
    """
    chance = random.Random(f"order {seed}")
    made: dict[int, Prompt] = {}
    if fresh_label is None:
        made = {n: request_body(text, workload, endpoint, model, None) for n, text in enumerate(texts)}
    count = itertools.count()
    while True:
        order = list(range(len(texts)))
        chance.shuffle(order)
        for n in order:
            label = f"{fresh_label}-{next(count)}"
            yield made[n] if made else request_body(texts[n], workload, endpoint, model, label)
