rule measure:
    input:
        facts=ancient(f"{RESULTS}/environment_facts.json"),
        engine=lambda wildcards: ENGINES[wildcards.arm],
        model=MODEL,
    output:
        outcome=f"{RESULTS}/launches/{{arm}}/block{{block}}/outcome.json",
        points=f"{RESULTS}/launches/{{arm}}/block{{block}}/points.json",
        requests=f"{RESULTS}/launches/{{arm}}/block{{block}}/requests.parquet",
        server_info=f"{RESULTS}/launches/{{arm}}/block{{block}}/server_info.json",
        telemetry=f"{RESULTS}/launches/{{arm}}/block{{block}}/telemetry.parquet",
        host=f"{RESULTS}/launches/{{arm}}/block{{block}}/host.parquet",
        server_log=f"{RESULTS}/launches/{{arm}}/block{{block}}/server.log",
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
        arm=lambda wildcards: digest(ARMS[wildcards.arm]),
    message:
        "Roll up the launches of {wildcards.arm}"
    script:
        "../../scripts/roll_up_arm.py"
