"""Rule measure: start a server, measure its points, stop it. What the server does wrong is an outcome, not an error."""

import sys
from pathlib import Path

from reckoning.engine import build
from reckoning.engine.records import for_arm
from reckoning.environment import judged
from reckoning.files import read_json
from reckoning.jobs import logged, plan_of
from reckoning.launch import MachineBusy, run_launch

with logged(snakemake.log[0]) as say:
    plan = plan_of(snakemake.config)
    arm = snakemake.wildcards.arm
    engine = read_json(snakemake.input.engine)
    if not Path(engine["python"]).exists():  # .engines was cleared since
        arms = [entry for entry in plan["arms"] if entry["slug"] == arm]
        engine = build({**plan, "arms": arms}, root=Path(), engine_json=Path(snakemake.input.engine), progress=say)
    try:
        outcome = run_launch(
            plan,
            for_arm(engine, arm),
            judged(read_json(snakemake.input.facts), plan),
            arm,
            int(snakemake.wildcards.block),
            Path(snakemake.output.outcome).parent,
            progress=say,
        )
    except MachineBusy as busy:
        say(str(busy))
        sys.exit(1)
    if outcome["status"] != "ok":
        failure = outcome["failure"]
        say(f"{outcome['arm']} block {outcome['block']} failed ({failure['class']}): {failure['cause']}")
