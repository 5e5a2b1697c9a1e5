rule probe:
    input:
        python=PYTHON,
    output:
        f"{RESULTS}/environment_facts.json",
    log:
        f"{RESULTS}/logs/probe.log",
    conda:
        CONDA
    message:
        "Collect facts about the machine and its CUDA tool chain"
    script:
        "../../scripts/probe_environment.py"


rule environment:
    input:
        facts=f"{RESULTS}/environment_facts.json",
        plan=f"{RESULTS}/plan.json",
    output:
        f"{RESULTS}/environment.json",
    log:
        f"{RESULTS}/logs/environment.log",
    priority: len(LAUNCHES) + 1  # told before the launches that it concerns
    conda:
        CONDA
    message:
        "Say what the facts mean for the arms"
    script:
        "../../scripts/diagnose_environment.py"
