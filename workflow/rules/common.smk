import hashlib
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

sys.path.insert(0, str(Path(workflow.basedir) / "scripts"))

from reckoning.experiment import ExperimentError, read
from reckoning.plan import make_plan, plan_to_json


def planned():
    """Return the plan of the active configuration, or end with every fault of it named."""
    source = ", ".join(map(str, workflow.configfiles)) or "--config"
    try:
        return make_plan(read(config, source))
    except ExperimentError as error:
        raise WorkflowError(str(error)) from None


PLAN = planned()
PLAN_JSON = plan_to_json(PLAN)
EXPERIMENT = PLAN_JSON["experiment"]
RESULTS = f"results/{EXPERIMENT}"
LAUNCHES = {(launch["arm"], launch["block"]): launch for launch in PLAN_JSON["launches"]}
CONDA = "../../envs/workflow.yaml"


wildcard_constraints:
    arm=r"[a-z0-9][a-z0-9-]*",
    block=r"[1-9][0-9]*",


def file_digest(*paths):
    """Return one SHA-256 over the bytes of files, in the order given; a missing file counts by its name."""
    total = hashlib.sha256()
    for path in map(Path, paths):
        total.update(path.read_bytes() if path.is_file() else str(path).encode())
    return total.hexdigest()


def engine_sources():
    """Return the files that say how the engine is built: its locks and the patches of every arm."""
    lock = PLAN_JSON["engine"].get("lock")
    locks = [f"envs/{lock}.lock"] if lock else []
    patches = sorted({patch for arm in PLAN_JSON["arms"] for patch in arm["patches"]})
    return locks + sorted(
        str(path) for patch in patches for path in Path("envs/patches", patch).rglob("*") if path.is_file()
    )


def launch_digest(wildcards):
    """Return the digest of all that the launch depends on: a change of it repeats this launch and no other."""
    planned_digest = LAUNCHES[wildcards.arm, int(wildcards.block)]["digest"]
    return hashlib.sha256((planned_digest + file_digest(*engine_sources())).encode()).hexdigest()


def launch_priority(wildcards):
    """Return a priority that makes the scheduler start launches in the planned order."""
    return len(LAUNCHES) - LAUNCHES[wildcards.arm, int(wildcards.block)]["order"]


def outcomes_of(arms):
    """Return the outcome files of every planned launch of the arms."""
    return [f"{RESULTS}/launches/{arm}/block{block}/outcome.json" for arm, block in LAUNCHES if arm in arms]
