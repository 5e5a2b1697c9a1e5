"""Rule report: one self-contained page for the active experiment."""

from pathlib import Path

from reckoning.jobs import logged
from reckoning.report import render

with logged(snakemake.log[0]) as say:
    render(
        Path(snakemake.input.findings).parent,
        Path(snakemake.output.html),
        config=snakemake.params.config,
    )
    say(f"the findings are in {snakemake.output.html}")
