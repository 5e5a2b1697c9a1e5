"""The engine's arguments: recorded tables, names, values."""

import json

import pytest

from reckoning.plan import flags
from reckoning.plan.command import server_command
from reckoning.plan.flags import faults, recorded_table, table_from

OLD, NEW = recorded_table("0.5.12.post1"), recorded_table("0.5.23")


def raw(dest, options, kind="value", **more):
    base = {"type": "str", "choices": None, "default": None, "required": False, "deprecated": False}
    return {"dest": dest, "options": options, "kind": kind, **base, **more}


@pytest.mark.parametrize("table", [OLD, NEW], ids=["0.5.12.post1", "0.5.23"])
def test_recorded_tables_hold_what_every_config_uses(table):
    for name in ("tp_size", "pp_size", "ep_size", "dp_size", "moe_dp_size", "attention_backend", "enable_cache_report"):
        assert table.get(name) is not None, name
    assert table.get("tp_size").type == "int"
    assert table.get("tp_size").option == "--tp-size"
    assert table.get("enable_eplb").kind == "switch"
    assert "triton" in table.get("attention_backend").choices
    assert table.canonical("tensor_parallel_size") == "tp_size"
    assert table.canonical("expert_parallel_size") == "ep_size"
    assert table.canonical("nonsense") == "nonsense"


def test_an_unknown_version_has_an_empty_table_that_checks_nothing():
    assert not recorded_table("9.9.9").flags
    assert list(faults({"anything": 1}, recorded_table("9.9.9"))) == []


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("tp_size", 2, None),
        ("tp_size", True, "flag-value"),
        ("tp_size", 2.0, "flag-value"),
        ("mem_fraction_static", 1, None),
        ("mem_fraction_static", "most", "flag-value"),
        ("disable_cuda_graph", True, None),
        ("disable_cuda_graph", 1, "flag-value"),
        ("cuda_graph_bs", [1, 2], None),
        ("cuda_graph_bs", ["one"], "flag-value"),
        ("attention_backend", "triton", None),
        ("attention_backend", "tritn", "flag-value"),
        ("max_total_tokens", 8192, None),
        ("revision", "main", None),
        ("speculative_draft_model", "d", None),
        ("tp", 2, "abbreviated-flag"),
        ("nonsense_at_all", 1, "unknown-flag"),
    ],
)
def test_values_and_names_in_the_older_version(name, value, kind):
    assert [fault.kind for fault in faults({name: value}, OLD)] == ([kind] if kind else [])


@pytest.mark.parametrize(
    ("name", "table", "remedy"),
    [
        ("cuda_graph_max_bs", NEW, "use cuda_graph_max_bs_decode"),
        ("cuda_graph_max_bs_decode", OLD, "use cuda_graph_max_bs"),
        ("disable_piecewise_cuda_graph", NEW, "use disable_prefill_cuda_graph"),
    ],
)
def test_an_argument_that_moved_is_named(name, table, remedy):
    (fault,) = faults({name: 1}, table)
    assert fault.remedy == remedy


def test_commands_use_the_option_of_the_version_and_switches_without_values():
    table = table_from(
        {
            "flags": [
                raw("tensor_parallel_size", ["--tensor-parallel-size", "--tp-size"], type="int"),
                raw("fp8_gemm_runner_backend", ["--fp8-gemm-backend"]),
                raw("quiet", ["--quiet"], kind="switch"),
                raw("graphs", ["--graphs"], kind="on-off"),
                raw("sizes", ["--sizes"], kind="list", type="int"),
                raw("extra", ["--extra"], type="loads"),
            ]
        },
        "test",
    )
    settings = {
        "tp_size": 2,
        "fp8_gemm_runner_backend": "triton",
        "quiet": True,
        "graphs": False,
        "sizes": [1, 2],
        "extra": {"b": 1, "a": [2]},
    }
    words = server_command("m", "name", "cuda", settings=settings, flags=table.flags)
    assert words[:3] == ("{python}", "-m", "sglang.launch_server")
    assert " ".join(words[3:]) == (
        "--model-path m --served-model-name name --host 127.0.0.1 --port {port} --nccl-port {nccl_port} --device cuda "
        '--extra {"a":[2],"b":1} --fp8-gemm-backend triton --no-graphs --quiet --sizes 1 2 --tp-size 2'
    )
    off = server_command("m", "name", "cuda", settings={"quiet": False, "graphs": True}, flags=table.flags)
    assert off[-1] == "--graphs"
    assert "--quiet" not in off


def test_a_second_option_of_one_argument_is_an_alias():
    table = table_from({"flags": [raw("a_b", ["--a-b"], kind="switch"), raw("a_b", ["--old"], kind="switch")]}, "test")
    assert table.canonical("old") == "a_b"


def test_an_interpreter_without_sglang_is_told_so(tmp_path):
    import sys

    with pytest.raises(RuntimeError, match="sglang"):
        flags.read_installed(sys.executable)
    with pytest.raises(RuntimeError, match="cannot ask"):
        flags.read_installed(str(tmp_path / "nowhere"))


def test_the_parser_program_prints_what_a_parser_takes(tmp_path):
    import subprocess
    import sys

    package = tmp_path / "sglang"
    (package / "srt").mkdir(parents=True)
    (package / "__init__.py").write_text("__version__ = '1.2.3'\n")
    (package / "srt" / "__init__.py").write_text("")
    (package / "srt" / "server_args.py").write_text(
        "import argparse\nimport not_installed_anywhere\nprint('hello')\n"
        "class ServerArgs:\n"
        "    @staticmethod\n"
        "    def add_cli_args(parser):\n"
        "        parser.add_argument('--tp-size', '--tensor', type=int, default=1, help='x')\n"
        "        parser.add_argument('--on', action=argparse.BooleanOptionalAction)\n"
        "        parser.add_argument('--bs', type=int, nargs='+')\n"
        "        parser.add_argument('--old', action='store_true', help='Deprecated: use --on')\n"
        "        parser.add_argument('--rate', type=float, default=float('inf'))\n"
    )
    done = subprocess.run(
        [sys.executable, str(flags.PARSER_PROGRAM)],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(tmp_path)},
    )
    found = json.loads(done.stdout)
    assert found["sglang_version"] == "1.2.3"
    assert found["stand_ins"] == ["not_installed_anywhere"]
    table = table_from(found, "test")
    assert {name: flag.kind for name, flag in table.flags.items()} == {
        "bs": "list",
        "old": "switch",
        "on": "on-off",
        "rate": "value",
        "tp_size": "value",
    }
    assert table.get("old").deprecated
    assert table.get("rate").default == "inf"
    assert table.canonical("tensor") == "tp_size"
