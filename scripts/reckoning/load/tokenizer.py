"""The model's tokenizer: from `tokenizer.json` beside the model, or asked of the running server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from .prompts import Tokenizer, WorkloadError
from .server import Server


class LocalTokenizer:
    """A `tokenizer.json` of the Hugging Face form."""

    def __init__(self, path: Path) -> None:
        from tokenizers import Tokenizer as Fast

        self._fast = Fast.from_file(str(path))
        added = json.loads(path.read_text(encoding="utf-8")).get("added_tokens") or []
        special = {entry["id"] for entry in added}
        self._ordinary = [n for n in range(self._fast.get_vocab_size(with_added_tokens=False)) if n not in special]

    def encode(self, text: str) -> list[int]:
        return self._fast.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        return self._fast.decode(list(ids))

    def ordinary_ids(self) -> Sequence[int]:
        return self._ordinary


class ServerTokenizer:
    """The tokenizer behind SGLang's and vLLM's `/tokenize`: for models whose tokenizer is not a `tokenizer.json`."""

    def __init__(self, server: Server, model: str, vocabulary: int) -> None:
        self._server, self._model, self._vocabulary = server, model, vocabulary

    def encode(self, text: str) -> list[int]:
        reply = self._server.post("/tokenize", {"model": self._model, "prompt": text, "add_special_tokens": False})
        return list(reply["tokens"])

    def decode(self, ids: Sequence[int]) -> str:
        reply = self._server.post("/detokenize", {"model": self._model, "tokens": list(ids)})
        return str(reply.get("text", reply.get("prompt", "")))

    def ordinary_ids(self) -> Sequence[int]:
        """The lower nine tenths: special tokens lie at the end of the vocabularies of today's MoE models."""
        return range(self._vocabulary * 9 // 10)


def find_tokenizer(tokenizer_path: str | None, server: Server, model: str) -> Tokenizer:
    """Return the model's tokenizer; raises WorkloadError when there is none to be had."""
    if tokenizer_path is not None:
        path = Path(tokenizer_path)
        path = path / "tokenizer.json" if path.is_dir() else path
        if path.is_file() and path.suffix == ".json":
            return LocalTokenizer(path)
    if server.can_tokenize(model):
        return ServerTokenizer(server, model, server.vocabulary() or 32000)
    raise WorkloadError(
        f"this workload needs the model's tokenizer: there is no tokenizer.json at {tokenizer_path} and the server "
        "does not answer /tokenize; give --tokenizer PATH, or use a workload of kind prompts or jsonl"
    )
