rule analyse:
    input:
        plan=f"{RESULTS}/plan.json",
        environment=f"{RESULTS}/environment.json",
        engine=f"{RESULTS}/engine.json",
        arms=expand(f"{RESULTS}/arms/{{arm}}.json", arm=ARMS),
    output:
        findings=f"{RESULTS}/findings.json",
        points=f"{RESULTS}/tables/points.parquet",
        estimates=report(
            f"{RESULTS}/tables/estimates.csv",
            caption="../../report/captions/estimates.rst",
            category="Tables",
            labels={"table": "estimates"},
        ),
        contrasts=report(
            f"{RESULTS}/tables/contrasts.csv",
            caption="../../report/captions/contrasts.rst",
            category="Tables",
            labels={"table": "contrasts"},
        ),
    log:
        f"{RESULTS}/logs/analyse.log",
    conda:
        CONDA
    message:
        "Turn measurements into findings"
    script:
        "../../scripts/analyse_experiment.py"
