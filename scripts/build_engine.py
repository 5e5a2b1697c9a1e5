"""Rule engine: build the engine's environment and the overlays of patched packages."""

from pathlib import Path

from reckoning.engine import build
from reckoning.files import read_json
from reckoning.jobs import logged

with logged(snakemake.log[0]) as say:
    build(
        read_json(snakemake.input.plan),
        root=Path(),
        engine_json=Path(snakemake.output[0]),
        log=Path(snakemake.log[0]).with_suffix(".install.log"),
        progress=say,
    )
