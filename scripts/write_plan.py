"""Rule plan: write the plan that the configuration gives."""

from reckoning.files import write_json
from reckoning.jobs import logged, plan_of

with logged(snakemake.log[0]) as say:
    plan = plan_of(snakemake.config)
    write_json(snakemake.output[0], plan)
    statuses = [arm["status"] for arm in plan["arms"]]
    counted = ", ".join(f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses))
    say(f"plan: {len(plan['arms'])} arms ({counted}), {len(plan['launches'])} launches in {plan['blocks']} blocks")
    for arm in plan["arms"]:
        for problem in arm["problems"]:
            if problem["level"] in ("reject", "unavailable"):
                say(f"{arm['name']} {arm['status']} [{problem['rule']}]: {problem['reason']}")
