def test_a_healthy_server_is_measured(bench):
    outcome = bench.launch(bench.plan())
    assert outcome["status"] == "ok", outcome["failure"]
    assert outcome["points"] == {"planned": 2, "measured": 2, "failed": 0}
    print(outcome, bench.said)
