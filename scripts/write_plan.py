"""Rule plan: write the plan that the configuration gives."""

from reckoning.files import write_json
from reckoning.jobs import logged, plan_of

with logged(snakemake.log[0]):
    write_json(snakemake.output[0], plan_of(snakemake.config))
