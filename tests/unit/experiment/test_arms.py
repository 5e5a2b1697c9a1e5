"""Arms: names, inheritance, and one arm per combination of factors."""

import pytest

from reckoning.experiment import ExperimentError, read
from reckoning.experiment.names import slug
from tests.unit.experiment.small import small


def arms_of(arms, **changes):
    return {arm.name: arm for arm in read(small(arms=arms, **changes), "x").arms}


def faults_of(arms, **changes):
    with pytest.raises(ExperimentError) as caught:
        read(small(arms=arms, **changes), "x")
    return {problem.key: problem.reason + " | " + problem.remedy for problem in caught.value.problems}


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("tp4/ep2", "tp4-ep2"),
        ("../x", "x"),
        ("dflash b=16", "dflash-b-16"),
        ("Qwen3.5-397B_fp8.v2", "qwen3-5-397b-fp8-v2"),
        ("é", "e"),
        ("001-K", "001-k"),
        ("<script>alert(1)</script>", "script-alert-1-script"),
        ("日本", ""),
        ("a" * 100, "a" * 60),
        ("..", ""),
    ],
)
def test_slugs_are_safe_and_labels_are_kept(label, expected):
    assert slug(label) == expected
    if expected:
        assert arms_of({label: {}})[label].slug == expected


@pytest.mark.parametrize("pair", [("tp4/ep2", "tp4-ep2"), ("Arm", "arm"), ("é", "e"), ("a" * 61, "a" * 62)])
def test_two_labels_of_one_folder_are_a_fault(pair):
    found = faults_of({label: {} for label in pair})
    assert list(found) == [f"arms.{pair[1]}"]
    assert repr(pair[0]) in found[f"arms.{pair[1]}"]


def test_a_label_without_a_folder_is_a_fault():
    assert "can be used for a folder" in faults_of({"日本": {}})["arms.日本"]


def test_a_child_changes_one_line_of_its_parent():
    arms = {
        "base": {"settings": {"tp_size": 8, "disable_cuda_graph": True}, "env": {"A": "1"}, "patches": ["p"]},
        "child": {"extends": "base", "settings": {"disable_cuda_graph": None}, "env": {"A": None, "B": "2"}},
    }
    child = arms_of(arms)["child"]
    assert child.settings == {"tp_size": 8}
    assert child.env == {"B": "2"}
    assert child.patches == ("p",)
    assert child.parents == ("base",)


def test_patches_are_added_to_the_engines_and_taken_away_with_a_minus():
    arms = {"base": {"patches": ["two"]}, "child": {"extends": "base", "patches": ["-one", "three"]}}
    found = arms_of(arms, engine={"lock": "sglang-0.5.12.post1-cpu", "patches": ["one"]})
    assert found["base"].patches == ("one", "two")
    assert found["child"].patches == ("three", "two")


def test_of_two_parents_the_second_overrides_only_what_it_changed():
    arms = {
        "big": {"settings": {"tp_size": 8}},
        "eager": {"settings": {"disable_cuda_graph": True}},
        "both": {"extends": ["big", "eager"]},
        "text": {"extends": "big, eager"},
    }
    found = arms_of(arms, server={"settings": {"tp_size": 1, "dtype": "auto"}})
    assert found["both"].settings == {"tp_size": 8, "dtype": "auto", "disable_cuda_graph": True}
    assert found["text"].settings == found["both"].settings


def test_an_arm_may_extend_one_that_stands_below_it_and_abstract_arms_are_not_planned():
    arms = {"child": {"extends": "base"}, "base": {"abstract": True, "settings": {"tp_size": 4}}}
    found = arms_of(arms)
    assert list(found) == ["child"]
    assert found["child"].settings == {"tp_size": 4}


def test_arms_that_extend_each_other_are_a_fault():
    found = faults_of({"a": {"extends": "b"}, "b": {"extends": "c"}, "c": {"extends": "a"}})
    assert "a -> b -> c -> a" in found["arms.c.extends"]


def test_a_parent_that_does_not_exist_is_a_fault_with_a_suggestion():
    assert "did you mean base?" in faults_of({"base": {}, "x": {"extends": "bose"}})["arms.x.extends"]


def test_an_empty_arm_is_the_shared_server():
    found = arms_of({"plain": None}, server={"settings": {"dtype": "auto"}})
    assert found["plain"].settings == {"dtype": "auto"}


def test_vary_makes_one_arm_per_combination_with_its_name():
    arms = {
        "base": {"settings": {"dtype": "auto"}},
        "grid": {
            "extends": "base",
            "name": "tp{tp_size}-{graphs}",
            "vary": {"tp_size": [4, 8], "graphs": {"on": {}, "off": {"disable_cuda_graph": True}}},
        },
    }
    found = arms_of(arms)
    assert list(found) == ["base", "tp4-on", "tp4-off", "tp8-on", "tp8-off"]
    assert found["tp8-off"].settings == {"dtype": "auto", "tp_size": 8, "disable_cuda_graph": True}
    assert found["tp4-on"].settings == {"dtype": "auto", "tp_size": 4}
    assert found["tp4-on"].parents == ("grid",)


def test_vary_without_a_pattern_names_arms_by_factor_and_level():
    assert list(arms_of({"g": {"vary": {"ep_size": [1, 8], "enable_eplb": [True, False]}}})) == [
        "g-ep-size-1-enable-eplb-on",
        "g-ep-size-1-enable-eplb-off",
        "g-ep-size-8-enable-eplb-on",
        "g-ep-size-8-enable-eplb-off",
    ]


@pytest.mark.parametrize(
    ("arm", "key", "text"),
    [
        ({"vary": {"tp_size": []}}, "arms.g.vary.tp_size", "without levels"),
        ({"vary": {"tp_size": [1]}, "name": "x"}, "arms.g.name", "every varied factor"),
        ({"name": "x{y}"}, "arms.g.name", "without vary"),
        ({"vary": {"f": {"on": 5}}}, "arms.g.vary.f.on", "mapping of settings"),
        ({"vary": {"f": {"on": {"port": 5}}}}, "arms.g.vary.f.port", "workflow itself sets"),
    ],
)
def test_faults_of_vary(arm, key, text):
    assert text in faults_of({"g": arm})[key]


@pytest.mark.parametrize(
    ("settings", "key", "text"),
    [
        ({"tp_size": "2"}, "tp_size", "without quotes"),
        ({"tp_size": "08"}, "tp_size", "leading zero"),
        ({"mem_fraction_static": "1e-1"}, "mem_fraction_static", "exponent"),
        ({"tp-size": 2}, "tp-size", "write tp_size"),
        ({"--tp-size": 2}, "--tp-size", "write tp_size"),
        ({"port": 30000}, "port", "a free port is chosen"),
        ({"api_key": "k"}, "api_key", "need no key"),
        ({"model_path": "m"}, "model_path", "set model.path"),
    ],
)
def test_faults_of_settings(settings, key, text):
    assert text in faults_of({"g": {"settings": settings}})[f"arms.g.settings.{key}"]


def test_text_that_may_look_like_a_number_stays_text():
    assert arms_of({"g": {"settings": {"revision": "1234567"}}})["g"].settings == {"revision": "1234567"}


@pytest.mark.parametrize("name", ["HF_TOKEN", "OPENAI_API_KEY", "DB_PASSWORD", "aws_secret"])
def test_secrets_are_refused_and_not_repeated(name):
    with pytest.raises(ExperimentError) as caught:
        read(small(arms={"g": {"env": {name: "hunter2"}}}), "x")
    assert caught.value.problems[0].key == f"arms.g.env.{name}"
    assert "hunter2" not in str(caught.value)


def test_variables_about_tokens_are_no_secrets():
    env = {"SGLANG_MAX_TOKENS": "5", "TOKENIZERS_PARALLELISM": "false"}
    assert arms_of({"g": {"env": env}})["g"].env == env


def test_a_variable_must_have_a_name_that_a_shell_takes():
    assert "letters, digits" in faults_of({"g": {"env": {"A-B": "x"}}})["arms.g.env.A-B"]


def test_only_abstract_arms_are_a_fault():
    assert "every arm is abstract" in faults_of({"g": {"abstract": True}})["arms"]
