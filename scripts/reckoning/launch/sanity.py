"""Is this output, or noise? A server with wrong data in its kernels answers 200 with "!!!!!!!!": not worth timing."""

from __future__ import annotations

from collections.abc import Sequence

SHORTEST_JUDGED = 8


def fault_of(texts: Sequence[str], token_ids: Sequence[Sequence[int]] = ()) -> str | None:
    """Return what is wrong with generated outputs, or None when they are sane.

    `texts` are answers to different prompts, sampled at a temperature of 1, so that even a model of random weights
    varies; `token_ids` the same answers as ids, where the server gives them. Faults: all empty; one and the same token
    or character throughout. Fewer than 8 tokens (or characters) are judged by emptiness alone.
    """
    if not texts or not any(text.strip() for text in texts):
        ids = [token for answer in token_ids for token in answer]
        if not texts or not ids:
            return "empty output"
        # Tokens without text: special tokens, or halves of characters. Judge the ids.
        return f"one token (id {ids[0]}) repeated" if len(ids) >= SHORTEST_JUDGED and len(set(ids)) == 1 else None
    ids = [token for answer in token_ids for token in answer]
    if len(ids) >= SHORTEST_JUDGED:
        return f"one token (id {ids[0]}) repeated: {_shown(texts)}" if len(set(ids)) == 1 else None
    letters = "".join(texts).replace(" ", "").replace("\n", "")
    if len(letters) >= SHORTEST_JUDGED and len(set(letters)) == 1:
        return f"one character repeated: {_shown(texts)}"
    words = " ".join(texts).split()
    if len(words) >= SHORTEST_JUDGED and len(set(words)) == 1:
        return f"one word repeated: {_shown(texts)}"
    return None


def _shown(texts: Sequence[str]) -> str:
    text = next(text for text in texts if text.strip())
    return repr(text if len(text) <= 40 else text[:37] + "...")
