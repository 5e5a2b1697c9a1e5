"""An engine that is there already is asked itself which arguments it understands, once."""

import os
import stat
import sys

import pytest

from reckoning.experiment import read
from reckoning.plan import surroundings
from tests.unit.experiment.small import small

FAKE = """#!{python}
import json, sys
open({log!r}, "a").write("asked\\n")
if "-c" in sys.argv:
    print("7.7.7")
elif {works}:
    flag = {{"dest": "tp_size", "options": ["--tp-size"], "kind": "value", "type": "int", "choices": None,
            "default": 1, "required": False, "deprecated": False}}
    print(json.dumps({{"sglang_version": "7.7.7", "flags": [flag]}}))
else:
    sys.exit("no module named sglang")
"""


@pytest.fixture
def engine(tmp_path, monkeypatch):
    monkeypatch.setattr(surroundings, "REPOSITORY", tmp_path)
    surroundings.installed_version.cache_clear()

    def made(works):
        program, log = tmp_path / "python-of-engine", tmp_path / "log"
        program.write_text(FAKE.format(python=sys.executable, log=str(log), works=works))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        experiment = read(small(engine={"kind": "existing", "python": os.fspath(program)}), "x")
        return experiment, log

    yield made
    surroundings.installed_version.cache_clear()


def test_it_is_asked_once_and_its_answer_is_kept(engine):
    experiment, log = engine(works=True)
    version = surroundings.installed_version(experiment.engine.python)
    assert version == "7.7.7"
    log.unlink()
    for _ in range(3):
        table = surroundings.flag_table(experiment, version)
        assert list(table.flags) == ["tp_size"]
        assert experiment.engine.python in table.source
    assert log.read_text() == "asked\n"


def test_one_that_cannot_say_is_not_asked_again_and_the_record_serves(engine):
    experiment, log = engine(works=False)
    for _ in range(3):
        table = surroundings.flag_table(experiment, "0.5.12.post1")
        assert table.source == "recorded for SGLang 0.5.12.post1"
    assert log.read_text() == "asked\n"


def test_an_engine_that_changed_is_asked_again(engine):
    experiment, log = engine(works=False)
    surroundings.flag_table(experiment, "0.5.12.post1")
    experiment, _ = engine(works=True)
    os.utime(experiment.engine.python, ns=(1, 1))
    assert list(surroundings.flag_table(experiment, "0.5.12.post1").flags) == ["tp_size"]
    assert log.read_text() == "asked\nasked\n"
