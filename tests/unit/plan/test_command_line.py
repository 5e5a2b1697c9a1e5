"""python -m reckoning.plan, and every experiment in config/ at full size."""

import json
import subprocess
import sys

import jsonschema
import pytest

from reckoning.experiment import read_file
from reckoning.experiment.places import REPOSITORY
from reckoning.plan import make_plan, plan_to_json
from reckoning.plan.__main__ import main

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


def test_a_thousand_launches_are_planned():
    plan = make_plan(read_file(DEFAULT, {"blocks": 250}))
    assert len(plan.launches) == 1000
    assert len({launch.digest for launch in plan.launches}) == 1000
