"""Is this output, or noise? A server with wrong data in its kernels answers 200 with "!!!!!!!!": not worth timing."""

from __future__ import annotations

from collections.abc import Sequence

SHORTEST_JUDGED = 8


def fault_of(texts: Sequence[str], token_ids: Sequence[Sequence[int]] = ()) -> str | None:
    """Return what is wrong with generated outputs, or None when they are sane.

    `texts` are answers to different prompts, sampled at a temperature of 1, so that even a model of random weights
    varies; `token_ids` the same answers as ids, where the server gives them. Faults: every answer is empty; every
    answer repeats one token, word or character. Answers of fewer than 8 tokens are judged by emptiness alone. One sane
    answer is enough, for broken kernels spoil all.
    """
    ids = [list(answer) for answer in token_ids if answer]
    if not any(text.strip() for text in texts) and not ids:
        return "empty output"
    if ids:  # ids go before texts: special tokens and halves of characters have no text of their own
        if all(_repeats(answer) for answer in ids):
            return f"one token (id {ids[0][0]}) repeated: {_shown(texts)}"
        return None
    spoken = [text for text in texts if text.strip()]
    if all(_repeats(text.split()) for text in spoken):
        return f"one word repeated: {_shown(texts)}"
    if all(_repeats("".join(text.split())) for text in spoken):
        return f"one character repeated: {_shown(texts)}"
    return None


def _repeats(parts: Sequence[object]) -> bool:
    return len(parts) >= SHORTEST_JUDGED and len(set(parts)) == 1


def _shown(texts: Sequence[str]) -> str:
    text = next((text for text in texts if text), "")
    return repr(text if len(text) <= 40 else text[:37] + "...")
