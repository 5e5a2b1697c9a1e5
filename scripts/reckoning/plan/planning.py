"""From an experiment to a plan: the one pure function in the middle."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from reckoning import files
from reckoning.experiment import ArmRequest, Experiment, Workload
from reckoning.plan import command, order
from reckoning.plan.devices import visible_count
from reckoning.plan.flags import well_formed
from reckoning.plan.memory import Memory
from reckoning.plan.rules import Demand, Setup, judge
from reckoning.plan.shapes import Arm, ArmProblem, Launch, Pair, Plan, Point
from reckoning.plan.surroundings import Surroundings, observe
from reckoning.plan.timing import LaunchTime, TimeModel, spoken

# Asked of every server: clients can then see how much of a prompt came from the prefix cache.
ALWAYS = {"enable_cache_report": True}


def make_plan(experiment: Experiment, surroundings: Surroundings | None = None) -> Plan:
    """Decide what will run. Equal experiments and surroundings give equal plans on every machine and Python.

    `surroundings` (visible GPUs, model facts, flag table) are observed on this machine when not given.
    """
    seen = observe(experiment) if surroundings is None else surroundings
    setups = {request.slug: _setup(request, experiment, seen) for request in experiment.arms}
    times = TimeModel(
        device=experiment.machine.device,
        expected=experiment.expected,
        published=seen.published,
        repeats=experiment.repeats,
        cooldown_s=experiment.limits["cooldown_s"],
    )
    arms = _with_factors([_arm(request, setups[request.slug], experiment, times) for request in experiment.arms], seen)
    runnable = [arm for arm in arms if arm.status == "runnable"]
    workloads = {workload.name: _workload(workload) for workload in experiment.workloads}
    engine, model = _engine(experiment, seen), _model(experiment, seen)
    baseline = experiment.analysis["baseline"]
    if baseline not in {arm.slug for arm in runnable}:
        baseline = runnable[0].slug if runnable else None
    return Plan(
        experiment=experiment.name,
        title=experiment.title,
        description=experiment.description,
        source=experiment.source,
        config_sha256=experiment.config_sha256,
        seed=experiment.seed,
        blocks=experiment.blocks,
        repeats=experiment.repeats,
        baseline=baseline,
        reductions=dict(experiment.reductions),
        engine=engine,
        machine=_machine(experiment, seen),
        model=model,
        workloads=workloads,
        analysis={**experiment.analysis, "baseline": baseline},
        hypotheses=tuple(files.jsonable(hypothesis) for hypothesis in experiment.hypotheses),
        published=experiment.published,
        limits=dict(experiment.limits),
        arms=arms,
        pairs=_pairs(runnable),
        launches=_launches(experiment, runnable, workloads, engine, model),
        time=_run_time(experiment, runnable, setups, times),
    )


def _setup(request: ArmRequest, experiment: Experiment, seen: Surroundings) -> Setup:
    """Return what the rules look at: the settings that they can compute with, and the GPUs that this arm would see."""
    machine = experiment.machine
    variable = request.env.get("CUDA_VISIBLE_DEVICES", seen.visible_devices)
    there = seen.gpus.count or machine.gpus
    gpus, source = visible_count(variable, there)
    if machine.gpus is not None and (gpus is None or machine.gpus < gpus):
        gpus, source = machine.gpus, "machine.gpus"
    settings = well_formed(request.settings, seen.flags)
    draft = seen.drafts.get(str(settings.get("speculative_draft_model_path")))
    return Setup(
        settings=settings,
        env=request.env,
        patches=frozenset(request.patches),
        version=seen.version,
        device=machine.device,
        gpus=gpus,
        gpu_source=source,
        gpu_memory_gib=machine.gpu_memory_gib or seen.gpus.memory_gib,
        compute_capability=machine.compute_capability or seen.gpus.compute_capability,
        nvlink=machine.nvlink,
        nodes=machine.nodes,
        facts=seen.facts,
        stated_facts=experiment.model.facts,
        draft=draft,
        flags=seen.flags,
        demands=tuple(_demand(workload, seen) for workload in experiment.workloads),
        known_patches=seen.patches,
        unavailable=request.unavailable,
        written=request.settings,
    )


def _demand(workload: Workload, seen: Surroundings) -> Demand:
    # A byte-pair token is rarely shorter than three bytes of prose; prompts from files are an upper bound from that.
    guessed = seen.prompt_bytes.get(workload.name, 0) // 3
    tokens = guessed if workload.input_tokens is None else workload.input_tokens
    return Demand(workload.name, workload.concurrency, tokens, workload.output_tokens)


def _arm(request: ArmRequest, setup: Setup, experiment: Experiment, times: TimeModel) -> Arm:
    problems = judge(setup)
    model, table = experiment.model, setup.flags.flags
    asked = {setup.flags.canonical(name): value for name, value in request.settings.items()}
    served = {**{name: value for name, value in ALWAYS.items() if not table or name in table}, **asked}
    launch = _launch_time(request.slug, setup, experiment.workloads, times)
    return Arm(
        name=request.name,
        slug=request.slug,
        why=request.why,
        status=_status(request, problems),
        problems=problems,
        settings=dict(sorted(asked.items())),
        env=dict(request.env),
        patches=request.patches,
        parents=request.parents,
        factors={},
        command=command.server_command(
            model.path, model.served_name, experiment.machine.device, settings=served, flags=table
        ),
        memory=_memory(setup.memory),
        time={**{key: round(value, 1) for key, value in _parts(launch).items()}, "basis": list(launch.basis)},
    )


def _status(request: ArmRequest, problems: Sequence[ArmProblem]) -> str:
    levels = {problem.level for problem in problems}
    if request.unavailable is None and "reject" in levels:
        return "rejected"
    return "unavailable" if "unavailable" in levels else "runnable"


def _launch_time(slug: str, setup: Setup, workloads: Sequence[Workload], times: TimeModel) -> LaunchTime:
    memory = setup.memory
    return times.launch(
        slug,
        workloads,
        weights_gib=memory.total_weights_gib * setup.tp if memory else None,
        graphs=setup.layout.decode_graphs,
        speculative=setup.speculative is not None,
    )


def _parts(launch: LaunchTime) -> dict[str, float]:
    return {
        "start_s": launch.start_s,
        "warmup_s": launch.warmup_s,
        "measure_s": launch.measure_s,
        "stop_s": launch.stop_s,
        "launch_s": launch.total_s,
    }


def _memory(memory: Memory | None) -> dict[str, Any] | None:
    if memory is None:
        return None
    return {
        "gpu_gib": memory.gpu_gib,
        "weights_gib": round(memory.weights_gib, 2),
        "reserve_gib": round(memory.reserve_gib, 2),
        "graph_gib": round(memory.graph_gib, 2),
        "mem_fraction_static": memory.mem_fraction,
        "kv_pool_gib": None if memory.kv_pool_gib is None else round(memory.kv_pool_gib, 2),
        "kv_tokens": memory.kv_tokens,
        "kv_bytes_per_token": max(stage.kv_bytes_per_token for stage in memory.stages),
        "stages": [
            {
                key: round(value, 3) if isinstance(value, float) else value
                for key, value in {**files.jsonable(stage), "weights_gib": stage.weights_gib}.items()
            }
            for stage in memory.stages
        ],
    }


def _run_time(
    experiment: Experiment, runnable: Sequence[Arm], setups: Mapping[str, Setup], times: TimeModel
) -> dict[str, Any]:
    """Return the time of the whole run, its basis, and what the usual changes on the command line would make of it."""

    def block_s(workloads: Sequence[Workload], model: TimeModel) -> float:
        return sum(_launch_time(arm.slug, setups[arm.slug], workloads, model).total_s for arm in runnable)

    per_block = block_s(experiment.workloads, times)
    total = per_block * experiment.blocks
    levels = sorted({level for workload in experiment.workloads for level in workload.concurrency})
    changes = [(f"--config blocks={blocks}", per_block * blocks) for blocks in _other_blocks(experiment.blocks)]
    if experiment.repeats > 1:
        once = dataclasses.replace(times, repeats=1)
        changes.append(("--config repeats=1", block_s(experiment.workloads, once) * experiment.blocks))
    if len(levels) > 2:
        ends = {levels[0], levels[-1]}
        kept = [
            dataclasses.replace(workload, concurrency=tuple(level for level in workload.concurrency if level in ends))
            for workload in experiment.workloads
        ]
        text = f"--config levels={levels[0]},{levels[-1]}"
        changes.append(
            (text, block_s([workload for workload in kept if workload.concurrency], times) * experiment.blocks)
        )
    basis = dict.fromkeys(line for arm in runnable for line in arm.time["basis"])
    return {
        "total_s": round(total, 1),
        "text": spoken(total),
        "per_block_s": round(per_block, 1),
        "launches": len(runnable) * experiment.blocks,
        "basis": list(basis),
        "what_if": [{"change": text, "total_s": round(other, 1), "text": spoken(other)} for text, other in changes],
    }


def _other_blocks(blocks: int) -> list[int]:
    """Return the numbers of blocks worth a thought beside the planned one: the least for an interval, and one more."""
    return sorted({3, blocks + 1} - {blocks}) if blocks > 3 else [blocks + 1, blocks + 2]


def _with_factors(arms: Sequence[Arm], seen: Surroundings) -> tuple[Arm, ...]:
    """Return the arms with the settings, patches and variables that are not the same in all of them."""
    described = [_described(arm) for arm in arms]
    keys = sorted({key for one in described for key in one})
    defaults = {key: flag.default for key, flag in seen.flags.flags.items()}

    def level(one: Mapping[str, Any], key: str) -> Any:
        return one.get(key, False if key.startswith("patch:") else defaults.get(key))

    varying = [key for key in keys if len({files.json_text(level(one, key), indent=None) for one in described}) > 1]
    return tuple(
        dataclasses.replace(arm, factors={key: level(one, key) for key in varying})
        for arm, one in zip(arms, described, strict=True)
    )


def _described(arm: Arm) -> dict[str, Any]:
    env = {f"env:{key}": value for key, value in arm.env.items()}
    return {**arm.settings, **env, **{f"patch:{patch}": True for patch in arm.patches}}


def _pairs(arms: Sequence[Arm]) -> tuple[Pair, ...]:
    pairs = []
    for index, reference in enumerate(arms):
        for arm in arms[index + 1 :]:
            different = [key for key in arm.factors if arm.factors[key] != reference.factors[key]]
            if len(different) == 1:
                key = different[0]
                pairs.append(Pair(arm.slug, reference.slug, key, reference.factors[key], arm.factors[key]))
    return tuple(pairs)


def _launches(
    experiment: Experiment,
    arms: Sequence[Arm],
    workloads: Mapping[str, Mapping[str, Any]],
    engine: Mapping[str, Any],
    model: Mapping[str, Any],
) -> tuple[Launch, ...]:
    launches: list[Launch] = []
    for block in range(1, experiment.blocks + 1):
        for arm in order.shuffled(arms, experiment.seed, "block", block, name=lambda arm: arm.slug):
            seed = order.derived_seed(experiment.seed, "launch", arm.slug, block)
            points = _points(experiment, seed)
            depends_on = {
                "command": arm.command,
                "env": arm.env,
                "patches": arm.patches,
                "engine": {key: engine[key] for key in ("kind", "lock", "version", "python")},
                "model": {key: model[key] for key in ("path", "maker", "options", "served_name")},
                "workloads": workloads,
                "points": points,
                "requests": {key: experiment.limits[key] for key in ("request_idle_s", "request_total_s")},
                "seed": seed,
            }
            launches.append(Launch(len(launches), block, arm.slug, seed, files.digest(depends_on), points))
    return tuple(launches)


def _points(experiment: Experiment, seed: int) -> tuple[Point, ...]:
    """Return the points of one launch in their shuffled order; the first of each level brings the level's warm-up."""
    wanted = [
        (workload, level, repeat)
        for workload in experiment.workloads
        for level in workload.concurrency
        for repeat in range(1, experiment.repeats + 1)
    ]
    shuffled = order.shuffled(wanted, seed, "points", name=lambda point: (point[0].name, point[1], point[2]))
    points: list[Point] = []
    warm: set[tuple[str, int]] = set()
    for index, (workload, level, repeat) in enumerate(shuffled):
        cold = (workload.name, level) not in warm
        warm.add((workload.name, level))
        points.append(
            Point(
                index=index,
                workload=workload.name,
                concurrency=level,
                repeat=repeat,
                seed=order.derived_seed(seed, workload.name, level, repeat),
                requests=workload.requests_at(level),
                warmup_requests=workload.warmup_requests_per_stream * level if cold else 0,
            )
        )
    return tuple(points)


def _workload(workload: Workload) -> dict[str, Any]:
    return {key: value for key, value in files.jsonable(workload).items() if key not in ("name", "why")}


def _engine(experiment: Experiment, seen: Surroundings) -> dict[str, Any]:
    engine = experiment.engine
    return {
        "kind": engine.kind,
        "lock": engine.lock,
        "version": seen.version,
        "python": engine.python,
        "patches": list(engine.patches),
    }


def _machine(experiment: Experiment, seen: Surroundings) -> dict[str, Any]:
    """Return the machine as described, with what the driver says in the places that were left open."""
    found = seen.gpus
    stated = files.jsonable(experiment.machine)
    observed = {
        "gpus": found.count or None,
        "gpu_name": found.names[0] if found.names else None,
        "gpu_memory_gib": found.memory_gib,
        "compute_capability": found.compute_capability,
    }
    return {**stated, **{key: value for key, value in observed.items() if stated[key] is None}}


def _model(experiment: Experiment, seen: Surroundings) -> dict[str, Any]:
    model = experiment.model
    draft = None
    if model.draft:
        facts = seen.drafts.get(model.draft.path)
        draft = {"path": model.draft.path, "facts": dict(facts.values) if facts else dict(model.draft.facts)}
    return {
        "path": model.path,
        "maker": model.maker,
        "options": dict(model.options),
        "served_name": model.served_name,
        "facts": dict(seen.facts.values),
        "facts_source": seen.facts.source,
        "draft": draft,
    }
