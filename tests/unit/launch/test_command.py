from reckoning.launch import command


def test_only_the_placeholders_are_filled():
    words = ["{python}", "--port={port}", "--json", '{"a": 1}', "{nccl_port}", "{other}"]
    filled = command.fill(words, {"python": "/p", "port": 30010, "nccl_port": 30011})
    assert filled == ["/p", "--port=30010", "--json", '{"a": 1}', "30011", "{other}"]


def test_a_value_that_looks_like_a_placeholder_is_not_filled_again():
    assert command.fill(["{python}"], {"python": "/{port}", "port": 1}) == ["/{port}"]


def test_options_in_both_spellings_the_last_one_counts():
    words = ["x", "--port", "1", "--host=::", "--port=2", "--flag"]
    assert command.option(words, "--port") == "2"
    assert command.option(words, "--host") == "::"
    assert command.option(words, "--flag") is None
    assert command.option(words, "--nccl-port") is None


def test_a_port_is_fixed_only_when_it_is_a_number():
    assert command.fixed_port(["--port", "31000"], "--port") == 31000
    assert command.fixed_port(["--port", "{port}"], "--port") is None


def test_nothing_stray_reaches_the_server():
    shell = {
        "PATH": "/bin",
        "NCCL_P2P_DISABLE": "1",
        "SGLANG_TEST": "1",
        "MKL_NUM_THREADS": "2",
        "PYTHONPATH": "/mine",
        "EDITOR": "vi",
        "LC_ALL": "C",
    }
    result = command.server_environment({"A": "1"}, overlay=["/overlay"], inherited=shell, ours={"TMPDIR": "/t"})
    assert result.full == {"PATH": "/bin", "LC_ALL": "C", "TMPDIR": "/t", "A": "1", "PYTHONPATH": "/overlay"}
    assert result.ours == {"TMPDIR": "/t", "A": "1", "PYTHONPATH": "/overlay"}
    assert result.left_out == (
        "NCCL_P2P_DISABLE",
        "SGLANG_TEST",
    )  # PYTHONPATH is set by us, EDITOR tells nothing, Snakemake set the threads


def test_the_arm_goes_before_all_and_the_overlay_before_its_path():
    result = command.server_environment(
        {"TMPDIR": "/arm", "PYTHONPATH": "/site"},
        overlay=["/overlay"],
        inherited={"TMPDIR": "/shell"},
        ours={"TMPDIR": "/t"},
    )
    assert result.full == {"TMPDIR": "/arm", "PYTHONPATH": "/overlay:/site"}


def test_compiled_kernels_outlive_the_scratch_folder(tmp_path):
    assert (
        command.settings_of_ours(tmp_path, {"TORCHINDUCTOR_CACHE_DIR": "/kept"})["TORCHINDUCTOR_CACHE_DIR"] == "/kept"
    )
    cache = command.settings_of_ours(tmp_path, {})["TORCHINDUCTOR_CACHE_DIR"]
    assert not cache.startswith(str(tmp_path))


def test_the_overlay_of_an_arm():
    engine = {"arms": {"a": "x", "b": "none"}, "overlays": {"x": {"pythonpath": ["/o"]}, "none": {"path": None}}}
    assert command.overlay_paths(command.overlay_entry(engine, "a")) == ["/o"]
    assert command.overlay_paths(command.overlay_entry(engine, "b")) == []
    assert command.overlay_paths(command.overlay_entry(engine, "unknown")) == []
    assert command.overlay_paths(command.overlay_entry({}, "a")) == []
