"""Synthetic experiments, written and analysed once per test run."""

import json
from functools import cache

import jsonschema
import pytest

from reckoning.analyse import analyse_experiment
from reckoning.analyse.synthetic import SCENARIOS, write_experiment
from reckoning.experiment.places import REPOSITORY
from reckoning.files import read_json

SCHEMA = json.loads((REPOSITORY / "workflow" / "schemas" / "findings.schema.json").read_text())


def faults_of(findings):
    """Return what the schema has against findings."""
    return [
        (list(e.absolute_path), e.message[:200]) for e in jsonschema.Draft202012Validator(SCHEMA).iter_errors(findings)
    ]


def strict(path):
    """Read JSON and refuse NaN and Infinity, as a browser does."""

    def refuse(name):
        raise AssertionError(f"{path} holds {name}")

    return json.loads(path.read_text(), parse_constant=refuse)


@pytest.fixture(scope="session")
def analysed(tmp_path_factory):
    """Return a function: name of a scenario -> (folder, findings, truth)."""
    root = tmp_path_factory.mktemp("synthetic")

    @cache
    def make(name):
        folder = write_experiment(root / name, SCENARIOS[name])
        analyse_experiment(folder)
        return folder, strict(folder / "findings.json"), read_json(folder / "truth.json")

    return make
