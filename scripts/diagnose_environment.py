"""Rule environment: say what the facts about the machine mean for the arms."""

from reckoning.environment import diagnose
from reckoning.environment.check import findings_json
from reckoning.files import read_json, write_json
from reckoning.jobs import logged

with logged(snakemake.log[0]) as say:
    facts, plan = read_json(snakemake.input.facts), read_json(snakemake.input.plan)
    document = findings_json(diagnose(facts, plan), plan["experiment"], facts.get("probed_at"))
    write_json(snakemake.output[0], document)
