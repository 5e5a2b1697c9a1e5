rule engine:
    input:
        plan=ancient(f"{RESULTS}/plan.json"),
    output:
        f"{RESULTS}/engine.json",
    log:
        f"{RESULTS}/logs/engine.log",
    conda:
        CONDA
    params:
        engine=PLAN_JSON["engine"],
        sources=ENGINE_DIGEST,
        patches={arm["slug"]: arm["patches"] for arm in PLAN_JSON["arms"] if arm["status"] == "runnable"},
    message:
        "Build the engine from its lock and the patched overlays"
    script:
        "../../scripts/build_engine.py"


rule model:
    input:
        plan=ancient(f"{RESULTS}/plan.json"),
    output:
        f"{RESULTS}/model.json",
    log:
        f"{RESULTS}/logs/model.log",
    conda:
        CONDA
    params:
        model=PLAN_JSON["model"],
    message:
        "Make or find the model"
    script:
        "../../scripts/prepare_model.py"
