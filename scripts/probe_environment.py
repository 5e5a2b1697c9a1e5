"""Rule probe: collect facts about the machine, without judging them."""

from reckoning.environment import probe
from reckoning.files import read_json, write_json
from reckoning.jobs import logged, plan_of

with logged(snakemake.log[0]) as say:
    plan = plan_of(snakemake.config)
    say("environment: collecting facts about the machine")
    prove = plan["machine"]["device"] != "cpu"
    python = read_json(snakemake.input.python)["python"]
    write_json(snakemake.output[0], probe(python, plan["model"]["path"], prove=prove))
