"""Workloads of exact length, from a tokenizer made here."""

import itertools
from pathlib import Path

import msgspec
import pytest
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers
from tokenizers import decoders as token_decoders

from reckoning.load.prompts import PATHS, Text, WorkloadError, endpoint_of, prompt_sequence, read_texts, request_body
from reckoning.load.tokenizer import LocalTokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> LocalTokenizer:
    """A byte-level BPE with 40 merges and one special token."""
    fast = Tokenizer(models.BPE())
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = token_decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    fast.train_from_iterator(["the machines in hall took the crew", "the dial is read twice"], trainer)
    fast.add_special_tokens([AddedToken("<|end|>", special=True)])
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    fast.save(str(path))
    return LocalTokenizer(path)


def texts(tokenizer: LocalTokenizer, endpoint: str, seed: int = 1, **workload: object) -> list[Text]:
    return read_texts({"output_tokens": 4, **workload}, endpoint, lambda: tokenizer, seed)


def test_random_ids_are_exact_ordinary_and_fixed_by_the_seed(tokenizer: LocalTokenizer) -> None:
    drawn = texts(tokenizer, "generate", kind="random", input_tokens=100)
    special = tokenizer.encode("<|end|>")[0]
    assert all(len(text.content) == 100 == text.prompt_tokens for text in drawn)
    assert all(special not in text.content for text in drawn)
    assert drawn == texts(tokenizer, "generate", kind="random", input_tokens=100)
    assert drawn != texts(tokenizer, "generate", seed=2, kind="random", input_tokens=100)
    assert len({tuple(text.content) for text in drawn}) == 64


def test_long_context_is_exact_by_the_tokenizer(tokenizer: LocalTokenizer) -> None:
    as_ids = texts(tokenizer, "generate", kind="long-context", input_tokens=3000, prompts=2)
    as_text = texts(tokenizer, "chat", kind="long-context", input_tokens=3000, prompts=2)
    assert [len(text.content) for text in as_ids] == [3000, 3000]
    assert [len(tokenizer.encode(text.content)) for text in as_text] == [3000, 3000]
    assert as_text[0].content[:200] != as_text[1].content[:200]  # nothing to share in a prefix cache


def test_endpoints(tokenizer: LocalTokenizer) -> None:
    assert endpoint_of({"kind": "prompts"}, "sglang") == "chat"
    assert endpoint_of({"kind": "random"}, "sglang") == "generate"
    assert endpoint_of({"kind": "random"}, "openai") == "completions"
    assert set(PATHS) == {"chat", "generate", "completions"}
    with pytest.raises(WorkloadError, match="endpoint 'song' is unknown"):
        endpoint_of({"endpoint": "song"}, "sglang")


def test_bodies_of_every_endpoint() -> None:
    workload = {"output_tokens": 9, "ignore_eos": True, "temperature": 0.5, "top_p": 0.9}
    ids = msgspec.json.decode(request_body(Text("a", [1, 2]), workload, "generate", "m", None).body)
    assert ids == {
        "input_ids": [1, 2],
        "sampling_params": {"max_new_tokens": 9, "temperature": 0.5, "ignore_eos": True, "top_p": 0.9},
        "stream": True,
    }
    text = msgspec.json.decode(request_body(Text("a", "hi"), workload, "completions", "m", None).body)
    assert (text["prompt"], text["max_tokens"], text["model"]) == ("hi", 9, "m")
    with pytest.raises(WorkloadError, match="takes text, not token ids"):
        request_body(Text("a", [1, 2]), workload, "chat", "m", None)
    with pytest.raises(WorkloadError, match="not `messages`"):
        request_body(Text("a", [{"role": "user", "content": "x"}]), workload, "generate", "m", None)


def test_a_fresh_prefix_changes_the_first_words_of_every_form() -> None:
    workload = {"output_tokens": 1}
    for content, endpoint in (("hi", "chat"), ([{"role": "user", "content": "hi"}], "chat"), ("hi", "generate")):
        body = request_body(Text("a", content), workload, endpoint, "m", "k-1").body
        assert b"[k-1] hi" in body


def test_fresh_token_ids_differ_from_request_to_request() -> None:
    sequence = prompt_sequence(
        [Text("a", list(range(50)))], {"output_tokens": 1}, "generate", "m", seed=1, fresh_label="x"
    )
    seen = [tuple(msgspec.json.decode(prompt.body)["input_ids"]) for prompt in itertools.islice(sequence, 20)]
    assert len(set(seen)) == 20
    assert len({ids[:4] for ids in seen}) == 20
    assert all(sorted(ids) == list(range(50)) for ids in seen)


def test_a_prompts_file_of_the_repository_is_read() -> None:
    file = Path(__file__).parents[3] / "resources/prompts/chat.yaml"
    found = read_texts({"kind": "prompts", "file": str(file)}, "chat", lambda: None, 1)
    assert len(found) == 5
