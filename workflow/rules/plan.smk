rule plan:
    output:
        f"{RESULTS}/plan.json",
    log:
        f"{RESULTS}/logs/plan.log",
    conda:
        CONDA
    params:
        digest=digest(PLAN),
    message:
        "Plan the experiment '{EXPERIMENT}'"
    script:
        "../../scripts/write_plan.py"
