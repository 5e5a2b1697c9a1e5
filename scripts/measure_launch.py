"""Rule measure: start a server, measure its points, stop it. What the server does wrong is an outcome, not an error."""

from pathlib import Path

from reckoning.files import read_json
from reckoning.jobs import logged
from reckoning.launch import run_launch

with logged(snakemake.log[0]) as say:
    outcome = run_launch(
        read_json(snakemake.input.plan),
        read_json(snakemake.input.engine),
        read_json(snakemake.input.environment),
        snakemake.wildcards.arm,
        int(snakemake.wildcards.block),
        Path(snakemake.output.outcome).parent,
        progress=say,
    )
    if outcome["status"] != "ok":
        failure = outcome["failure"]
        say(f"{outcome['arm']} block {outcome['block']} failed ({failure['class']}): {failure['cause']}")
