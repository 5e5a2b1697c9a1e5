rule report:
    input:
        findings=f"{RESULTS}/findings.json",
        plan=f"{RESULTS}/plan.json",
        environment=f"{RESULTS}/environment.json",
        engine=f"{RESULTS}/engine.json",
        page=sorted(str(path) for path in Path("report").rglob("*") if path.suffix in (".j2", ".css", ".js")),
    output:
        html=report(
            "report/findings.html",
            caption="../../report/captions/findings.rst",
            category="Findings",
            labels={"what": "the page"},
        ),
        markdown="report/findings.md",
    log:
        f"{RESULTS}/logs/report.log",
    conda:
        CONDA
    params:
        experiment=EXPERIMENT,
        config=CONFIG_FILE,
    message:
        "Render the findings of '{EXPERIMENT}'"
    script:
        "../../scripts/render_report.py"


# Apart from the page: a file below results/ that another experiment has not made yet would hide from Snakemake that the page
# belongs to another experiment now.
rule figures:
    input:
        findings=f"{RESULTS}/findings.json",
        plan=f"{RESULTS}/plan.json",
    output:
        report(
            directory(f"{RESULTS}/figures"),
            patterns=["{figure}.svg"],
            caption="../../report/captions/figure.rst",
            category="Figures",
            labels={"figure": "{figure}"},
        ),
    log:
        f"{RESULTS}/logs/figures.log",
    conda:
        CONDA
    message:
        "Draw the figures of '{EXPERIMENT}' as files of their own"
    script:
        "../../scripts/draw_figures.py"
