"""Rule arm: one file per arm that says how its launches ended."""

from pathlib import Path

from reckoning.files import read_json, write_json
from reckoning.jobs import logged
from reckoning.launch import roll_up

with logged(snakemake.log[0]):
    plan = Path(snakemake.input.plan)
    write_json(snakemake.output[0], roll_up(read_json(plan), snakemake.wildcards.arm, plan.parent / "launches"))
