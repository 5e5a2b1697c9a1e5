rule report:
    input:
        findings=f"{RESULTS}/findings.json",
        plan=f"{RESULTS}/plan.json",
    output:
        html="report/findings.html",
        markdown="report/findings.md",
    log:
        f"{RESULTS}/logs/report.log",
    conda:
        CONDA
    params:
        experiment=EXPERIMENT,
    message:
        "Render the findings of '{EXPERIMENT}'"
    script:
        "../../scripts/render_report.py"
