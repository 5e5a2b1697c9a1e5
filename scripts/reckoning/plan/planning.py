"""From an experiment to a plan: the one pure function in the middle."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from reckoning import files
from reckoning.experiment import ArmRequest, Experiment, Workload
from reckoning.plan import command, order
from reckoning.plan.rules import Setup, judge
from reckoning.plan.shapes import Arm, Launch, Pair, Plan, Point
from reckoning.plan.surroundings import Surroundings, observe


def make_plan(experiment: Experiment, surroundings: Surroundings | None = None) -> Plan:
    """Decide what will run. Equal experiments and surroundings give equal plans on every machine and Python.

    `surroundings` (visible GPUs, model facts, flag table) are observed on this machine when not given.
    """
    seen = observe(experiment) if surroundings is None else surroundings
    arms = tuple(_arm(request, experiment, seen) for request in experiment.arms)
    arms = _with_factors(arms, seen)
    runnable = [arm for arm in arms if arm.status == "runnable"]
    workloads = {workload.name: _workload(workload) for workload in experiment.workloads}
    engine = _engine(experiment, seen)
    model = _model(experiment, seen)
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
        time={},
    )


def _arm(request: ArmRequest, experiment: Experiment, seen: Surroundings) -> Arm:
    setup = Setup(
        settings=request.settings,
        env=request.env,
        patches=frozenset(request.patches),
        version=seen.version,
        device=experiment.machine.device,
        gpus=seen.gpus,
        gpu_source=seen.gpu_source,
        gpu_memory_gib=experiment.machine.gpu_memory_gib,
        compute_capability=experiment.machine.compute_capability,
        nvlink=experiment.machine.nvlink,
        nodes=experiment.machine.nodes,
        facts=seen.facts,
        draft=seen.draft,
        flags=seen.flags,
        levels=tuple(sorted({level for workload in experiment.workloads for level in workload.concurrency})),
        longest_request=None,
    )
    problems = judge(setup)
    levels = {problem.level for problem in problems}
    status = "rejected" if "reject" in levels else "unavailable" if "unavailable" in levels else "runnable"
    words = command.server_command(
        experiment.model.path,
        experiment.model.served_name,
        experiment.machine.device,
        request.settings,
        seen.flags.flags,
    )
    return Arm(
        name=request.name,
        slug=request.slug,
        why=request.why,
        status=status,
        problems=problems,
        settings=dict(request.settings),
        env=dict(request.env),
        patches=request.patches,
        parents=request.parents,
        factors={},
        command=words,
        memory=None,
        time=None,
    )


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
                "model": {key: model[key] for key in ("path", "maker", "served_name")},
                "workloads": workloads,
                "points": points,
                "seed": seed,
            }
            launches.append(Launch(len(launches), block, arm.slug, seed, files.digest(depends_on), points))
    return tuple(launches)


def _points(experiment: Experiment, seed: int) -> tuple[Point, ...]:
    wanted = [
        (workload, level, repeat)
        for workload in experiment.workloads
        for level in workload.concurrency
        for repeat in range(1, experiment.repeats + 1)
    ]
    shuffled = order.shuffled(wanted, seed, "points", name=lambda point: (point[0].name, point[1], point[2]))
    return tuple(
        Point(
            index=index,
            workload=workload.name,
            concurrency=level,
            repeat=repeat,
            seed=order.derived_seed(seed, workload.name, level, repeat),
            requests=workload.requests_at(level),
            warmup_requests=workload.warmup_requests_per_stream * level,
        )
        for index, (workload, level, repeat) in enumerate(shuffled)
    )


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
    return {**files.jsonable(experiment.machine), "visible_gpus": seen.gpus, "visible_gpus_source": seen.gpu_source}


def _model(experiment: Experiment, seen: Surroundings) -> dict[str, Any]:
    model = experiment.model
    return {
        "path": model.path,
        "maker": model.maker,
        "served_name": model.served_name,
        "facts": dict(seen.facts.values),
        "facts_source": seen.facts.source,
        "draft": {"path": model.draft.path, "facts": dict(seen.draft.values) if seen.draft else {}}
        if model.draft
        else None,
    }
