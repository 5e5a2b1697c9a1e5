import hashlib
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(workflow.basedir) / "scripts"))

from reckoning.engine.spec import spec_for
from reckoning.experiment import ExperimentError, read
from reckoning.patches import expand as expand_patches
from reckoning.plan import make_plan, plan_to_json


def planned():
    """Return the plan of the active configuration, or end with every fault of it named."""
    source = ", ".join(os.path.relpath(path) for path in workflow.configfiles) or "--config"
    try:
        return make_plan(read(config, source))
    except ExperimentError as error:
        # A WorkflowError would add lines of this file to an error that is about the user's file.
        print(error, file=sys.stderr)
        sys.exit(2)


PLAN = planned()
PLAN_JSON = plan_to_json(PLAN)
EXPERIMENT = PLAN_JSON["experiment"]
RESULTS = f"results/{EXPERIMENT}"
LAUNCHES = {(launch["arm"], launch["block"]): launch for launch in PLAN_JSON["launches"]}
CONDA = "../../envs/workflow.yaml"


wildcard_constraints:
    arm=r"[a-z0-9][a-z0-9-]*",
    block=r"[1-9][0-9]*",


def engine_digest():
    """Return one SHA-256 over what the engine is built from: its locks and the patches of every arm."""
    total = hashlib.sha256()
    if PLAN_JSON["engine"].get("lock"):
        total.update(spec_for(PLAN_JSON["engine"]["lock"], Path("envs")).lock_sha256.encode())
    for patch in expand_patches({patch for arm in PLAN_JSON["arms"] for patch in arm["patches"]}, Path("envs/patches")):
        for path in sorted(Path("envs/patches", patch.id).rglob("*")):
            total.update(path.read_bytes() if path.is_file() else b"")
    return total.hexdigest()


ENGINE_DIGEST = engine_digest()


def launch_digest(wildcards):
    """Return the digest of all that the launch depends on: a change of it repeats this launch and no other."""
    planned_digest = LAUNCHES[wildcards.arm, int(wildcards.block)]["digest"]
    return hashlib.sha256((planned_digest + ENGINE_DIGEST).encode()).hexdigest()


def launch_priority(wildcards):
    """Return a priority that makes the scheduler start launches in the planned order."""
    return len(LAUNCHES) - LAUNCHES[wildcards.arm, int(wildcards.block)]["order"]


def outcomes_of(arms):
    """Return the outcome files of every planned launch of the arms."""
    return [f"{RESULTS}/launches/{arm}/block{block}/outcome.json" for arm, block in LAUNCHES if arm in arms]
