"""Hypotheses become one claim per pair of arms with explicit levels."""

import pytest

from reckoning.experiment import ExperimentError, read
from tests.unit.experiment.small import chat, small

ARMS = {"a": {}, "b": {"settings": {"tp_size": 2}}, "C 3": {"settings": {"tp_size": 4}}}


def claims(claim, **hypothesis):
    whole = {"text": "t", "claims": [claim], **hypothesis}
    return read(small(arms=ARMS, hypotheses={"H1": whole}), "x").hypotheses[0].claims


def fault(claim, **hypothesis):
    with pytest.raises(ExperimentError) as caught:
        claims(claim, **hypothesis)
    return caught.value.problems


@pytest.mark.parametrize(
    ("at", "levels"),
    [
        (4, (4,)),
        ([1, 16], (1, 16)),
        ("every", (1, 4, 16)),
        ("peak", "peak"),
        ({"from": 4}, (4, 16)),
        ({"to": 4}, (1, 4)),
        ({"from": 2, "to": 5}, (4,)),
    ],
)
def test_levels_are_made_explicit(at, levels):
    (claim,) = claims({"arm": "a", "than": "b", "is": "higher", "at": at})
    assert claim.at == levels
    assert (claim.arm, claim.reference, claim.workload, claim.metric) == ("a", "b", "chat", "output_tok_s")


def test_all_and_lists_become_one_claim_each_by_slug():
    assert [claim.reference for claim in claims({"arm": "a", "than": "all", "is": "higher", "at": 1})] == ["b", "c-3"]
    assert [claim.reference for claim in claims({"arm": "b", "than": ["a", "C 3"], "is": "lower", "at": 1})] == [
        "a",
        "c-3",
    ]


def test_margins_belong_to_equivalence_and_default_to_the_analysis():
    assert claims({"arm": "a", "than": "b", "is": "equivalent", "at": 1})[0].margin == 0.03
    assert claims({"arm": "a", "than": "b", "is": "not-lower", "at": 1, "margin": 0.1})[0].margin == 0.1
    higher = claims({"arm": "a", "than": "b", "is": "higher", "at": 1, "ratio": 2})[0]
    assert (higher.margin, higher.ratio) == (None, 2.0)


def test_levels_stay_as_registered_when_the_command_line_measures_fewer():
    config = small(
        hypotheses={"H": {"text": "t", "claims": [{"arm": "a", "than": "b", "is": "higher", "at": "every"}]}}
    )
    config["levels"] = 1
    assert read(config, "x").hypotheses[0].claims[0].at == (1, 4, 16)


@pytest.mark.parametrize(
    ("claim", "key", "text"),
    [
        ({"arm": "x", "than": "b", "is": "higher", "at": 1}, "arm", "no arm of this name"),
        ({"arm": "a", "than": "bb", "is": "higher", "at": 1}, "than", "no arm of this name"),
        ({"arm": "a", "than": "a", "is": "higher", "at": 1}, "than", "compared with itself"),
        ({"arm": "a", "than": "b", "is": "better", "at": 1}, "is", "not one of the allowed"),
        ({"arm": "a", "than": "b", "is": "higher", "at": 3}, "at", "does not measure this level"),
        ({"arm": "a", "than": "b", "is": "higher", "at": "best"}, "at", "not a level"),
        ({"arm": "a", "than": "b", "is": "higher", "at": {"from": 100}}, "at", "no level of workload chat"),
        ({"arm": "a", "than": "b", "is": "higher"}, "at", "required"),
    ],
)
def test_faults_of_claims(claim, key, text):
    (problem,) = fault(claim)
    assert problem.key == f"hypotheses.H1.claims.0.{key}"
    assert text in problem.reason


def test_a_workload_that_does_not_exist_is_a_fault():
    (problem,) = fault({"arm": "a", "than": "b", "is": "higher", "at": 1}, workload="chit")
    assert (problem.key, problem.remedy) == ("hypotheses.H1.workload", "did you mean chat?")


def test_a_hypothesis_may_name_its_workload():
    workloads = {**chat(), "long": {**chat()["chat"], "concurrency": [2]}}
    whole = {"text": "t", "workload": "long", "claims": [{"arm": "a", "than": "b", "is": "lower", "at": "every"}]}
    (claim,) = read(small(workloads=workloads, hypotheses={"H": whole}), "x").hypotheses[0].claims
    assert (claim.workload, claim.at) == ("long", (2,))
