"""Rule engine: one record of the engine and the patches of every arm."""

from reckoning.engine.records import merged
from reckoning.files import read_json, write_json
from reckoning.jobs import logged, plan_of

with logged(snakemake.log[0]):
    records = {arm: read_json(path) for arm, path in snakemake.params.arms.items()}
    write_json(snakemake.output[0], merged(records, plan_of(snakemake.config)["engine"]))
