from reckoning.launch.arguments import differences, same


def test_the_silent_48_of_dflash_is_a_difference_also_when_nothing_was_asked():
    info = {"max_running_requests": 48, "speculative_algorithm": "DFLASH"}
    found = differences({"speculative_algorithm": "DFLASH"}, info)
    assert found[0] | {"note": ""} == {
        "argument": "max_running_requests",
        "requested": None,
        "effective": 48,
        "note": "",
    }
    assert "48" in found[0]["note"]
    assert differences({"tp_size": 1}, info) == []


def test_deepep_makes_ep_equal_to_tp():
    settings = {"tp_size": 8, "moe_a2a_backend": "deepep"}
    assert differences(settings, settings | {"ep_size": 8})[0]["effective"] == 8
    assert differences(settings | {"ep_size": 8}, settings | {"ep_size": 8}) == []


def test_the_schedulers_own_limit_goes_before_the_argument():
    info = {"max_running_requests": 256, "internal_states": [{"effective_max_running_requests_per_dp": 24}] * 2}
    assert differences({"max_running_requests": 256}, info)[0]["effective"] == 48
    assert differences({"max_running_requests": 48}, info) == []


def test_chunked_prefill_is_divided_by_dp():
    found = differences({"dp_size": 8, "chunked_prefill_size": 8192}, {"dp_size": 8, "chunked_prefill_size": 1024})
    assert [(one["argument"], one["requested"], one["effective"]) for one in found] == [
        ("chunked_prefill_size", 8192, 1024)
    ]


def test_pipeline_parallelism_switches_the_overlap_schedule_off():
    found = differences({"pp_size": 2}, {"pp_size": 2, "disable_overlap_schedule": True})
    assert found[0]["argument"] == "disable_overlap_schedule"
    assert differences({"pp_size": 1}, {"pp_size": 1, "disable_overlap_schedule": True}) == []


def test_unreported_arguments_are_not_compared():
    assert differences({"tp_size": 2}, {}) == []


def test_spellings_of_one_value():
    assert same(1, 1.0) and same("8", 8) and same([1, 2], (1, "2")) and same(True, "true") and same("FP8", "fp8")
    assert not same(1, True) and not same([1], [1, 2]) and not same("a", "b") and not same(None, 48)
