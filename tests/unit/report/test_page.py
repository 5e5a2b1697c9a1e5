"""One page for every state of the results: whole, partial, failed, hostile; what is missing is said, nothing breaks."""

import json
import re
from pathlib import Path

import jsonschema
import pandas as pd
import pytest

from reckoning.files import read_json, write_json
from reckoning.report import render
from reckoning.report.__main__ import main
from tests.unit.report import specimen

ROOT = Path(__file__).resolve().parents[3]
SECRET_LOG = "</script><img src=x onerror=alert(1)> HF_TOKEN=hf_abcdefgh12345678 /home/carolyn/x key sk-live0123456789"
TINY = {"arms": ["tp8-eager", "ep8"], "levels": (1,), "blocks": 1, "distributions": False}
SMALL = {"arms": ["tp8-eager", "ep8", "ep4"], "levels": (1, 32), "blocks": 3}


def rendered(folder: Path, **options) -> str:
    specimen.write(folder / "results", **options)
    render(folder / "results", folder / "findings.html")
    return (folder / "findings.html").read_text()


def words(page: str) -> str:
    """Return what a reader sees: no script, no style, no markup."""
    page = re.sub(r"<(script|style)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def embedded(page: str, key: str) -> dict[str, str]:
    found = re.search(rf'<script type="application/json" id="data-{key}">(.*?)</script>', page, re.DOTALL)
    assert found, key
    return json.loads(found[1])


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> str:
    return rendered(tmp_path_factory.mktemp("small"), telemetry=True, **SMALL)


def test_specimen_follows_the_schema(tmp_path):
    schema = read_json(ROOT / "workflow/schemas/findings.schema.json")
    for name, options in {"full": {}, "failed": {"ran": []}, "one": {"arms": ["ep8"], "blocks": 1}}.items():
        specimen.write(tmp_path / name, **options)
        jsonschema.validate(read_json(tmp_path / name / "findings.json"), schema)


def test_answer_comes_first_in_the_promised_order(page):
    order = [
        "findings",
        "recommended",
        "ran",
        "throughput",
        "verdicts",
        "latency",
        "speculation",
        "factors",
        "telemetry",
    ]
    order += ["sureness", "comparison", "hypotheses", "environment", "engine", "order", "repeat", "data", "glossary"]
    assert re.findall(r'<section id="([a-z]+)"', page) == order
    assert page.index('id="throughput-chat"') < page.index('id="ran"')


def test_page_needs_nothing_from_outside(page):
    assert not re.findall(r'<(?:script|img|iframe|link)[^>]+(?:src|href)="(?!data:)', page)
    assert "@import" not in page
    assert "url(http" not in page


def test_estimates_stand_in_the_page_with_interval_and_unit(page):
    mean, low, high = specimen._interval(
        [
            specimen.throughput("ep4", 32) * __import__("math").exp(specimen._noise("ep4", 32, block, "output_tok_s"))
            for block in (1, 2, 3)
        ]
    )
    csv = pd.read_csv(__import__("io").StringIO(embedded(page, "throughput-chat")["csv"]))
    row = csv[(csv["arm"] == "ep4") & (csv["concurrency"] == 32)].iloc[0]
    assert row[["estimate", "low", "high"]].tolist() == pytest.approx([mean, low, high], rel=1e-6)
    assert row["unit"] == "tok/s"
    assert row["n"] == 3
    assert len(csv) == 3 * 2 * 3  # arms x levels x launches


def test_no_line_breaks_between_a_number_and_its_per_cent_sign(page):
    assert re.search(r"\d\u00a0%", page)
    assert not re.search(r"\d %", page)


def test_every_figure_has_words_a_download_and_the_watermark(page):
    figures = re.findall(r'<figure class="figure" id="([^"]+)".*?</figure>', page, re.DOTALL)
    assert {"throughput-chat", "pareto-chat", "forest-chat", "latency-chat", "variance-chat", "order-chat"} <= set(
        figures
    )
    for figure in re.findall(r'<figure class="figure".*?</figure>', page, re.DOTALL):
        assert len(re.findall(r'role="img" aria-label="[^"]{20,}"', figure)) == 2
        assert "data-download=" in figure
        assert figure.count('class="watermark"') >= 2


def test_ids_are_unique(page):
    names = re.findall(r'\sid="([^"]+)"', page)
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("kind", "banner", "watermark"),
    [
        ("cpu-demonstration", "CPU demonstration: says nothing about GPUs", "CPU demonstration"),
        ("synthetic", "Synthetic data: invented numbers, not a measurement", "synthetic data"),
        ("recording", "Recording of an earlier run, replayed", "recording"),
        ("measured", "Measured", None),
    ],
)
def test_provenance_is_unmistakable(tmp_path, kind, banner, watermark):
    page = rendered(tmp_path, kind=kind, **TINY)
    assert f"<strong>{banner}</strong>" in page
    marks = re.findall(r'<g class="watermark"><text[^>]*>([^<]+)|<text class="watermark"[^>]*>([^<]+)', page)
    assert {"".join(mark) for mark in marks} == ({watermark} if watermark else set())
    assert banner in (tmp_path / "findings.md").read_text()


def test_a_cpu_run_is_a_demonstration_whatever_the_findings_claim(tmp_path):
    specimen.write(tmp_path / "results", kind="cpu-demonstration", **TINY)
    findings = read_json(tmp_path / "results/findings.json")
    findings["provenance"]["kind"] = "measured"
    write_json(tmp_path / "results/findings.json", findings)
    render(tmp_path / "results", tmp_path / "page.html")
    assert "CPU demonstration: says nothing about GPUs" in (tmp_path / "page.html").read_text()


def test_results_of_unknown_origin_say_so(tmp_path):
    (tmp_path / "empty").mkdir()
    render(tmp_path / "empty", tmp_path / "page.html")
    assert "Origin unknown" in (tmp_path / "page.html").read_text()


PARTIAL = {
    "one-arm-of-three": {"ran": ["ep4"], **SMALL},
    "one-arm": {"arms": ["ep8"], "levels": (1,), "blocks": 3},
    "one-block": TINY,
    "all-failed": {"ran": [], **SMALL},
}


@pytest.mark.parametrize("name", PARTIAL)
def test_partial_results_render_and_say_what_is_missing(tmp_path, name):
    text = words(rendered(tmp_path, **PARTIAL[name]))
    assert not re.search(r"\bnan\b|\binf\b|\bNone\b|Undefined", text)
    assert "No GPU telemetry was recorded" in text
    expected = {
        "one-arm-of-three": "No comparison can be given",
        "one-arm": "the only arm measured",
        "one-block": "single run",
        "all-failed": "No command can be recommended",
    }
    assert expected[name] in text


def test_failures_are_told_once_with_their_blocks_cause_and_remedy(tmp_path):
    text = words(rendered(tmp_path, ran=["ep4"], **SMALL))
    assert text.count("Blocks 1, 2 and 3: out-of-memory while loading weights") == 2
    assert "the weights of one GPU do not fit" in text
    assert "use more GPUs per stage" in text


def test_rejected_and_unavailable_arms_keep_their_reason(page):
    text = words(page)
    assert "ep 4 does not divide tp 2" in text
    assert "use ep 1 or 2" in text
    assert "not in the pinned release" in text


@pytest.mark.parametrize("broken", ["findings.json", "plan.json", "environment.json", "engine.json"])
@pytest.mark.parametrize("content", [None, "{", "[1, 2]", '{"arms": null, "findings": null}'])
def test_a_missing_or_broken_file_is_said_and_the_rest_stands(tmp_path, broken, content):
    specimen.write(tmp_path / "results", ran=[], **TINY)
    path = tmp_path / "results" / broken
    path.unlink()
    if content is not None:
        path.write_text(content)
    render(tmp_path / "results", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "</html>" in page
    if content != '{"arms": null, "findings": null}':
        assert f"<code>{broken}</code>" in page


def test_a_truncated_table_is_said(tmp_path):
    specimen.write(tmp_path / "results", **SMALL)
    table = tmp_path / "results/tables/distributions.parquet"
    table.write_bytes(table.read_bytes()[:100])
    render(tmp_path / "results", tmp_path / "page.html")
    text = words((tmp_path / "page.html").read_text())
    assert "tables/distributions.parquet" in text
    assert "No latency distribution is in these results." in text


def test_hostile_text_is_shown_and_never_run(tmp_path):
    labels = {
        "ep8": specimen.HOSTILE,
        "ep4": '"><svg onload=alert(1)>',
        "tp8-eager": "$\\frac{1}{0}$ {{ 7*7 }} </style>",
    }
    page = rendered(tmp_path, labels=labels, ran=["tp8-eager", "ep8"], log_excerpt=SECRET_LOG, **SMALL)
    scripts = re.findall(r"<script\b[^>]*>", page)
    assert set(scripts) == {"<script>", '<script type="application/json" id="data-' + "x" + '">'} - {
        '<script type="application/json" id="data-x">'
    } | {one for one in scripts if one.startswith('<script type="application/json"')}
    assert scripts.count("<script>") == 1
    assert page.count("</script>") == len(scripts)
    assert "<img" not in page
    assert "onload=alert(1)>" not in page
    assert "&lt;script&gt;alert(" in page
    assert "{{ 7*7 }}" in page


def test_secrets_never_appear(tmp_path):
    page = rendered(tmp_path, ran=["tp8-eager"], log_excerpt=SECRET_LOG, **SMALL)
    everything = page + (tmp_path / "findings.md").read_text()
    for secret in ("hf_abcdefgh12345678", "carolyn", "sk-live0123456789", "/home/", "alice"):
        assert secret not in everything, secret


def test_figures_written_alone_stand_alone(tmp_path):
    specimen.write(tmp_path / "results", **SMALL)
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "stale.svg").write_text("old")
    render(tmp_path / "results", tmp_path / "page.html", figures=tmp_path / "figures")
    names = {path.stem for path in (tmp_path / "figures").iterdir()}
    assert {"throughput-chat", "forest-chat"} <= names
    assert "stale" not in names
    svg = (tmp_path / "figures/throughput-chat.svg").read_text()
    assert "var(--" not in svg
    assert "tp8-eager" in svg  # the legend
    assert "synthetic data" in svg


def test_rendering_twice_gives_the_same_bytes(tmp_path):
    specimen.write(tmp_path / "results", **TINY)
    pages = []
    for _ in range(2):
        render(tmp_path / "results", tmp_path / "page.html")
        pages.append((tmp_path / "page.html").read_bytes())
    assert pages[0] == pages[1]


def test_command_line_reports_a_folder_that_is_not_there(tmp_path, capsys):
    assert main([str(tmp_path / "nowhere"), "--out", str(tmp_path / "page.html")]) == 2
    assert "is not a folder of results" in capsys.readouterr().err
    assert not (tmp_path / "page.html").exists()


def test_commands_name_the_configuration_that_was_given(tmp_path):
    specimen.write(tmp_path / "results", ran=[], **TINY)
    render(tmp_path / "results", tmp_path / "page.html", config="config/my experiment.yaml")
    text = (tmp_path / "page.html").read_text()
    assert (
        "snakemake --cores 1 --configfile &#39;config/my experiment.yaml&#39; results/specimen/arms/ep8.json -R measure"
        in text
    )


@pytest.mark.slow
def test_full_experiment_stays_under_three_megabytes(tmp_path):
    page = rendered(tmp_path)
    assert len(page.encode()) < 3_000_000


def test_cross_check_and_a_users_own_metric_are_shown(tmp_path):
    specimen.write(tmp_path / "results", **TINY)
    findings = read_json(tmp_path / "results/findings.json")
    row = {"arm": "ep8", "workload": "chat", "concurrency": 1, "metric": "output_tok_s", "unit": "tok/s", "note": None}
    findings["cross_check"] = [
        {**row, "ours": 100.4, "theirs": 99.1, "ratio": 1.0131, "low": 1.0052, "high": 1.0212, "n": 3}
    ]
    own = {
        "arm": "ep8",
        "workload": "chat",
        "concurrency": 1,
        "metric": "score",
        "unit": "points",
        "n": 3,
        "note": None,
    }
    findings["estimates"].append({**own, "estimate": 7.25, "low": 7.0, "high": 7.5, "launches": [], "flags": []})
    write_json(tmp_path / "results/findings.json", findings)
    render(tmp_path / "results", tmp_path / "page.html")
    text = words((tmp_path / "page.html").read_text())
    assert "1.013× [1.005, 1.021]" in text
    assert "score" in text
    assert "7.25 [7.00, 7.50]" in text
