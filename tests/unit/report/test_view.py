"""Commands, links and the choice of what stands on top."""

import dataclasses

import pytest

from reckoning.report import view
from reckoning.report.collect import collect
from reckoning.report.content import content_of, headlines_of, recommendations_of
from reckoning.report.markdown import escape, markdown_of
from tests.unit.report import specimen


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("view") / "results" / "specimen"
    specimen.write(folder, arms=["tp8-eager", "ep8"], levels=(1, 32), blocks=3, distributions=False)
    return collect(folder)


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (["{python}", "-m", "x", "--port", "{port}"], "python -m x \\\n  --port $PORT"),
        ("A=1 B='0|1' python -m x --tp-size=8", "A=1 \\\n  B='0|1' \\\n  python -m x \\\n  --tp-size=8"),
        (["python", "--name", "two words; rm -rf /"], "python \\\n  --name 'two words; rm -rf /'"),
        ("unbalanced 'quote", "unbalanced 'quote"),
        ([], ""),
    ],
)
def test_command_is_shell_text_with_an_option_a_line(command, text):
    assert view.shell_lines(command) == text


def test_devices_are_counted_per_arm(results):
    found = dataclasses.replace(
        results,
        plan={
            "machine": {"device": "cuda"},
            "arms": [
                {"slug": "a", "settings": {"tp_size": 4, "pp_size": 2}},
                {"slug": "b", "settings": {"tp_size": 8, "dp_size": 8, "enable_dp_attention": True}},
                {"slug": "c", "settings": {"tp_size": 2, "dp_size": 3}},
                {"slug": "d", "settings": {}},
            ],
        },
        findings={},
    )
    assert view.devices_of(found) == ({"a": 8, "b": 8, "c": 6, "d": 1}, "GPU")


def test_rerun_names_the_configuration_only_when_it_is_not_the_default(results):
    cpu = dataclasses.replace(results, findings={"experiment": "cpu"})
    assert view.rerun_command(cpu, "tp2", None) == "snakemake --cores 1 results/cpu/arms/tp2.json -R measure"
    assert "--configfile config/specimen.yaml results/specimen/arms/ep8.json" in view.rerun_command(
        results, "ep8", None
    )


def test_links_lead_from_the_page_to_the_results_and_never_show_a_home(results, tmp_path):
    page = results.folder.parents[1] / "report" / "findings.html"
    assert view.link_to(results, "plan.json", page) == "../results/specimen/plan.json"
    assert view.link_to(results, "nothing.json", page) is None


def test_headlines_take_one_of_a_kind_and_every_winner():
    kinds = [
        "winner-throughput",
        "winner-throughput",
        "winner-latency",
        "hypothesis",
        "factor",
        "factor",
        "tie",
        "failed-arm",
    ]
    found = {"findings": [{"kind": kind, "rank": n, "text": f"{n} {kind}", "n": 4} for n, kind in enumerate(kinds)]}
    top, rest = headlines_of(found)
    assert [one["text"] for one in top] == [
        "0 winner-throughput",
        "1 winner-throughput",
        "2 winner-latency",
        "6 tie",
        "4 factor",
    ]
    assert [one["text"] for one in rest] == ["3 hypothesis", "5 factor", "7 failed-arm"]


def test_recommendation_says_how_firm_it_is(results):
    cast = view.cast_of(results, view.arm_rows(results, None))
    base = {"use": "latency", "workload": "chat", "arm": "ep8", "metric": "tpot_ms", "estimate": 9.9, "n": 1}
    cards = recommendations_of(
        {"recommendations": [{**base, "certainty": word} for word in ("single-run", "shown")]}, cast
    )
    assert [card["certainty"][0] for card in cards] == ["single run: not decided", "shown to be the best"]


def test_markdown_holds_the_answer_and_shows_hostile_text_as_text(results, tmp_path):
    text = markdown_of(content_of(results, tmp_path / "page.html", None))
    assert text.startswith("# Which way of serving Kimi K2.6")
    assert "```bash\npython -m sglang.launch_server \\\n" in text
    assert "| ep8 |" in text
    assert "nan" not in text
    hostile = escape("<script>alert(1)</script> | @user #12 `x`\n# title")
    assert hostile == r"\<script\>alert(1)\</script\> \| \@user \#12 \`x\` \# title"
