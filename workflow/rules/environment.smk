rule environment:
    input:
        plan=ancient(f"{RESULTS}/plan.json"),
        engine=ancient(f"{RESULTS}/engine.json"),
    output:
        facts=f"{RESULTS}/environment_facts.json",
        findings=f"{RESULTS}/environment.json",
    log:
        f"{RESULTS}/logs/environment.log",
    conda:
        CONDA
    params:
        arms=[(arm["slug"], arm["settings"]) for arm in PLAN_JSON["arms"]],
        machine=PLAN_JSON["machine"],
    message:
        "Check the machine and its CUDA tool chain"
    script:
        "../../scripts/check_environment.py"
