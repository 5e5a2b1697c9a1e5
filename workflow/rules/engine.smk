rule engine_python:
    output:
        PYTHON,
    log:
        f"{RESULTS}/logs/engine_python.log",
    conda:
        CONDA
    message:
        "Build the engine's environment from its lock"
    script:
        "../../scripts/build_engine_python.py"


rule engine_overlay:
    input:
        python=PYTHON,
    output:
        f"{RESULTS}/engines/{{engine}}.json",
    log:
        f"{RESULTS}/logs/engine.{{engine}}.log",
    conda:
        CONDA
    message:
        "Apply a set of patches to a copy of the engine"
    script:
        "../../scripts/build_engine.py"


rule engine:
    input:
        sorted(set(ENGINES.values())),
    output:
        f"{RESULTS}/engine.json",
    log:
        f"{RESULTS}/logs/engine.log",
    conda:
        CONDA
    params:
        arms=ENGINES,
    message:
        "Record the engine of every arm"
    script:
        "../../scripts/record_engine.py"


rule model:
    output:
        MODEL,
    log:
        f"{RESULTS}/logs/model.log",
    conda:
        CONDA
    message:
        "Make or find the model"
    script:
        "../../scripts/prepare_model.py"
