import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(workflow.basedir) / "scripts"))

from reckoning.engine.sources import sources_digest
from reckoning.experiment import ExperimentError
from reckoning.files import digest
from reckoning.jobs import plan_of, summary
from reckoning.launch.machine_lock import mark_run
from snakemake.exceptions import WorkflowError

CONFIG_FILE = ", ".join(os.path.relpath(path) for path in workflow.configfiles) or "--config"


def planned():
    """Return the plan of the active configuration, or end with every fault of it named."""
    try:
        return plan_of(config, CONFIG_FILE)
    except ExperimentError as error:
        # A WorkflowError would add lines of this file to an error that is about the user's file.
        print(error, file=sys.stderr)
        sys.exit(2)


PLAN = planned()
if workflow.is_main_process:
    mark_run()
    print("\n".join(summary(PLAN)), file=sys.stderr)
EXPERIMENT = PLAN["experiment"]
RESULTS = f"results/{EXPERIMENT}"
ARMS = {arm["slug"]: arm for arm in PLAN["arms"]}
LAUNCHES = {(launch["arm"], launch["block"]): launch for launch in PLAN["launches"]}
CONDA = "../../envs/workflow.yaml"
EVERY_CORE = 2**16  # Snakemake lowers it to its --cores; `workflow.cores` would demand --cores even for --report.

# What a launch needs lies under names that carry a digest of how it was made. New content has a new name, which repeats the
# launches that use it and no others; and no job that a launch waits for runs again for any other reason (a job that does
# would hide changed parameters of the launch from Snakemake).
PYTHON = f"{RESULTS}/engines/python-{sources_digest(PLAN['engine'])[:12]}.json"
MODEL = f"{RESULTS}/models/{digest([PLAN['model'][key] for key in ('path', 'maker', 'options', 'draft')])[:12]}.json"
ENGINES = {
    slug: f"{RESULTS}/engines/{sources_digest(PLAN['engine'], arm['patches'])[:12]}.json"
    for slug, arm in ARMS.items()
    if arm["status"] == "runnable"
}


wildcard_constraints:
    arm=r"[a-z0-9][a-z0-9-]*",
    block=r"[1-9][0-9]*",
    engine=r"[0-9a-f]{12}",


def arm_of(wildcards):
    """Return the arm that a target names; a name that was mistyped is an error that lists the arms."""
    if wildcards.arm not in ARMS:
        raise WorkflowError(f"{CONFIG_FILE} has no arm '{wildcards.arm}'; its arms are {', '.join(ARMS)}")
    return ARMS[wildcards.arm]


def launch_of(wildcards):
    """Return the launch that a target names; one that is not planned is an error that says what is."""
    status = arm_of(wildcards)["status"]
    planned = LAUNCHES.get((wildcards.arm, int(wildcards.block)))
    if planned is None:
        blocks = f"its blocks are 1 to {PLAN['blocks']}" if status == "runnable" else f"it is {status}"
        raise WorkflowError(f"no launch of {wildcards.arm} is planned in block {wildcards.block}: {blocks}")
    return planned


def engine_of(wildcards):
    """Return the record of the engine that a launch runs on."""
    return ENGINES[launch_of(wildcards)["arm"]]


def launch_digest(wildcards):
    """Return the digest of what the launch depends on beside its inputs: a change of it repeats this launch only."""
    return launch_of(wildcards)["digest"]


def launch_priority(wildcards):
    """Return a priority that makes the scheduler start launches in the planned order."""
    return len(LAUNCHES) - launch_of(wildcards)["order"]


def outcomes_of(wildcards):
    """Return the outcome files of every planned launch of an arm."""
    arm_of(wildcards)
    return [f"{RESULTS}/launches/{arm}/block{block}/outcome.json" for arm, block in LAUNCHES if arm == wildcards.arm]
