"""From YAML, or from what Snakemake made of it, to an `Experiment`."""

from __future__ import annotations

import csv
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from reckoning import files
from reckoning.experiment import arms as arm_rules
from reckoning.experiment import hypotheses, schema, workloads, yaml_text
from reckoning.experiment.names import remedy_for, slug
from reckoning.experiment.places import REPOSITORY, find
from reckoning.experiment.problems import ExperimentError, Problem
from reckoning.experiment.shapes import ArmRequest, Draft, Engine, Experiment, Machine, Model

_ABSENT = object()


def read_file(path: str | Path, overrides: Mapping[str, Any] | None = None) -> Experiment:
    """Read the experiment in the YAML file `path`, with top-level `overrides` merged in as Snakemake's --config does.

    Raises ExperimentError with every fault, each with its line number where it has one.
    """
    text = _text_of(path)
    if not isinstance(text.data, Mapping):
        raise ExperimentError([Problem(str(path), "", text.data, "the file holds no mapping", "see config/README.md")])
    return _build(merged(text.data, overrides or {}), str(path), text)


def read(config: Mapping[str, Any], source: str) -> Experiment:
    """Read an experiment that was parsed already; `source` is its file, or a word for it, to be named in messages.

    When `source` is a readable file its lines are used in messages, and faults that parsing hides (a key given twice,
    numbers that YAML misreads) are found too. Raises ExperimentError with every fault.
    """
    text = _text_of(source) if Path(source).is_file() else yaml_text.YamlText(None, {}, ())
    return _build(config, source, text)


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return `below` with `above` laid over it, mapping by mapping."""
    result = dict(below)
    for key, value in above.items():
        both = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
        result[key] = merged(result[key], value) if both else value
    return result


def _text_of(path: str | Path) -> yaml_text.YamlText:
    try:
        text = yaml_text.parse(Path(path).read_text(encoding="utf-8-sig"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        problem = Problem(str(path), "", None, f"cannot be read: {reason}", "correct the path")
        raise ExperimentError([problem]) from error
    if text.data is None and text.problems:
        raise ExperimentError(text.problems)
    return text


class _Faults:
    """Collects faults and knows the line of each value that the file itself gives."""

    def __init__(self, config: Mapping[str, Any], source: str, text: yaml_text.YamlText) -> None:
        self.problems = list(text.problems)
        self._config, self._source, self._text = config, source, text

    def report(self, path: tuple[str, ...], value: Any, reason: str, remedy: str) -> None:
        """Add a fault, unless the same value is known to be at fault for another reason."""
        if any(problem.key == ".".join(path) for problem in self.problems):
            return
        self.problems.append(Problem(self._source, ".".join(path), value, reason, remedy, self._line(path)))

    def _line(self, path: tuple[str, ...]) -> int | None:
        if _at(self._config, path) is not _ABSENT and _at(self._config, path) != _at(self._text.data, path):
            return None  # the command line replaced what the file says
        while path and path not in self._text.lines:
            path = path[:-1]
        return self._text.lines.get(path) if path else None

    def stop(self) -> None:
        if self.problems:
            raise ExperimentError(self.problems)


def _at(data: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        if isinstance(data, Mapping):
            found = [item for key, item in data.items() if str(key) == part]
            data = found[0] if found else _ABSENT
        elif isinstance(data, list | tuple) and part.isdigit() and int(part) < len(data):
            data = data[int(part)]
        else:
            return _ABSENT
    return data


def _build(config: Mapping[str, Any], source: str, text: yaml_text.YamlText) -> Experiment:
    config = _plain_keys(config)
    faults = _Faults(config, source, text)
    malformed = schema.faults(config)
    for fault in malformed:
        faults.report(*fault)
    usable = schema.without_faults(config) if malformed else config
    if usable is None:
        faults.stop()
    full = schema.completed({key: value for key, value in usable.items() if not key.startswith("x-")})
    name = full["experiment"]
    if slug(name) != name:
        remedy = f"write {slug(name)}" if slug(name) else "use lower-case letters, digits and hyphens"
        faults.report(("experiment",), name, "not a name that is safe as a folder", remedy)
    every_arm = arm_rules.resolve(full, faults.report)
    every_workload = workloads.resolve(full, faults.report)
    engine = _engine(full["engine"], faults.report)
    _check_published(full["published"], faults.report)
    if any(len(usable[part]) < len(config[part]) for part in ("arms", "workloads")):
        faults.stop()  # references to an arm or workload that is itself at fault would only repeat that
    if not every_arm and not faults.problems:
        faults.report(("arms",), None, "every arm is abstract", "add an arm that can be launched")
        faults.stop()
    claims = hypotheses.resolve(full, every_arm, every_workload, faults.report)
    kept_arms = _chosen(every_arm, full.get("only"), faults.report)
    kept_workloads = workloads.reduced(every_workload, full.get("levels"), faults.report)
    analysis = _analysis(full, every_arm, kept_arms, every_workload, faults.report)
    faults.stop()
    return Experiment(
        source=source,
        name=name,
        title=full["title"] or name,
        description=full["description"],
        blocks=full["blocks"],
        repeats=full["repeats"],
        seed=full["seed"],
        engine=engine,
        machine=_machine(full["machine"]),
        model=_model(full["model"]),
        arms=tuple(kept_arms),
        workloads=tuple(kept_workloads),
        hypotheses=tuple(claims),
        analysis=analysis,
        limits=full["limits"],
        expected=full["expected"],
        published=full["published"],
        config_sha256=files.digest(config),
        reductions={key: full[key] for key in ("levels", "only") if full.get(key) is not None},
    )


def _plain_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config with the levels in expected.tok_s as text: the one place where keys are meant as numbers."""
    expected = config.get("expected")
    if not isinstance(expected, Mapping) or not isinstance(expected.get("tok_s"), Mapping):
        return dict(config)
    rates = {
        workload: {str(key) if type(key) is int else key: rate for key, rate in levels.items()}
        if isinstance(levels, Mapping)
        else levels
        for workload, levels in expected["tok_s"].items()
    }
    return {**config, "expected": {**expected, "tok_s": rates}}


def _chosen(arms: Sequence[ArmRequest], only: Any, report: arm_rules.Report) -> list[ArmRequest]:
    if only is None:
        return list(arms)
    wanted = [part.strip() for part in only.split(",")] if isinstance(only, str) else list(only)
    known = {name: arm for arm in arms for name in (arm.slug, arm.name)}
    for name in wanted:
        if name not in known:
            report(("only",), name, "there is no arm of this name", remedy_for(name, known))
    return [arm for arm in arms if arm.name in wanted or arm.slug in wanted]


def _engine(raw: Mapping[str, Any], report: arm_rules.Report) -> Engine:
    version = raw["version"]
    if raw["kind"] == "managed":
        known = managed_engines()
        if raw["lock"] is None:
            report(("engine", "lock"), None, "a managed engine is built from locks", f"add lock: {', '.join(known)}")
        elif raw["lock"] not in known:
            remedy = remedy_for(raw["lock"], known)
            report(("engine", "lock"), raw["lock"], "envs/engines.yaml knows no engine of this name", remedy)
        else:
            version = version or known[raw["lock"]]
    elif raw["python"] is None:
        report(("engine", "python"), None, "an existing engine needs its interpreter", "add python: /path/to/python")
    return Engine(raw["kind"], raw["lock"], raw["python"], version, tuple(raw["patches"]))


@functools.cache
def managed_engines() -> dict[str, str]:
    """Return the engines that the workflow can build: {name: SGLang version}."""
    specs = yaml.safe_load((REPOSITORY / "envs" / "engines.yaml").read_text(encoding="utf-8"))
    return {name: str(spec["version"]) for name, spec in specs.items()}


def _machine(raw: Mapping[str, Any]) -> Machine:
    capability = raw["compute_capability"]
    text = None if capability is None else str(float(capability)) if not isinstance(capability, str) else capability
    return Machine(**{**raw, "compute_capability": text})


def _model(raw: Mapping[str, Any]) -> Model:
    draft = Draft(raw["draft"]["path"], raw["draft"]["facts"]) if raw["draft"] else None
    served = raw["served_name"] or raw["path"].rstrip("/").rsplit("/", 1)[-1]
    return Model(raw["path"], raw["maker"], dict(raw["options"]), served, raw["facts"], draft)


def _analysis(
    full: Mapping[str, Any],
    every_arm: Sequence[ArmRequest],
    kept: Sequence[ArmRequest],
    every_workload: Sequence[Any],
    report: arm_rules.Report,
) -> dict[str, Any]:
    analysis = dict(full["analysis"])
    names = {name: arm.slug for arm in every_arm for name in (arm.slug, arm.name)}
    baseline = analysis["baseline"]
    if baseline is not None and baseline not in names:
        report(("analysis", "baseline"), baseline, "there is no arm of this name", remedy_for(baseline, names))
    planned = {arm.slug for arm in kept}
    slugged = names.get(baseline) if baseline else None
    analysis["baseline"] = slugged if slugged in planned else None
    levels = {workload.name: workload.concurrency for workload in every_workload}
    for index, point in enumerate(analysis["bench_serving_points"]):
        if point["concurrency"] not in levels.get(point["workload"], ()):
            here = ("analysis", "bench_serving_points", str(index))
            report(here, point, "no workload measures this point", "use a workload and one of its levels")
    return analysis


def _check_published(path: str | None, report: arm_rules.Report) -> None:
    if path is None:
        return
    if (found := find(path)) is None or not found.is_file():
        report(("published",), path, "there is no such file", "correct the path, or remove the key")
        return
    try:
        published_rates(path)
    except (KeyError, ValueError, UnicodeDecodeError) as error:
        reason = f"not a table of published values: {error}"
        report(("published",), path, reason, "give it the columns arm, concurrency and output_tok_s, with numbers")


def published_rates(path: str) -> dict[str, dict[int, float]]:
    """Return {arm: {concurrency: output tok/s}} of a published table; KeyError or ValueError when it is none."""
    rates: dict[str, dict[int, float]] = {}
    with (find(path) or Path(path)).open(encoding="utf-8", newline="") as stream:
        for line, row in enumerate(csv.DictReader(stream), start=2):
            if missing := [name for name in ("arm", "concurrency", "output_tok_s") if not row.get(name)]:
                raise KeyError(f"line {line} lacks {', '.join(missing)}")
            rates.setdefault(row["arm"], {})[int(row["concurrency"])] = float(row["output_tok_s"])
    return rates
