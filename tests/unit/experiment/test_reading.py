"""Experiments as users write them: defaults, faults, and the traps of YAML."""

import datetime
import pickle
import textwrap

import pytest

from reckoning.experiment import ExperimentError, read, read_file
from tests.unit.experiment.small import chat, small


def problems(config):
    with pytest.raises(ExperimentError) as caught:
        read(config, "somewhere.yaml")
    return {problem.key: problem for problem in caught.value.problems}


def write(tmp_path, text):
    path = tmp_path / "experiment.yaml"
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


BODY = """
schema_version: 1
experiment: small
engine: {lock: sglang-0.5.12.post1-cpu}
machine: {device: cpu}
model: {path: models/none}
arms:
  a: {settings: {tp_size: 1}}
workloads:
  chat: {kind: random, input_tokens: 10, output_tokens: 8, concurrency: [1, 4], requests_per_stream: 2}
"""


def test_defaults_come_from_the_schema():
    experiment = read(small(), "somewhere.yaml")
    assert (experiment.blocks, experiment.repeats, experiment.seed) == (4, 2, 1)
    assert experiment.title == "small"
    assert experiment.engine.version == "0.5.12.post1"
    assert experiment.model.served_name == "none"
    assert experiment.analysis["confidence"] == 0.95
    assert experiment.limits["stop_grace_s"] == 60
    assert experiment.workloads[0].flush is True
    assert experiment.workloads[0].endpoint == "chat"


def test_the_config_that_was_passed_in_is_left_as_it_was():
    config = small()
    read(config, "somewhere.yaml")
    assert config == small()


@pytest.mark.parametrize(
    ("changes", "key", "reason", "remedy"),
    [
        ({"blocks": "8"}, "blocks", "text where a whole number", "write 8 "),
        ({"blocks": "08"}, "blocks", "text where a whole number", "write 8 "),
        ({"blocks": "1e3"}, "blocks", "text where a whole number", "write 1000 "),
        ({"blocks": 0}, "blocks", "too small", "1 or more"),
        ({"blocks": None}, "blocks", "empty (null)", "remove the key"),
        ({"blocks": False}, "blocks", "YAML reads no, off, false", "whole number"),
        ({"blocks": 2.5}, "blocks", "a number where", "whole number"),
        ({"title": 5}, "title", "a number where text", '"5"'),
        ({"title": False}, "title", "truth value", "quotes"),
        ({"title": datetime.date(2026, 1, 1)}, "title", "date", "quotes"),
        ({"seed": float("nan")}, "seed", "not a finite number", "write a number"),
        ({"titel": "x"}, "titel", "no such key", "did you mean title?"),
        ({"experiment": "../up"}, "experiment", "safe as a folder", "write up"),
        ({"experiment": "Größe 1"}, "experiment", "safe as a folder", "write groe-1"),
        ({"published": "nowhere.csv"}, "published", "no such file", "correct the path"),
        ({"engine": {"lock": "sglang-0.5.12.post1-cpo"}}, "engine.lock", "no engine", "sglang-0.5.12.post1-cpu?"),
        ({"engine": {"kind": "existing"}}, "engine.python", "needs its interpreter", "/path/to/python"),
        ({"machine": {"device": "gpu"}}, "machine.device", "not one of the allowed", "use cpu"),
        ({"analysis": {"baseline": "aa"}}, "analysis.baseline", "no arm of this name", "did you mean a?"),
        ({"only": "a,c"}, "only", "no arm of this name", "use one of"),
        ({"levels": "1,5"}, "levels", "no workload has this level", "1, 4, 16"),
        ({"levels": "x"}, "levels", "not a whole number", "levels=1,32"),
        ({"workloads": chat(file="nowhere.yaml")}, "workloads.chat.file", "no such file", "correct the path"),
        ({"workloads": chat(concurrency="8")}, "workloads.chat.concurrency", "text where", "write 8 "),
        ({"workloads": chat(concurrency=[1, "2"])}, "workloads.chat.concurrency.1", "text where", "write 2 "),
        ({"workloads": chat(concurrency=[1, 1])}, "workloads.chat.concurrency", "twice", "repeats"),
        ({"workloads": chat(concurrency=[])}, "workloads.chat.concurrency", "empty", "at least one"),
        ({"workloads": chat(kind="random")}, "workloads.chat.input_tokens", "prompt length", "add input_tokens"),
        ({"workloads": chat(arrival="poisson")}, "workloads.chat.request_rate_per_s", "belong together", "both"),
        ({"workloads": chat(requests_per_stream=None)}, "workloads.chat", "when a point ends", "max_duration_s"),
        ({"workloads": {"Chat Bot": chat()["chat"]}}, "workloads.Chat Bot", "safe in files", "chat-bot"),
        ({"expected": {"tok_s": {"chat": {1: "fast"}}}}, "expected.tok_s.chat.1", "text where", "number"),
    ],
)
def test_a_fault_names_key_value_reason_and_remedy(changes, key, reason, remedy):
    found = problems(small(**changes))
    assert list(found) == [key]
    assert found[key].file == "somewhere.yaml"
    assert reason in found[key].reason
    assert remedy in found[key].remedy


def test_whole_floats_are_whole_numbers_and_one_level_is_a_list_of_one():
    experiment = read(small(blocks=3.0, workloads=chat(concurrency=[1, 4.0])), "x")
    assert experiment.blocks == 3
    assert isinstance(experiment.blocks, int)
    assert experiment.workloads[0].concurrency == (1, 4)
    assert read(small(workloads=chat(concurrency=8)), "x").workloads[0].concurrency == (8,)


def test_all_faults_are_told_at_once_and_each_once():
    config = small(blocks="8", titel="x", seed="1e3", workloads=chat(file="no.yaml", concurrency=[1, "2"]))
    config["arms"]["c"] = {"extends": "nobody", "env": {"N": 1}}
    assert set(problems(config)) == {
        "blocks",
        "titel",
        "seed",
        "workloads.chat.concurrency.1",
        "workloads.chat.file",
        "arms.c.env.N",
        "arms.c.extends",
    }


def test_a_value_is_at_fault_for_one_reason_only():
    with pytest.raises(ExperimentError) as caught:
        read(small(workloads=chat(file=5), engine={"lock": False}), "x")
    assert sorted(problem.key for problem in caught.value.problems) == ["engine.lock", "workloads.chat.file"]


def test_faults_of_an_unusable_workload_do_not_repeat_as_dangling_references():
    config = small(workloads={"chat": {"output_tokens": 8}})
    config["hypotheses"] = {"H": {"text": "t", "claims": [{"arm": "a", "than": "b", "is": "higher", "at": 1}]}}
    assert set(problems(config)) == {"workloads.chat.kind", "workloads.chat.concurrency"}


def test_the_message_reads_as_file_line_key_value_reason_remedy(tmp_path):
    path = write(tmp_path, BODY.replace("experiment: small", "experiment: small\nblocks: '4'"))
    with pytest.raises(ExperimentError) as caught:
        read_file(path)
    assert str(caught.value) == (
        "1 fault in the experiment:\n"
        f"  {path}:4: blocks = '4'\n"
        "    text where a whole number is needed\n"
        "    Remedy: write 4 (no quotes, no exponent, no leading zero)"
    )


def test_the_error_survives_pickling():
    with pytest.raises(ExperimentError) as caught:
        read(small(blocks="8"), "x")
    assert pickle.loads(pickle.dumps(caught.value)).problems == caught.value.problems


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "experiment: small",
            "experiment: small\nblocks: 3\nblocks: 4",
            (5, "blocks", "given twice (first on line 4)"),
        ),
        ("experiment: small", "experiment: small\nblocks: 010", (4, "blocks", "octal")),
        ("experiment: small", "experiment: small\nseed: 1:30", (4, "seed", "base-60")),
        ("  a: {settings", "  no: {}\n  a: {settings", (8, "arms.False", "YAML reads no, off, false so")),
        ("  a: {settings", "  2: {}\n  a: {settings", (8, "arms.2", "not text")),
        ("  a: {settings", "  a: [\n  b: {settings", (9, "", "not YAML")),
    ],
)
def test_faults_of_the_text_have_their_line(tmp_path, old, new, expected):
    line, key, reason = expected
    path = write(tmp_path, BODY.replace(old, new))
    with pytest.raises(ExperimentError) as caught:
        read_file(path)
    found = [problem for problem in caught.value.problems if problem.key == key]
    assert len(found) == 1
    assert reason in found[0].reason
    assert found[0].line in (line, line + 1)


def test_read_finds_what_parsing_hides_when_the_source_is_a_file(tmp_path):
    import yaml

    path = write(tmp_path, BODY.replace("experiment: small", "experiment: small\nblocks: 3\nblocks: 4"))
    with pytest.raises(ExperimentError, match="given twice"):
        read(yaml.safe_load(path.read_text()), str(path))


def test_a_value_from_the_command_line_has_no_line(tmp_path):
    path = write(tmp_path, BODY.replace("experiment: small", "experiment: small\nblocks: 3"))
    with pytest.raises(ExperimentError) as caught:
        read_file(path, {"blocks": "many"})
    assert caught.value.problems[0].line is None


@pytest.mark.parametrize("text", ["", "- a\n", "just words\n"])
def test_a_file_that_holds_no_mapping_is_a_fault(tmp_path, text):
    with pytest.raises(ExperimentError, match="no mapping"):
        read_file(write(tmp_path, text))


def test_a_missing_file_a_folder_and_bytes_are_faults(tmp_path):
    with pytest.raises(ExperimentError, match="cannot be read"):
        read_file(tmp_path / "none.yaml")
    with pytest.raises(ExperimentError, match="cannot be read"):
        read_file(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"title: \xe9\n")
    with pytest.raises(ExperimentError, match="not UTF-8"):
        read_file(tmp_path / "latin.yaml")


def test_an_anchor_that_holds_itself_is_a_fault(tmp_path):
    with pytest.raises(ExperimentError, match="refers to itself"):
        read_file(write(tmp_path, BODY + "x-loop: &loop\n  inner: *loop\n"))


def test_keys_with_x_are_left_to_anchors(tmp_path):
    path = write(tmp_path, "x-shared: &shared {tp_size: 1}\n" + BODY.replace("{tp_size: 1}", "*shared"))
    assert read_file(path).arms[0].settings == {"tp_size": 1}


@pytest.mark.parametrize("levels", ["1,4", [1, 4], ["1", "4"], "1, 4"])
def test_levels_of_the_command_line_come_in_every_form(levels):
    experiment = read(small(levels=levels), "x")
    assert experiment.workloads[0].concurrency == (1, 4)


def test_a_workload_without_a_kept_level_is_not_measured():
    workloads = {**chat(), "long": {**chat()["chat"], "concurrency": [2]}}
    experiment = read(small(workloads=workloads, levels=16), "x")
    assert [workload.name for workload in experiment.workloads] == ["chat"]


@pytest.mark.parametrize("only", ["b", ["b"], "b ,"])
def test_only_keeps_the_named_arms(only):
    if only == "b ,":
        assert "only" in problems(small(only=only))
        return
    experiment = read(small(only=only, analysis={"baseline": "a"}), "x")
    assert [arm.slug for arm in experiment.arms] == ["b"]
    assert experiment.analysis["baseline"] is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("arm,concurrency\na,1\n", "line 2 lacks output_tok_s"),
        ("arm,concurrency,output_tok_s\na,one,5\n", "invalid literal"),
        ("arm,concurrency,output_tok_s\na,1,\n", "lacks output_tok_s"),
    ],
)
def test_a_published_table_must_be_one(tmp_path, text, reason):
    (tmp_path / "table.csv").write_text(text)
    found = problems(small(published=str(tmp_path / "table.csv")))
    assert reason in found["published"].reason


def test_a_change_of_comment_leaves_the_experiment_equal(tmp_path):
    first, second = write(tmp_path, BODY), tmp_path / "other.yaml"
    second.write_text("# a comment\n" + BODY)
    assert read_file(first).config_sha256 == read_file(second).config_sha256
