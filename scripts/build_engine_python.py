"""Rule engine_python: build the engine's environment from its lock, or name the existing one."""

from pathlib import Path

from reckoning.engine.spec import spec_for
from reckoning.engine.venv import ensure_venv
from reckoning.files import write_json
from reckoning.jobs import logged, plan_of

with logged(snakemake.log[0]) as say:
    engine = plan_of(snakemake.config)["engine"]
    python = engine["python"]
    if engine["kind"] == "managed":
        install_log = Path(snakemake.log[0]).with_suffix(".install.log")
        python = ensure_venv(spec_for(engine["lock"]), Path(".engines"), install_log, say, engine["python"])
    write_json(snakemake.output[0], {"schema_version": 1, "python": str(python)})
