"""Whole experiments with a known truth: what is found, what is refused, and that nothing breaks on partial data."""

import math
from dataclasses import replace

import pandas as pd
import pytest

from reckoning.analyse import analyse_experiment
from reckoning.analyse.design import Arm, Design
from reckoning.analyse.effects import plain_counterpart
from reckoning.analyse.synthetic import SCENARIOS, write_experiment
from reckoning.files import read_json, write_json
from tests.unit.analyse.conftest import faults_of


def texts(findings, kind):
    return [f["text"] for f in findings["findings"] if f["kind"] == kind]


def codes(findings):
    return {r["code"] for r in findings["refusals"]}


@pytest.mark.parametrize("name", sorted(set(SCENARIOS) - {"full"}))
def test_every_scenario_gives_findings_that_fit_the_schema(analysed, name):
    folder, findings, _ = analysed(name)
    assert faults_of(findings) == []
    assert [f["rank"] for f in findings["findings"]] == list(range(1, len(findings["findings"]) + 1))
    assert findings["provenance"]["kind"] == "synthetic"
    for table in ("points", "launches", "estimates", "contrasts", "variance", "quantiles"):
        pd.read_parquet(folder / "tables" / f"{table}.parquet")
        assert (folder / "tables" / f"{table}.csv").exists()
    assert pd.read_parquet(folder / "tables" / "distributions.parquet").columns[:3].tolist() == [
        "arm",
        "workload",
        "concurrency",
    ]


class TestFull:
    def test_estimates_hold_the_truth_as_often_as_promised(self, analysed):
        _, findings, truth = analysed("full")
        inside = [
            e["low"] <= truth["output_tok_s"][e["arm"]][str(e["concurrency"])] <= e["high"]
            for e in findings["estimates"]
            if e["metric"] == "output_tok_s"
        ]
        assert len(inside) == 50
        # arms of one block share its luck, so the 50 are not independent: the bound is wide
        assert sum(inside) >= 40

    def test_variance_components_hold_the_truth(self, analysed):
        _, findings, truth = analysed("full")
        pooled = [v for v in findings["variance"] if v["arm"] is None and v["metric"] == "output_tok_s"]
        assert sum(v["sigma_repeat_low"] <= truth["sigma_repeat"] <= v["sigma_repeat_high"] for v in pooled) >= 3
        assert sum(v["sigma_launch_low"] <= 0.008 <= v["sigma_launch_high"] for v in pooled) >= 3

    def test_winners_differ_by_use(self, analysed):
        _, findings, _ = analysed("full")
        latency, throughput = findings["recommendations"]
        assert (latency["use"], latency["arm"], latency["concurrency"], latency["certainty"]) == (
            "latency", "ep8-dflash", 1, "shown",
        )  # fmt: skip
        assert (throughput["use"], throughput["certainty"]) == ("throughput", "tie")
        assert {throughput["arm"], *throughput["tied_with"]} == {"ep4", "ep8"}
        assert "equivalent within 3 %" in throughput["text"]

    def test_the_command_is_the_plans_without_its_placeholders(self, analysed):
        _, findings, _ = analysed("full")
        assert findings["recommendations"][0]["command"] == (
            "python -m sglang.launch_server --model-path models/kimi-k2.6 --port 30000 --tp-size=8 --ep-size=8 "
            "--speculative-algorithm=DFLASH --speculative-dflash-block-size=8"
        )

    def test_patches_are_named_beside_the_command(self, tmp_path):
        folder = write_experiment(tmp_path / "one", replace(SCENARIOS["one-arm"], levels=(1,)))
        plan = read_json(folder / "plan.json")
        plan["arms"][0]["patches"] = ["sglang-dflash-ep-cuda-graph", "sglang-pp-start-layer"]
        write_json(folder / "plan.json", plan)
        text = analyse_experiment(folder)["recommendations"][0]["text"]
        assert text.endswith("The engine needs the patches sglang-dflash-ep-cuda-graph and sglang-pp-start-layer.")

    def test_hypotheses_end_as_the_truth_has_them(self, analysed):
        _, findings, _ = analysed("full")
        verdicts = {h["id"]: h["verdict"] for h in findings["hypotheses"]}
        assert verdicts == {
            "H1": "supported", "H2": "supported", "H3": "supported", "H4": "supported", "H7": "not-tested",
        }  # fmt: skip
        assert "ddtree did not run" in findings["hypotheses"][-1]["answer"]

    def test_the_crossover_lies_in_its_bracket(self, analysed):
        """tp8-tuned leads at C=32 (668 to 657 tok/s), ep4 from C=64: the true curves cross at C=37."""
        _, findings, _ = analysed("full")
        found = next(c for c in findings["crossovers"] if {c["arm"], c["reference"]} == {"ep4", "tp8-tuned"})
        assert found["answer"] == "crosses"
        (bracket,) = found["brackets"]
        assert bracket["low"] <= 37 <= bracket["high"]
        assert (bracket["leads_below"], bracket["leads_above"]) == ("tp8-tuned", "ep4")

    def test_factor_effects_hold_the_truth(self, analysed):
        _, findings, truth = analysed("full")
        true = truth["output_tok_s"]
        graphs = [
            f for f in findings["factors"]
            if f["factor"] == "disable_cuda_graph" and f["arm"] == "tp8-graphs" and f["metric"] == "output_tok_s"
        ]  # fmt: skip
        assert {f["kind"] for f in graphs} == {"single"}
        inside = [
            f["low"]
            <= true["tp8-graphs"][str(f["concurrency"])] / true["tp8-eager"][str(f["concurrency"])]
            <= f["high"]
            for f in graphs
        ]
        assert len(inside) == 5
        assert sum(inside) >= 4

    def test_the_interaction_is_a_ratio_of_ratios(self, analysed):
        _, findings, truth = analysed("full")
        found = next(
            f for f in findings["factors"]
            if f["kind"] == "interaction" and f["concurrency"] == 1 and f["metric"] == "output_tok_s"
        )  # fmt: skip
        true = {arm: values["1"] for arm, values in truth["output_tok_s"].items()}
        expected = true["tp8-graphs-cds8"] * true["tp8-eager"] / (true["tp8-graphs"] * true["tp8-cds8"])
        assert found["low"] <= expected <= found["high"]

    def test_speculation_pays_and_stops(self, analysed):
        _, findings, _ = analysed("full")
        (found,) = findings["speculation"]
        assert (found["arm"], found["reference"]) == ("ep8-dflash", "ep8")
        assert 1 in found["pays_at"]
        assert found["stops"]["high"] == 64
        lengths = [level["acceptance_length"] for level in found["levels"]]
        assert all(3.6 < length < 4.0 for length in lengths)

    def test_the_counterpart_of_speculation_has_the_same_layout(self):
        """ep8-dflash without CUDA graphs is nearer to tp8-eager by count, but that is another layout."""
        settings = {
            "tp8-eager": {"tp_size": 8, "disable_cuda_graph": True},
            "ep8": {"tp_size": 8, "ep_size": 8, "max_running_requests": 512},
            "ep8-dflash": {
                "tp_size": 8, "ep_size": 8, "disable_cuda_graph": True, "speculative_algorithm": "DFLASH",
            },
        }  # fmt: skip
        arms = tuple(Arm(slug, slug, settings=own) for slug, own in settings.items())
        design = Design("x", "x", {}, arms, {})
        assert plain_counterpart(design, "ep8-dflash") == ("ep8", ("disable_cuda_graph", "max_running_requests"))
        assert plain_counterpart(replace(design, arms=arms[::2]), "ep8-dflash") == (None, ())

    def test_negative_results_are_said(self, analysed):
        _, findings, _ = analysed("full")
        assert any(
            text.startswith("Negative result: ep8-eplb is slower than ep8 at all 5 levels")
            for text in texts(findings, "negative")
        )

    def test_hours_by_hand(self, analysed):
        """100 000 samples of 256 tokens at 1 443 tok/s are 4.93 h."""
        _, findings, truth = analysed("full")
        best = next(h for h in findings["sample_hours"] if h["arm"] == "ep4")
        expected = 100_000 * 256 / truth["output_tok_s"]["ep4"]["256"] / 3600
        assert best["low"] <= expected <= best["high"]
        assert best["hours"] == pytest.approx(expected, rel=0.03)

    def test_rejected_and_unavailable_arms_are_findings(self, analysed):
        _, findings, _ = analysed("full")
        failed = texts(findings, "failed-arm")
        assert any("tp4-ep2 was rejected by the plan: a quarter of the weights" in text for text in failed)
        assert any("ddtree is not available here" in text for text in failed)

    def test_energy_is_there_only_with_telemetry(self, analysed):
        assert len(analysed("full")[1]["energy"]) == 50
        assert analysed("small")[1]["energy"] == []

    def test_quantiles_say_what_they_rest_on(self, analysed):
        _, findings, _ = analysed("full")
        rows = {
            (q["concurrency"], q["q"]): q
            for q in findings["quantiles"]
            if q["arm"] == "ep8" and q["metric"] == "ttft_ms"
        }
        assert rows[256, 0.99]["state"] == "ok"  # 2 repeats x 768 requests in each launch
        assert rows[256, 0.99]["requests_min"] == 1536
        assert rows[64, 0.99]["state"] == "too-few-requests"  # 384
        assert rows[64, 0.99]["estimate"] is None
        assert "500" in rows[64, 0.99]["note"]
        assert rows[1, 0.5]["state"] == "too-few-requests"  # 6

    def test_two_analyses_are_equal(self, analysed):
        folder, _, _ = analysed("full")
        before = (folder / "findings.json").read_bytes()
        analyse_experiment(folder)
        assert (folder / "findings.json").read_bytes() == before


class TestPartialData:
    def test_one_block_is_a_single_run(self, analysed):
        _, findings, _ = analysed("one-block")
        assert "single-run" in codes(findings)
        assert {c["verdict"] for c in findings["contrasts"]} == {"single-run"}
        assert all(e["low"] is None and e["estimate"] is not None for e in findings["estimates"])
        assert all(r["certainty"] == "single-run" for r in findings["recommendations"])
        assert (
            findings["next"][0]["text"] == "Run 2 more blocks (--config blocks=3): 3 are the minimum for an interval."
        )

    def test_two_blocks_give_no_interval(self, analysed):
        _, findings, _ = analysed("two-blocks")
        assert "two-runs" in codes(findings)
        assert {c["verdict"] for c in findings["contrasts"]} == {"inconclusive"}
        assert all(e["low"] is None for e in findings["estimates"])

    def test_all_failed_is_said_first(self, analysed):
        _, findings, _ = analysed("all-failed")
        assert findings["findings"][0]["text"] == "All 16 launches failed: there is nothing to compare."
        assert {a["status"] for a in findings["arms"]} == {"failed"}
        assert all(r["arm"] is None and r["certainty"] == "none" for r in findings["recommendations"])
        assert findings["design"]["launches_failed"] == 16
        assert len(findings["exclusions"]) == 16

    def test_nothing_measured_yet(self, analysed):
        _, findings, _ = analysed("nothing-measured")
        assert "no-data" in codes(findings)
        assert {a["status"] for a in findings["arms"]} == {"missing"}

    def test_a_failed_baseline_leaves_the_other_comparisons(self, analysed):
        _, findings, _ = analysed("baseline-failed")
        assert "no-baseline" in codes(findings)
        assert not [c for c in findings["contrasts"] if c["family"] == "baseline" and c["ratio"] is not None]
        assert [c for c in findings["contrasts"] if c["family"] == "best"]
        assert findings["recommendations"][0]["arm"] is not None

    def test_unequal_blocks_are_paired_where_both_exist(self, analysed):
        """ep8 failed in block 2 and ep4 is missing in block 4: together they have blocks 1 and 3 only."""
        _, findings, _ = analysed("some-failed")
        between = [c for c in findings["contrasts"] if {c["arm"], c["reference"]} == {"ep8", "ep4"}]
        assert between
        assert {c["n"] for c in between if c["family"] == "best"} == {2}
        against = [c for c in findings["contrasts"] if c["arm"] == "ep8" and c["reference"] == "tp8-eager"]
        assert {c["n"] for c in against} == {3}
        assert all("without block 2" in c["note"] for c in against)
        assert any(r["code"] == "unequal-blocks" and r["where"] == "ep8" for r in findings["refusals"])
        statuses = {a["slug"]: a["status"] for a in findings["arms"]}
        assert statuses == {"tp8-eager": "ok", "tp8-tuned": "ok", "ep8": "partial", "ep4": "partial"}
        assert any(n["action"] == "fix-arm" for n in findings["next"])

    def test_zero_spread_is_a_warning(self, analysed):
        _, findings, _ = analysed("zero-spread")
        assert "zero-variance" in codes(findings)
        speed = [c for c in findings["contrasts"] if c["metric"] == "output_tok_s"]
        assert {c["verdict"] for c in speed} == {"inconclusive"}
        assert all(c["low"] == c["high"] == c["ratio"] for c in speed)

    def test_one_arm_is_no_comparison(self, analysed):
        _, findings, _ = analysed("one-arm")
        assert findings["contrasts"] == []
        assert all(r["certainty"] == "only-arm" for r in findings["recommendations"])

    def test_one_repeat_cannot_split_the_variance(self, analysed):
        _, findings, _ = analysed("single-repeat")
        assert "no-repeats" in codes(findings)
        assert all(v["sigma_launch"] is None for v in findings["variance"])

    def test_timeouts_censor_the_tail(self, analysed):
        _, findings, _ = analysed("timeouts")
        tails = [q for q in findings["quantiles"] if q["censored"]]
        assert tails
        assert {q["state"] for q in tails if q["requests_min"] >= 500} == {"censored"}
        assert "censored" in codes(findings)
        assert any("requests failed" in e["reason"] for e in findings["exclusions"])

    def test_identical_arms_have_no_winner(self, analysed):
        _, findings, _ = analysed("identical-arms")
        assert not {"faster", "slower"} & {c["verdict"] for c in findings["contrasts"]}
        assert all(r["certainty"] in {"tie", "not-shown"} for r in findings["recommendations"])

    def test_drift_is_found_and_kept_out_of_the_comparisons(self, analysed):
        """-0.4 % per launch over 19 steps is -7.3 %."""
        _, findings, _ = analysed("drifting")
        speed = next(d for d in findings["drift"] if d["metric"] == "output_tok_s")
        assert speed["verdict"] == "drift"
        assert speed["change_low"] <= math.expm1(-0.004 * 19) <= speed["change_high"]
        assert texts(findings, "drift")

    def test_noise_gives_inconclusive_and_says_what_would_help(self, analysed):
        _, findings, _ = analysed("noisy")
        speed = [c for c in findings["contrasts"] if c["metric"] == "output_tok_s" and c["family"] == "best"]
        assert "inconclusive" in {c["verdict"] for c in speed}
        step = next(n for n in findings["next"] if n["action"] == "blocks")
        assert "narrows from" in step["buys"]
        assert step["cost_s"] > 0

    def test_labels_are_kept_as_written(self, analysed):
        _, findings, _ = analysed("hostile-names")
        assert '<script>alert("x")</script>' in {a["name"] for a in findings["arms"]}


class TestBrokenFiles:
    @pytest.fixture
    def folder(self, tmp_path):
        return write_experiment(tmp_path / "small", SCENARIOS["small"])

    def test_broken_files_become_reasons(self, folder):
        launches = sorted(folder.glob("launches/ep8/*"))
        (launches[0] / "requests.parquet").write_bytes(b"PAR1 no table")
        (launches[1] / "points.json").write_text('{"points": [')
        (launches[2] / "outcome.json").write_text("{}")
        findings = analyse_experiment(folder)
        assert faults_of(read_json(folder / "findings.json")) == []
        reasons = [e["reason"] for e in findings["exclusions"] if e["arm"] == "ep8"]
        assert any("requests.parquet cannot be read" in r for r in reasons)
        assert any("points.json cannot be read" in r for r in reasons)
        assert any("outcome.json cannot be read" in r for r in reasons)

    def test_points_before_a_death_stay_and_the_dead_level_is_out(self, folder):
        """CASE 32: a death at a level marks that level, keeps the earlier ones."""
        launch = folder / "launches" / "ep8" / "block1"
        outcome = read_json(launch / "outcome.json")
        write_json(
            launch / "outcome.json", outcome | {"status": "failed", "failure": {"stage": "measure", "cause": "died"}}
        )
        points = read_json(launch / "points.json")
        points["points"][-1] |= {"status": "failed", "reason": "the server died", "output_tok_s": None}
        write_json(launch / "points.json", points)
        findings = analyse_experiment(folder)
        table = pd.read_parquet(folder / "tables" / "points.parquet")
        own = table[(table["arm"] == "ep8") & (table["block"] == 1)]
        assert own["rankable"].sum() == len(own) - 1
        assert any("the point failed: the server died" in e["reason"] for e in findings["exclusions"])
        assert next(a for a in findings["arms"] if a["slug"] == "ep8")["launches"]["failed"] == 1

    def test_infinity_in_points_is_an_exclusion(self, folder):
        """CASE 43: bench_serving writes Infinity, which Python's JSON reader takes."""
        launch = folder / "launches" / "ep8" / "block1"
        text = (launch / "points.json").read_text()
        points = read_json(launch / "points.json")
        value = points["points"][0]["output_tok_s"]
        (launch / "points.json").write_text(text.replace(str(value), "Infinity"))
        analyse_experiment(folder)
        findings = read_json(folder / "findings.json")
        assert any("output_tok_s is infinite" in e["reason"] for e in findings["exclusions"])
        assert "Infinity" not in (folder / "findings.json").read_text()

    def test_speculation_that_accepts_nothing_is_not_ranked(self, tmp_path):
        """CASE 31: acceptance 1.0 with speculation on is no result of speculation."""
        scenario = SCENARIOS["full"]
        arms = tuple(
            replace(a, acceptance=1.0) if a.acceptance else a for a in scenario.arms if a.slug in {"ep8", "ep8-dflash"}
        )
        folder = write_experiment(
            tmp_path / "useless", replace(scenario, arms=arms, hypotheses=(), levels=(1, 32), blocks=3)
        )
        findings = analyse_experiment(folder)
        assert not [e for e in findings["estimates"] if e["arm"] == "ep8-dflash"]
        assert any("speculation is not effective in" in text for text in texts(findings, "speculation"))

    def test_flags_keep_points_out_of_verdicts_but_in_the_tables(self, folder):
        launch = folder / "launches" / "ep8" / "block2"
        points = read_json(launch / "points.json")
        for point in points["points"]:
            if point["concurrency"] == 256:
                point["flags"] = ["queue-dominated"]
                point["achieved_concurrency"] = 128.0
        write_json(launch / "points.json", points)
        findings = analyse_experiment(folder)
        reasons = [e["reason"] for e in findings["exclusions"] if e["concurrency"] == 256]
        assert len(reasons) == 2
        assert all("queue" in r and "achieved concurrency 128 is below 90% of 256" in r for r in reasons)
        estimate = next(
            e for e in read_json(folder / "findings.json")["estimates"]
            if (e["arm"], e["concurrency"], e["metric"]) == ("ep8", 256, "output_tok_s")
        )  # fmt: skip
        assert estimate["n"] == 2
        assert [x["rankable"] for x in estimate["launches"]] == [True, False, True]
        assert estimate["launches"][1]["value"] > 0
        assert estimate["flags"] == ["queue-dominated"]

    def test_published_values(self, folder, tmp_path):
        """The true value is reproduced, twice of it is not, an arm that did not run is not measured."""
        truth = read_json(folder / "truth.json")["output_tok_s"]
        table = tmp_path / "published.csv"
        table.write_text(
            "arm,concurrency,output_tok_s,approximate,n_runs,note\n"
            f"ep8,32,{truth['ep8']['32']},false,1,\n"
            f"ep8,256,{2 * truth['ep8']['256']},true,1,too high\n"
            "no-such,1,5,false,1,\n"
        )
        plan = read_json(folder / "plan.json")
        write_json(folder / "plan.json", plan | {"published": str(table)})
        findings = analyse_experiment(folder)
        assert [p["verdict"] for p in findings["published"]] == ["reproduced", "differs", "not-measured"]
        assert findings["published"][1]["approximate"] is True
        assert findings["published"][1]["ratio"] == pytest.approx(0.5, rel=0.05)
        assert faults_of(read_json(folder / "findings.json")) == []

    def test_no_plan_is_one_clear_error(self, tmp_path):
        with pytest.raises(FileNotFoundError, match=r"plan\.json"):
            analyse_experiment(tmp_path)


def test_cross_check_with_bench_serving_by_hand(tmp_path):
    """Ratios 0.99, 1.00, 1.01 over three launches: geometric mean 0.99997, and one launch whose check failed."""
    folder = write_experiment(tmp_path / "small", replace(SCENARIOS["small"], blocks=4, gaps=False))
    for block, ours in ((1, 99.0), (2, 100.0), (3, 101.0), (4, None)):
        metrics = {"output_tok_s_whole_run": {"ours": ours, "theirs": 100.0, "ratio": None}} if ours else {}
        entry = {"workload": "chat", "concurrency": 32, "status": "ok" if ours else "failed", "metrics": metrics}
        write_json(folder / "launches" / "ep8" / f"block{block}" / "crosscheck.json", {"entries": [entry]})
    analyse_experiment(folder)
    findings = read_json(folder / "findings.json")
    assert faults_of(findings) == []
    (check,) = findings["cross_check"]
    assert check["ratio"] == pytest.approx((0.99 * 1.01) ** (1 / 3))
    half = 4.302653 * math.log(1.01 / 0.99) / 2 / math.sqrt(3)
    assert check["high"] == pytest.approx(check["ratio"] * math.exp(half), rel=1e-3)
    assert (check["n"], check["note"]) == (3, "1 checks gave no number")
    assert any("bench_serving on the same launches" in text for text in texts(findings, "cross-check"))
