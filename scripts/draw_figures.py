"""Rule figures: the page's figures as files of their own, for Snakemake's own report and for slides."""

import tempfile
from pathlib import Path

from reckoning.jobs import logged
from reckoning.report import render

with logged(snakemake.log[0]), tempfile.TemporaryDirectory() as scratch:
    render(Path(snakemake.input.findings).parent, Path(scratch, "findings.html"), figures=Path(snakemake.output[0]))
