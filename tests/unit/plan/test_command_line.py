"""python -m reckoning.plan, and every experiment in config/ at full size."""

import json
import subprocess
import sys

import jsonschema
import pytest
import yaml

from reckoning.experiment import read, read_file
from reckoning.experiment.places import REPOSITORY
from reckoning.experiment.schema import experiment_schema
from reckoning.plan import make_plan, plan_to_json
from reckoning.plan.__main__ import main
from reckoning.plan.surroundings import Surroundings

CONFIGS = sorted((REPOSITORY / "config").glob("*.yaml"))
SCHEMA = json.loads((REPOSITORY / "workflow" / "schemas" / "plan.schema.json").read_text())
DEFAULT = str(REPOSITORY / "config" / "config.yaml")


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.stem)
def test_every_experiment_plans_at_full_size(config):
    plan = make_plan(read_file(config))
    jsonschema.validate(plan_to_json(plan), SCHEMA)
    assert plan.runnable
    assert len(plan.launches) == plan.blocks * len(plan.runnable)
    for arm in plan.arms:
        assert arm.status == "runnable" or any(problem.level in ("reject", "unavailable") for problem in arm.problems)


def test_tables_for_people(capsys):
    assert main([DEFAULT]) == 0
    shown = capsys.readouterr().out
    for text in (
        "tp2-ep4",
        "rejected",
        "unavailable",
        "[ep-divides-tp]",
        "Remedy:",
        "12 launches in 3 randomised",
        "Time: about",
    ):
        assert text in shown
    assert "pp-no-overlap" not in shown
    assert main([DEFAULT, "--all"]) == 0
    assert "pp-no-overlap" in capsys.readouterr().out


def test_json_for_programs(capsys):
    assert main([DEFAULT, "--json", "--config", "blocks=5", "levels=1"]) == 0
    data = json.loads(capsys.readouterr().out)
    jsonschema.validate(data, SCHEMA)
    assert data["blocks"] == 5
    assert {point["concurrency"] for launch in data["launches"] for point in launch["points"]} == {1}


def test_a_broken_experiment_ends_with_2_and_its_faults(capsys, tmp_path):
    path = tmp_path / "broken.yaml"
    path.write_text("schema_version: 1\nexperiment: x\n")
    assert main([str(path)]) == 2
    assert "model" in capsys.readouterr().err
    assert main([DEFAULT, "--config", "blokcs=2"]) == 2
    assert "did you mean blocks?" in capsys.readouterr().err
    assert main([]) == 2


def test_nothing_that_can_run_ends_with_1(capsys):
    assert main([DEFAULT, "--config", "only=tp2-ep4"]) == 1
    assert "Nothing can run" in capsys.readouterr().out


def test_a_malformed_override_is_refused():
    with pytest.raises(SystemExit):
        main([DEFAULT, "--config", "blocks"])


def test_it_runs_as_a_module_from_any_folder(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "reckoning.plan", DEFAULT, "--json"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
        env={"PYTHONPATH": str(REPOSITORY / "scripts"), "PATH": ""},
    )
    assert json.loads(done.stdout)["experiment"] == "cpu"


def yaml_of_the_manual():
    text = (REPOSITORY / "config" / "README.md").read_text(encoding="utf-8")
    return [block.partition("```")[0] for block in text.split("```yaml")[1:]]


def test_the_smallest_file_of_the_manual_plans(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml_of_the_manual()[0])
    plan = make_plan(read_file(path), Surroundings(version="0.5.12.post1"))
    assert [(arm.slug, arm.status) for arm in plan.arms] == [("tp8", "runnable"), ("ep8", "runnable")]


def test_arms_and_hypotheses_of_the_manual_are_valid(tmp_path):
    smallest, arms, sweep, hypotheses = yaml_of_the_manual()
    whole = yaml.safe_load(smallest)
    whole.update(yaml.safe_load(arms))
    found = {arm.name: arm for arm in read(whole, "manual").arms}
    assert found["tp8-graphs"].settings == {"attention_backend": "triton", "mem_fraction_static": 0.89, "tp_size": 8}
    assert found["ep8-dflash"].settings["speculative_algorithm"] == "DFLASH"
    grid = {"base": {"settings": {}}, **yaml.safe_load(sweep)["arms"]}
    assert [arm.name for arm in read({**whole, "arms": grid}, "manual").arms][1:] == [
        *("tp4-on", "tp4-off", "tp8-on", "tp8-off"),
    ]
    levels = {"chat": {**whole["workloads"]["chat"], "concurrency": [1, 128, 256]}}
    registered = {**whole, "arms": {name: {} for name in ("ep8", "ep4", "tp8-tuned")}, "workloads": levels}
    registered |= yaml.safe_load(hypotheses)
    assert read(registered, "manual").hypotheses[0].claims[0].at == (128, 256)


def test_every_key_of_the_schema_is_in_the_manual():
    text = (REPOSITORY / "config" / "README.md").read_text(encoding="utf-8")
    schema = experiment_schema()
    sections = [schema, *(schema["$defs"][name] for name in ("engine", "machine", "model", "arm", "workload"))]
    keys = {key for section in sections for key in section["properties"]}
    keys |= {key for name in ("analysis", "limits", "expected") for key in schema["$defs"][name]["properties"]}
    assert not {key for key in keys if key not in text}


def test_a_thousand_launches_are_planned():
    plan = make_plan(read_file(DEFAULT, {"blocks": 250}))
    assert len(plan.launches) == 1000
    assert len({launch.digest for launch in plan.launches}) == 1000
