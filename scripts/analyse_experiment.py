"""Rule analyse: from the launches' files to tables and findings."""

from pathlib import Path

from reckoning.analyse import analyse_experiment
from reckoning.files import read_json
from reckoning.jobs import logged

with logged(snakemake.log[0]) as say:
    analyse_experiment(Path(snakemake.input.plan).parent)
    for finding in read_json(snakemake.output.findings)["findings"][:3]:
        say(finding["text"])
