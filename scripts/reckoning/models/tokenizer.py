"""The embedded models' tokenizer: byte-level BPE trained on the text beside this file, with a plain chat template."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL = ("<|bos|>", "<|eos|>", "<|pad|>")
TRAINED = 1024
_CHAT_TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


def write(folder: Path, vocabulary: int, context: int) -> None:
    """Write tokenizer.json and tokenizer_config.json for a model of `vocabulary` tokens and `context` positions."""
    train(vocabulary).save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL[0],
        "eos_token": SPECIAL[1],
        "pad_token": SPECIAL[2],
        "model_max_length": context,
        "chat_template": _CHAT_TEMPLATE,
    }
    write_json(folder / "tokenizer_config.json", settings)


def train(vocabulary: int = TRAINED) -> Tokenizer:
    """Return a tokenizer of exactly `vocabulary` tokens.

    TRAINED of them come from the text. A model with more is given words that no text is split into but that every id
    decodes to: a random id would otherwise be an empty string, and a client would count no chunk for it.
    """
    text = Path(__file__).with_name("tokenizer_text.txt").read_text(encoding="utf-8")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=TRAINED,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(text.splitlines(keepends=True), trainer)
    if tokenizer.get_vocab_size() != TRAINED:
        raise ValueError(f"tokenizer_text.txt yields {tokenizer.get_vocab_size()} tokens, not {TRAINED}: add text")
    return _filled(tokenizer, vocabulary) if vocabulary > TRAINED else tokenizer


def write_json(path: Path, value: object) -> None:
    """Write indented JSON with a fixed order of keys."""
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def _filled(tokenizer: Tokenizer, vocabulary: int) -> Tokenizer:
    document = json.loads(tokenizer.to_str())
    words = document["model"]["vocab"]
    words.update({f"Ġw{number}": number for number in range(len(words), vocabulary)})
    return Tokenizer.from_str(json.dumps(document))
