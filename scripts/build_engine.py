"""Rule engine_overlay: apply one patch set to a copy of the engine's packages."""

from pathlib import Path

from reckoning.engine import build
from reckoning.engine.sources import sources_digest
from reckoning.jobs import logged, plan_of

with logged(snakemake.log[0]) as say:
    plan = plan_of(snakemake.config)
    arms = [
        arm
        for arm in plan["arms"]
        if arm["status"] == "runnable"
        and sources_digest(plan["engine"], arm["patches"]).startswith(snakemake.wildcards.engine)
    ]
    build({**plan, "arms": arms}, root=Path(), engine_json=Path(snakemake.output[0]), progress=say)
