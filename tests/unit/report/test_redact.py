"""No secret gets through, and nothing that is no secret gets lost."""

import pytest

from reckoning.report.redact import REMOVED, Redactor, is_secret_name, users_in

SECRETS = {
    "--api-key sk-abc123 --port 8000": "sk-abc123",
    "--api-key=letmein --port 8000": "letmein",
    "api_key='letmein', port=8000": "letmein",
    '{"api_key": "letmein", "port": 8000}': "letmein",
    "HF_TOKEN=hf_abcdefgh12345678 python": "hf_abcdefgh12345678",
    "export HUGGING_FACE_HUB_TOKEN=abcdef123456": "abcdef123456",
    "login with hf_AbCdEfGhIjKlMnOp please": "hf_AbCdEfGhIjKlMnOp",
    "Authorization: Bearer abc.def.ghi123456": "abc.def.ghi123456",
    "curl -H 'authorization: Basic dXNlcjpwYXNz'": "dXNlcjpwYXNz",
    "https://alice:hunter22@mirror.example/simple": "hunter22",
    "AWS key AKIAIOSFODNN7EXAMPLE": "AKIAIOSFODNN7EXAMPLE",
    "ghp_16C7e42F292c6912E7710c838347Ae178B4a": "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N": "eyJzdWIiOiIxMjM0In0",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----": "MIIEow",
    "nvapi-AbCd1234efGH5678": "nvapi-AbCd1234efGH5678",
    "password: hunter22": "hunter22",
    "mail alice@example.org": "alice@example.org",
    "OSError: /home/alice/models/kimi: no such file": "alice",
    "/Users/alice/models": "alice",
    r"C:\Users\alice\models": "alice",
    "USER=alice": "alice",
}

HARMLESS = [
    "eos_token='</s>' max_total_tokens=8192 tokenizer_mode=auto",
    "token usage: 0.42, #running-req: 12",
    "api_key=None",
    "speculative_algorithm='DFLASH' served_model_name='kimi-k2.6'",
    "IndexError: list index out of range",
    "https://github.com/sgl-project/sglang/pull/31645",
    "/opt/models/kimi-k2.6 /usr/local/cuda/include/curand.h",
    "torch 2.11.0+cu130, flashinfer 0.6.11.post1",
    "the user said: home is where /root lies",
]


@pytest.mark.parametrize(("text", "secret"), SECRETS.items())
def test_secret_is_removed_and_the_rest_stays(text, secret):
    clean = Redactor().text(text)
    assert secret not in clean
    assert clean


@pytest.mark.parametrize("text", HARMLESS)
def test_harmless_text_stays_as_it_is(text):
    assert Redactor().text(text) == text.replace("/root ", "~ ")


def test_value_goes_by_its_key_even_when_it_looks_harmless():
    value = {"api_key": "plain", "nested": [{"HF_TOKEN": "plain"}], "eos_token": "</s>", "port": 8000, "password": None}
    assert Redactor().value(value) == {
        "api_key": REMOVED,
        "nested": [{"HF_TOKEN": REMOVED}],
        "eos_token": "</s>",
        "port": 8000,
        "password": None,
    }


def test_argument_after_a_secret_option_is_removed():
    command = ["python", "--api-key", "plain", "--port", "30000", "--admin-api-key", "plain2"]
    assert Redactor().value(command) == ["python", "--api-key", REMOVED, "--port", "30000", "--admin-api-key", REMOVED]


def test_user_of_a_home_path_is_removed_elsewhere_too_but_common_words_are_not():
    values = [{"path": "/home/carolyn/models"}, ["/home/ubuntu/x", "/home/data/y"]]
    assert users_in(values) == frozenset({"carolyn"})
    redactor = Redactor(users_in(values))
    assert redactor.text("carolyn@node7 ran the data step") == "[user]@node7 ran the data step"


@pytest.mark.parametrize(
    "name", ["api_key", "API_KEY", "hf_token", "HUGGING_FACE_HUB_TOKEN", "password", "client_secret"]
)
def test_secret_names(name):
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name", ["tokens", "output_tokens", "eos_token", "max_total_tokens", "keys", "tokenizer", "monkey"]
)
def test_names_that_are_no_secrets(name):
    assert not is_secret_name(name)
