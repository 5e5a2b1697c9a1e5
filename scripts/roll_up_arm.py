"""Rule arm: one file per arm that says how its launches ended."""

from pathlib import Path

from reckoning.files import write_json
from reckoning.jobs import logged, plan_of
from reckoning.launch import roll_up

with logged(snakemake.log[0]):
    target = Path(snakemake.output[0])
    write_json(target, roll_up(plan_of(snakemake.config), snakemake.wildcards.arm, target.parents[1] / "launches"))
