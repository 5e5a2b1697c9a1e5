"""Rule model: make the embedded model, or record the one that the configuration names."""

from pathlib import Path

from reckoning.files import write_json
from reckoning.jobs import logged, plan_of
from reckoning.models import prepare

with logged(snakemake.log[0]) as say:
    write_json(snakemake.output[0], prepare(plan_of(snakemake.config)["model"], Path(), progress=say))
