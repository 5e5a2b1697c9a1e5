rule plan:
    output:
        f"{RESULTS}/plan.json",
    log:
        f"{RESULTS}/logs/plan.log",
    conda:
        CONDA
    params:
        plan=PLAN_JSON,
    message:
        "Plan the experiment '{EXPERIMENT}'"
    script:
        "../../scripts/write_plan.py"
