"""`python -m reckoning.analyse POINTS.csv`: a table of the user's own, from good to hostile."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest

from reckoning.analyse.__main__ import main
from tests.unit.analyse.conftest import faults_of, strict

HEADER = "arm,block,concurrency,value\n"


@pytest.fixture
def analyse(tmp_path, capsys):
    """Return a function: CSV text, design text -> (exit code, findings or None, printed)."""

    def run(csv, design=None):
        points = tmp_path / "points.csv"
        points.write_bytes(csv if isinstance(csv, bytes) else csv.encode())
        out = tmp_path / "findings.json"
        out.unlink(missing_ok=True)
        arguments = [str(points), "--out", str(out)]
        if design is not None:
            (tmp_path / "design.yaml").write_text(design)
            arguments += ["--design", str(tmp_path / "design.yaml")]
        code = main(arguments)
        findings = strict(out) if out.exists() else None
        printed = capsys.readouterr()
        assert findings is None or faults_of(findings) == []
        return code, findings, printed.out + printed.err

    return run


def table(values, level=128):
    """Return CSV of arm -> one value per block."""
    return HEADER + "".join(
        f"{arm},{block},{level},{value}\n" for arm, own in values.items() for block, value in enumerate(own, start=1)
    )


PUBLIC = {"pd_1p1d": [661.8], "pd_1p2d": [665.5], "pd_1p4d": [665.6], "pd_1p8d": [663.6]}


class TestOnePublicRunEach:
    """CASE 61: four configurations at C=128, one run each, 661.8 / 665.5 / 665.6 / 663.6 tok/s."""

    def test_neither_a_winner_nor_equivalence_is_claimed(self, analyse):
        code, findings, printed = analyse(table(PUBLIC), "baseline: pd_1p1d\nequivalence_margin: 0.02\n")
        assert code == 0
        assert {c["verdict"] for c in findings["contrasts"]} == {"single-run"}
        assert {r["certainty"] for r in findings["recommendations"]} == {"single-run"}
        assert all("Not decided" in r["text"] for r in findings["recommendations"])
        assert "rest on one launch: single runs have no interval and cannot be told apart" in printed
        assert [e["estimate"] for e in findings["estimates"]] == pytest.approx([661.8, 665.5, 665.6, 663.6])

    def test_achieved_concurrency_of_95_keeps_all_four_out(self, analyse):
        csv = "arm,block,concurrency,value,achieved_concurrency\n" + "".join(
            f"{arm},1,128,{values[0]},95\n" for arm, values in PUBLIC.items()
        )
        _, findings, printed = analyse(csv)
        assert len(findings["exclusions"]) == 4
        assert all("achieved concurrency 95 is below 90% of 128" in e["reason"] for e in findings["exclusions"])
        assert "None of the 4 points can be ranked" in printed

    def test_five_repeats_at_0_3_percent_noise_are_equivalent_within_2_percent(self, analyse):
        rng = np.random.default_rng(61)
        values = {arm: own[0] * np.exp(rng.normal(0, 0.003, 5)) for arm, own in PUBLIC.items()}
        _, findings, _ = analyse(table(values), "baseline: pd_1p1d\nequivalence_margin: 0.02\n")
        assert {c["verdict"] for c in findings["contrasts"]} == {"equivalent"}
        assert {r["certainty"] for r in findings["recommendations"]} == {"tie"}


class TestDegenerate:
    """CASE 57."""

    @pytest.mark.parametrize(
        ("values", "code"),
        [([5.0], "single-run"), ([5.0, 6.0], "two-runs"), ([5.0, 5.0, 5.0], "zero-variance")],
    )
    def test_too_little_to_say(self, analyse, values, code):
        _, findings, _ = analyse(table({"a": values, "b": values}), "baseline: a\n")
        assert code in {r["code"] for r in findings["refusals"]}
        assert not {"faster", "slower", "equivalent"} & {c["verdict"] for c in findings["contrasts"]}
        for estimate in findings["estimates"]:
            assert (estimate["low"] is None) == (len(values) < 3)

    @pytest.mark.parametrize("bad", ["NaN", "nan", "-nan", "inf", "-Infinity", "Infinity", "0", "-3", "x", "", "1e400"])
    def test_values_that_are_no_measurement_are_listed(self, analyse, bad):
        csv = table({"a": [100, 101, 102], "b": [110, bad, 111, 112]})
        _, findings, _ = analyse(csv, "baseline: a\n")
        (exclusion,) = findings["exclusions"]
        assert (exclusion["arm"], exclusion["block"]) == ("b", 2)
        assert exclusion["reason"].startswith("line 6: output_tok_s is")
        contrast = next(c for c in findings["contrasts"] if c["family"] == "baseline")
        assert contrast["n"] == 2

    def test_a_baseline_of_zero_has_no_ratio(self, analyse):
        _, findings, _ = analyse(table({"a": [0, 0, 0], "b": [5, 6, 7]}), "baseline: a\n")
        assert "zero-baseline" in {r["code"] for r in findings["refusals"]}
        assert not [c for c in findings["contrasts"] if c["ratio"] is not None]

    def test_all_failed(self, analyse):
        csv = "arm,block,concurrency,value,status,reason\n" + "".join(f"a,{b},4,,failed,died\n" for b in (1, 2, 3))
        _, findings, printed = analyse(csv)
        assert "all-failed" in {r["code"] for r in findings["refusals"]}
        assert [e["reason"] for e in findings["exclusions"]] == [f"line {n}: the point failed: died" for n in (2, 3, 4)]
        assert "None of the 3 points can be ranked" in printed

    def test_missing_levels_and_unequal_blocks_are_named(self, analyse):
        csv = (
            table({"a": [100, 101, 102], "b": [90, 91, 92]}, 1)
            + table({"a": [200, 201, 202], "b": [190, 191]}, 8)[len(HEADER) :]
        )
        csv += "c,1,1,95\nc,2,1,96\nc,3,1,97\n"
        _, findings, _ = analyse(csv, "baseline: a\nlevels: [1, 8]\nblocks: 4\n")
        by_code = {(r["code"], r["where"]): r["text"] for r in findings["refusals"]}
        assert "no rankable point at C=8" in by_code["missing-level", "c"]
        statuses = {a["slug"]: a["launches"] for a in findings["arms"]}
        assert statuses["a"] == {"planned": 4, "ok": 3, "failed": 0, "missing": 1}


class TestReading:
    def test_known_ratio_by_hand(self, analyse):
        """b is 1.1, 1.2, 1.3 times a in three blocks: the ratio is (1.1 * 1.2 * 1.3)^(1/3) = 1.19722."""
        csv = table({"a": [100, 200, 50], "b": [110, 240, 65]})
        _, findings, _ = analyse(csv, "baseline: a\n")
        contrast = next(c for c in findings["contrasts"] if c["family"] == "baseline")
        assert contrast["ratio"] == pytest.approx((1.1 * 1.2 * 1.3) ** (1 / 3))

    def test_a_metric_where_less_is_better(self, analyse):
        design = "baseline: a\nmetric: {name: ttft_ms, label: TTFT, unit: ms, better: lower}\n"
        csv = table({"a": [100, 101, 102, 100], "b": [50, 51, 50, 51]}).replace("value", "ttft_ms")
        _, findings, _ = analyse(csv, design)
        contrast = next(c for c in findings["contrasts"] if c["family"] == "baseline")
        assert contrast["verdict"] == "faster"
        assert findings["recommendations"][0]["arm"] == "b"
        assert findings["metrics"]["ttft_ms"]["unit"] == "ms"

    def test_columns_may_have_other_names_and_excels_bom(self, analyse):
        csv = b"\xef\xbb\xbfconfig,run,tps\n" + b"".join(
            f"{arm},{run},{value}\n".encode() for arm, value in (("A x", 10), ("B/y", 20)) for run in (1, 2, 3)
        )
        _, findings, _ = analyse(csv, "columns: {arm: config, block: run, value: tps}\nbaseline: A x\n")
        assert [(a["slug"], a["name"]) for a in findings["arms"]] == [("a-x", "A x"), ("b-y", "B/y")]

    def test_flags_exclude_and_are_explained(self, analyse):
        csv = "arm,block,concurrency,value,flags\na,1,4,10,neighbour;too-short\na,2,4,11,\n"
        _, findings, _ = analyse(csv)
        (exclusion,) = findings["exclusions"]
        assert exclusion["reason"].startswith("line 2: neighbour; the steady window is shorter")
        assert findings["estimates"][0]["n"] == 1
        assert findings["estimates"][0]["estimate"] == pytest.approx(11)

    def test_hypotheses_of_the_design(self, analyse):
        design = """
baseline: a
hypotheses:
  - {id: H1, text: b beats a, claims: [{arm: b, reference: a, relation: higher}]}
  - {id: H2, text: b is below a, claims: [{arm: b, reference: a, relation: lower, at: [128]}]}
  - {id: H3, text: twice, claims: [{arm: b, reference: a, relation: higher, ratio: 1.195, at: peak}]}
"""
        _, findings, _ = analyse(table({"a": [100, 101, 102, 100], "b": [120, 121, 123, 119]}), design)
        verdicts = [h["verdict"] for h in findings["hypotheses"]]
        assert verdicts == ["supported", "refuted", "inconclusive"]

    def test_factors_from_the_settings_of_the_design(self, analyse):
        design = "baseline: a\narms: {a: {settings: {ep: 1}}, b: {settings: {ep: 4}, command: serve --ep 4}}\n"
        _, findings, _ = analyse(table({"a": [100, 101, 102, 100], "b": [120, 121, 123, 119]}), design)
        assert {(f["factor"], f["from"], f["to"]) for f in findings["factors"]} == {("ep", "1", "4")}
        assert findings["recommendations"][0]["command"] == "serve --ep 4"

    def test_the_best_must_be_shown_against_every_other_arm(self, analyse):
        """a beats c beyond doubt and b not at all: a is no winner yet, and the sentence names b."""
        values = {"a": [100, 103, 98, 101], "b": [99, 101, 99, 100], "c": [50, 51, 50, 51]}
        _, findings, _ = analyse(table(values), "equivalence_margin: 0.001\n")
        assert {r["certainty"] for r in findings["recommendations"]} == {"not-shown"}
        assert "is not shown to be better than b:" in findings["recommendations"][0]["text"]
        del values["b"]
        _, findings, _ = analyse(table(values), "equivalence_margin: 0.001\n")
        assert {r["certainty"] for r in findings["recommendations"]} == {"shown"}

    def test_the_sentence_gives_the_ratio_to_the_arm_that_is_not_beaten(self, analyse):
        """The runner-up b is beaten beyond doubt; c, further behind, varies too much to tell."""
        values = {"a": [100, 103, 98, 101], "b": [95, 97.9, 93.1, 96], "c": [80, 125, 60, 85]}
        _, findings, _ = analyse(table(values), "equivalence_margin: 0.001\n")
        recommended = findings["recommendations"][0]
        assert (recommended["certainty"], recommended["runner_up"]["arm"]) == ("not-shown", "b")
        assert re.search(r"is not shown to be better than c: \+\d+ % \(.*\) against c\.$", recommended["text"])


class TestFaults:
    def test_all_faults_of_the_columns_at_once(self, analyse):
        code, findings, printed = analyse("config,run\nx,1\n", "columns: {flags: marks}\n")
        assert code == 2
        assert findings is None
        for name in ("column arm", "column block", "column value", "columns.flags"):
            assert name in printed
        assert "Traceback" not in printed

    @pytest.mark.parametrize(
        ("design", "said"),
        [
            ("baseline: ep9\n", "the baseline is no arm of the table"),
            ("base: a\n", "base"),
            ("confidence: 95\n", "confidence"),
            ("equivalence_margin: '3 %'\n", "equivalence_margin"),
            ("- a\n", "a design is a mapping"),
            ("baseline: [a\n", "is no YAML"),
            ("hypotheses: [{id: H, claims: [{arm: z, reference: a, relation: higher}]}]\n", "no arm of the table"),
        ],
    )
    def test_faults_of_the_design_name_the_key(self, analyse, design, said):
        code, findings, printed = analyse(table({"a": [1, 2, 3], "ep8": [1, 2, 3]}), design)
        assert code == 2
        assert findings is None
        assert said in printed
        assert "Remedy" in printed

    def test_two_arms_of_one_short_name(self, analyse):
        """CASE 55: names that differ only by case."""
        code, _, printed = analyse(table({"Ep8": [1, 2, 3], "ep8": [1, 2, 3]}))
        assert code == 2
        assert "same short name ep8: 'Ep8' and 'ep8'" in printed

    @pytest.mark.parametrize("csv", ["", HEADER, "\x00\x01\x02", 'a\n"unclosed'])
    def test_no_table(self, analyse, csv):
        code, findings, printed = analyse(csv)
        assert code == 2
        assert findings is None
        assert "Remedy" in printed

    def test_bad_rows_do_not_stop_the_good_ones(self, analyse):
        csv = HEADER + "a,1,4,10\na,two,4,10\n,3,4,10\na,3,four,10\na,4,4,11\na,5,4,12\n"
        code, findings, _ = analyse(csv)
        assert code == 0
        assert [e["reason"].split(":")[0] for e in findings["exclusions"]] == ["line 3", "line 4", "line 5"]
        assert findings["estimates"][0]["n"] == 3


def test_the_command_runs_alone(tmp_path):
    points = tmp_path / "points.csv"
    points.write_text(table({"<b>x</b>": [10, 11, 10], "../y": [20, 21, 22]}))
    done = subprocess.run(
        [sys.executable, "-m", "reckoning.analyse", str(points), "--tables", str(tmp_path / "tables")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    findings = json.loads((tmp_path / "findings.json").read_text())
    assert [a["name"] for a in findings["arms"]] == ["<b>x</b>", "../y"]
    assert (tmp_path / "tables" / "contrasts.csv").exists()
