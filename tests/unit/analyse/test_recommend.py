"""The command that a recommendation names is the one that was measured."""

from reckoning.analyse.design import Arm
from reckoning.analyse.evidence import Launch
from reckoning.analyse.recommend import command_line
from reckoning.launch.command import SETTINGS_OF_OURS, settings_of_ours

ARM = Arm("a", "A", command=("numactl", "{python}", "-m", "x", "--port", "{port}"), env={"B": "1 2"})
STARTED = ("numactl", "/engine/bin/python", "-m", "x", "--port", "31170")


def launch(status: str, arm: str = "a") -> Launch:
    env = {"TMPDIR": "/t", "PYTHONUNBUFFERED": "1", "B": "1 2", "PYTHONPATH": "/overlay"}
    return Launch(arm, 1, 0, status, command=STARTED, env=env)


def test_it_has_the_interpreter_and_the_variables_of_the_launch() -> None:
    line = command_line(ARM, [launch("failed"), launch("ok", "other"), launch("ok")])
    assert line == "B='1 2' PYTHONPATH=/overlay numactl /engine/bin/python -m x --port 30000"


def test_an_arm_that_never_ran_has_its_planned_command() -> None:
    for launches in ([], [launch("failed")], [launch("ok", "other")]):
        assert command_line(ARM, launches) == "B='1 2' numactl python -m x --port 30000"


def test_what_is_left_out_is_what_every_launch_gets(tmp_path) -> None:
    assert tuple(settings_of_ours(tmp_path, {})) == SETTINGS_OF_OURS
