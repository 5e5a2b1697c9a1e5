"""Rule environment: collect facts about the machine and say what they mean for the arms."""

from reckoning.environment import check
from reckoning.files import read_json
from reckoning.jobs import logged

with logged(snakemake.log[0]) as say:
    check(
        snakemake.input.plan,
        snakemake.output.facts,
        snakemake.output.findings,
        engine_python=read_json(snakemake.input.engine)["python"],
    )
    for finding in read_json(snakemake.output.findings)["findings"]:
        if finding["level"] in ("warn", "fail"):
            say(f"{finding['level']} {finding['code']}: {finding['found']}")
