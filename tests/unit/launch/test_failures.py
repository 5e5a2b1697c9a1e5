from reckoning.launch.failures import LaunchFailed, command_secrets, describe, hide, without_secrets
from reckoning.serverlog import read_log


def test_the_log_tells_more_than_the_launcher_saw():
    log = read_log("Load weight begin\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    failed = LaunchFailed("exited", "the server ended", "read the log", exit_code=1)
    found = describe(failed, log)
    assert found["class"] == "out-of-memory-weights"
    assert found["seen"] == "the server ended"
    assert "Tried to allocate" in found["evidence"] and "Tried to allocate" in found["log_excerpt"]


def test_what_the_launcher_knows_better_stands():
    log = read_log("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    found = describe(LaunchFailed("garbage-output", "it answers !!!!", "look", from_log=False), log)
    assert (found["class"], found["cause"]) == ("garbage-output", "it answers !!!!")


def test_memory_fractions_go_in_both_directions():
    """CASE 26: a and c want a lower fraction, d a higher one, b is custom all-reduce and no memory at all."""
    failed = LaunchFailed("exited", "ended", "-", exit_code=1)
    lines = {
        "a": "Capture cuda graph failed: CUDA out of memory",
        "b": "Capture cuda graph failed: RuntimeError: invalid argument ... register_graph_buffers",
        "c": "NCCL error: Failed to CUDA calloc 10485760 bytes",
        "d": "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
    }
    start = "Load weight end.\nMemory pool end.\nCapture cuda graph begin.\n"
    found = {key: describe(failed, read_log(start + line + "\n")) for key, line in lines.items()}
    assert "lower --mem-fraction-static" in found["a"]["remedy"]
    assert found["b"]["class"] == "custom-all-reduce"
    assert "lower" in found["c"]["remedy"]
    assert found["d"]["class"] == "memory-fraction-too-low" and "RAISE --mem-fraction-static" in found["d"]["remedy"]


def test_secrets_are_hidden_wherever_they_stand():
    command = ["python", "--api-key", "sk-abc-123456", "--admin-api-key=topsecret", "--hf-token", "tok-en"]
    secrets = command_secrets(command, {"HF_TOKEN": "hf_abcdefgh", "PATH": "/bin"})
    assert set(secrets) == {"sk-abc-123456", "topsecret", "tok-en", "hf_abcdefgh"}
    assert hide("key topsecret of hf_abcdefgh", secrets) == "key [hidden] of [hidden]"
    assert hide("with sk-abcdef0123 in it", ()) == "with [hidden] in it"
    assert hide("ServerArgs(api_key='abcdef', tp_size=2, admin_api_key=None)", ()) == (
        "ServerArgs(api_key='[hidden]', tp_size=2, admin_api_key=None)"
    )
    info = {"api_key": "sk-abc", "inner": [{"hf_token": "x"}], "completion_tokens": 9, "ssl_keyfile_password": None}
    assert without_secrets(info) == {
        "api_key": "[hidden]",
        "inner": [{"hf_token": "[hidden]"}],
        "completion_tokens": 9,
        "ssl_keyfile_password": None,
    }
