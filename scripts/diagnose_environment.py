"""Rule environment: say what the facts about the machine mean for the arms."""

from reckoning.environment import judged
from reckoning.files import read_json, write_json
from reckoning.jobs import logged

with logged(snakemake.log[0]):
    write_json(snakemake.output[0], judged(read_json(snakemake.input.facts), read_json(snakemake.input.plan)))
