rule measure:
    input:
        facts=ancient(f"{RESULTS}/environment_facts.json"),
        engine=engine_of,
        model=MODEL,
    # `update`: an earlier launch stays until this one is whole, and stays for good when this one is refused or interrupted.
    output:
        outcome=update(f"{RESULTS}/launches/{{arm}}/block{{block}}/outcome.json"),
        points=update(f"{RESULTS}/launches/{{arm}}/block{{block}}/points.json"),
        requests=update(f"{RESULTS}/launches/{{arm}}/block{{block}}/requests.parquet"),
        server_info=update(f"{RESULTS}/launches/{{arm}}/block{{block}}/server_info.json"),
        telemetry=update(f"{RESULTS}/launches/{{arm}}/block{{block}}/telemetry.parquet"),
        host=update(f"{RESULTS}/launches/{{arm}}/block{{block}}/host.parquet"),
        server_log=update(f"{RESULTS}/launches/{{arm}}/block{{block}}/server.log"),
    log:
        f"{RESULTS}/logs/measure/{{arm}}.block{{block}}.log",
    priority: launch_priority
    conda:
        CONDA
    # Every core that Snakemake is given: two launches side by side would measure each other.
    threads: EVERY_CORE
    params:
        digest=launch_digest,
    message:
        "Launch {wildcards.arm} in block {wildcards.block}"
    script:
        "../../scripts/measure_launch.py"


rule arm:
    input:
        outcomes_of,
    output:
        f"{RESULTS}/arms/{{arm}}.json",
    log:
        f"{RESULTS}/logs/arm/{{arm}}.log",
    conda:
        CONDA
    params:
        arm=lambda wildcards: digest(arm_of(wildcards)),
    message:
        "Roll up the launches of {wildcards.arm}"
    script:
        "../../scripts/roll_up_arm.py"
