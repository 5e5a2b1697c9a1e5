"""Rule model: make the embedded model, or record the one that the configuration names."""

from pathlib import Path

from reckoning.files import read_json, write_json
from reckoning.jobs import logged
from reckoning.models import prepare

with logged(snakemake.log[0]) as say:
    write_json(snakemake.output[0], prepare(read_json(snakemake.input.plan)["model"], Path(), progress=say))
