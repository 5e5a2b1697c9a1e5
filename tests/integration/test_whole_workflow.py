"""The whole workflow on a scripted server as an existing engine: order, failures, and what is repeated."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from .conftest import ROOT, Workspace, copy_repository

pytestmark = pytest.mark.slow

LAUNCHER = """
import os, runpy, sys
sys.argv = ["scripted_server.py", *sys.argv[1:], *(["--fault", os.environ["FAULT"]] if os.environ.get("FAULT") else [])]
runpy.run_path({server!r}, run_name="__main__")
"""

CONFIG = {
    "schema_version": 1,
    "experiment": "whole",
    "title": "Two arms on a scripted server",
    "blocks": 2,
    "repeats": 1,
    "seed": 3,
    "machine": {"device": "cpu"},
    "model": {"path": "models/scripted", "served_name": "scripted"},
    "arms": {
        "one": {"settings": {"tp_size": 1}},
        "<script>alert(1)</script>": {"settings": {"tp_size": 1, "max_running_requests": 8}},
        "dead-on-arrival": {"settings": {"tp_size": 1}, "env": {"FAULT": "die-at-start=3"}},
    },
    "workloads": {
        "chat": {
            "kind": "prompts",
            "file": "resources/prompts/chat.yaml",
            "output_tokens": 8,
            "concurrency": [1, 2],
            "requests_per_stream": 2,
        }
    },
    "limits": {"start_stall_s": 20, "start_total_s": 60, "stop_grace_s": 1},
    "analysis": {"baseline": "one"},
}


@pytest.fixture(scope="module")
def engine_python(tmp_path_factory) -> Path:
    """Make an interpreter in which `python -m sglang.launch_server` is the scripted server."""
    folder = tmp_path_factory.mktemp("engine")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "sglang").mkdir()
    (site / "sglang/__init__.py").write_text('__version__ = "0.5.12.post1"\n')
    server = str(ROOT / "tests/faults/scripted_server.py")
    (site / "sglang/launch_server.py").write_text(LAUNCHER.format(server=server))
    info = site / "sglang-0.5.12.post1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.12.post1\n")
    (info / "RECORD").write_text("")
    return folder / "bin/python"


@pytest.fixture(scope="module")
def experiment(tmp_path_factory, engine_python) -> "Experiment":
    """Run the experiment once, from nothing to the report."""
    folder = copy_repository(tmp_path_factory.mktemp("whole") / "reckoning")
    (folder / "models/scripted").mkdir(parents=True)
    (folder / "models/scripted/config.json").write_text('{"model_type": "scripted"}')
    state = tmp_path_factory.mktemp("state")
    made = Experiment(Workspace(folder), engine_python, state)
    done = made.run()
    assert done.returncode == 0, done.stdout + done.stderr
    return made


class Experiment:
    """The experiment's folder, with its configuration written anew for each run."""

    def __init__(self, workspace: Workspace, python: Path, state: Path) -> None:
        self.workspace, self.state = workspace, state
        self.config = {**CONFIG, "engine": {"kind": "existing", "python": str(python), "version": "0.5.12.post1"}}
        self.results = workspace.path / "results/whole"

    def run(self, *arguments: str, change=None, name: str = "whole") -> subprocess.CompletedProcess:
        config = json.loads(json.dumps(self.config))
        if change:
            change(config)
        text = yaml.safe_dump(config, sort_keys=False)
        (self.workspace.path / f"config/{name}.yaml").write_text(text)
        env = {"RECKONING_STATE_DIR": str(self.state)}
        return self.workspace.snakemake(*arguments, "--configfile", f"config/{name}.yaml", timeout=280, env=env)

    def repeated(self, *arguments: str, change=None) -> list[str]:
        """Return the launches that a dry run would start."""
        done = self.run("-n", *arguments, change=change)
        assert done.returncode == 0, done.stdout + done.stderr
        return sorted(line.split(": Launch ")[1] for line in done.stdout.splitlines() if ": Launch " in line)

    def outcome(self, arm: str, block: int) -> dict:
        return json.loads((self.results / f"launches/{arm}/block{block}/outcome.json").read_text())


def launches_of(arm: str) -> list[str]:
    return [f"{arm} in block {block}" for block in (1, 2)]


def slug_of_script(experiment: Experiment) -> str:
    plan = json.loads((experiment.results / "plan.json").read_text())
    (slug,) = (arm["slug"] for arm in plan["arms"] if "<script>" in arm["name"])
    return slug


def test_launches_ran_in_the_planned_order(experiment):
    plan = json.loads((experiment.results / "plan.json").read_text())
    planned = [(launch["arm"], launch["block"]) for launch in plan["launches"]]
    started = sorted(planned, key=lambda launch: experiment.outcome(*launch)["attempts"][0]["started_at"])
    assert started == planned


def test_a_failed_arm_stops_neither_the_others_nor_the_report(experiment):
    assert [experiment.outcome("one", block)["status"] for block in (1, 2)] == ["ok", "ok"]
    failure = experiment.outcome("dead-on-arrival", 1)["failure"]
    assert failure["class"]
    assert failure["remedy"]
    page = (experiment.workspace.path / "report/findings.html").read_text()
    assert "dead-on-arrival" in page
    assert "CPU demonstration" in page


def test_an_arm_name_with_markup_is_a_safe_folder_and_escaped_text(experiment):
    slug = slug_of_script(experiment)
    assert experiment.outcome(slug, 1)["status"] == "ok"
    page = (experiment.workspace.path / "report/findings.html").read_text()
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_every_file_that_architecture_names_is_there(experiment):
    launch = experiment.results / "launches/one/block1"
    names = ["plan.json", "environment_facts.json", "environment.json", "engine.json", "findings.json", "arms/one.json"]
    names += ["tables/points.parquet", "tables/points.csv"]
    of_launch = ["outcome.json", "points.json", "requests.parquet", "server_info.json", "server.log"]
    of_launch += ["telemetry.parquet", "host.parquet"]
    for path in [*(experiment.results / name for name in names), *(launch / name for name in of_launch)]:
        assert path.is_file(), path
        if path.suffix == ".json" and path.name != "server_info.json":
            assert isinstance(json.loads(path.read_text())["schema_version"], int), path


def test_a_second_run_does_nothing(experiment):
    done = experiment.run("report/findings.html")
    assert done.returncode == 0
    assert "Nothing to be done" in done.stdout + done.stderr


def test_a_title_repeats_no_launch(experiment):
    assert experiment.repeated(change=lambda config: config.update(title="Another title")) == []


def test_other_server_arguments_repeat_that_arm_alone(experiment):
    def change(config):
        config["title"] = "Another title"
        config["arms"]["one"]["settings"]["max_running_requests"] = 4

    assert experiment.repeated(change=change) == launches_of("one")


def test_a_new_arm_repeats_no_other(experiment):
    def change(config):
        config["arms"]["two"] = {"settings": {"tp_size": 1, "max_running_requests": 3}}

    assert experiment.repeated(change=change) == launches_of("two")


def test_another_block_repeats_no_other(experiment):
    repeated = experiment.repeated(change=lambda config: config.update(blocks=3))
    assert repeated == sorted(f"{arm} in block 3" for arm in ("one", "dead-on-arrival", slug_of_script(experiment)))


def test_other_points_repeat_every_launch(experiment):
    repeated = experiment.repeated(change=lambda config: config["workloads"]["chat"].update(output_tokens=9))
    assert len(repeated) == 6


def test_one_arm_is_measured_again_on_request_even_with_a_new_title(experiment):
    def retitle(config):
        config["title"] = "Another title"

    assert experiment.repeated("results/whole/arms/one.json", "-R", "measure", change=retitle) == launches_of("one")


def test_two_experiments_stay_apart(experiment):
    def change(config):
        config["experiment"] = "other"
        config["blocks"] = 1
        config["arms"] = {"lone": {"settings": {"tp_size": 1}}}
        config["analysis"]["baseline"] = "lone"

    before = {path: path.stat().st_mtime_ns for path in experiment.results.rglob("*") if path.is_file()}
    done = experiment.run("report/findings.html", change=change, name="other")
    assert done.returncode == 0, done.stdout + done.stderr
    page = (experiment.workspace.path / "report/findings.html").read_text()
    assert "lone" in page
    assert "dead-on-arrival" not in page
    assert before == {path: path.stat().st_mtime_ns for path in experiment.results.rglob("*") if path.is_file()}
    assert experiment.run("report/findings.html").returncode == 0
    assert "dead-on-arrival" in (experiment.workspace.path / "report/findings.html").read_text()
