"""A dry run validates a configuration without engine, GPU or network, and says every fault at once."""

import shutil

import pytest
import yaml

from .conftest import ROOT

CONFIGS = sorted((ROOT / "config").glob("*.yaml"))


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.stem)
def test_every_configuration_dry_runs(workspace, config):
    done = workspace.snakemake("-n", "--quiet", "rules", "--configfile", f"config/{config.name}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(workspace.path.glob("results*"))


def edited(workspace, change):
    """Write the default configuration with a change applied as config/edited.yaml."""
    config = yaml.safe_load((workspace.path / "config/config.yaml").read_text())
    change(config)
    (workspace.path / "config/edited.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    return workspace.snakemake("-n", "--quiet", "rules", "--configfile", "config/edited.yaml")


def test_all_faults_in_one_readable_error(workspace):
    def break_it(config):
        config["blocks"] = "three"
        config["repeets"] = 2
        config["workloads"]["chat"]["file"] = "resources/prompts/missing.yaml"

    done = edited(workspace, break_it)
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "Traceback" not in said
    for fault in ("config/edited.yaml", "blocks", "three", "repeets", "repeats", "missing.yaml"):
        assert fault in said, f"{fault} is not named in:\n{said}"


def test_a_dry_run_says_what_will_run_how_long_and_what_will_not(workspace):
    def break_it(config):
        config["arms"]["tp2"]["settings"]["tp_size"] = "2x"
        config["arms"]["pp2"]["settings"] = {"pp_sizes": 2}

    done = edited(workspace, break_it)
    assert done.returncode == 0
    assert "6 arms (1 runnable, 4 rejected, 1 unavailable), 3 launches in 3 blocks, about" in done.stderr
    assert "tp2 rejected [flag-value]: tp_size: '2x' is not a whole number. Remedy:" in done.stderr
    assert "pp2 rejected [unknown-flag]: this engine has no argument pp_sizes" in done.stderr
    assert "did you mean pp_size?" in done.stderr


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["../x"], "escapes"),
        (["tp 1", "tp-1"], "equal after slugging"),
        (["TP1", "tp1"], "differ by case"),
    ],
)
def test_names_that_would_collide_or_escape(workspace, names, why):
    def rename(config):
        arm = config["arms"]["tp1"]
        config["arms"] = dict.fromkeys(names, arm)
        config["analysis"]["baseline"] = names[0]

    done = edited(workspace, rename)
    said = done.stdout + done.stderr
    assert "Traceback" not in said
    if why == "escapes" and done.returncode == 0:
        assert not any(".." in line for line in said.splitlines() if "results/" in line)
    else:
        assert done.returncode != 0, why
        assert all(name in said for name in names)


def test_a_second_configuration_does_not_mix_with_the_default(workspace):
    def other(config):
        config["experiment"] = "other"
        del config["arms"]["tp2-ep2"], config["arms"]["tp2-ep4"], config["arms"]["pp2"]

    assert edited(workspace, other).returncode == 0
    done = workspace.snakemake("-n", "--configfile", "config/edited.yaml")
    assert "results/other/launches/tp2/block1/outcome.json" in done.stdout
    assert "results/cpu" not in done.stdout
    assert "pp2" not in done.stdout


def test_the_number_of_blocks_can_be_set_on_the_command_line(workspace):
    done = workspace.snakemake("-n", "--config", "blocks=5")
    assert "block5" in done.stdout
    assert "block6" not in done.stdout


def test_a_launch_can_be_asked_for_by_its_arm(workspace):
    done = workspace.snakemake("-n", "results/cpu/arms/tp2.json", "-R", "measure")
    assert done.returncode == 0, done.stderr
    launched = [line.split(": ")[1] for line in done.stdout.splitlines() if ": Launch " in line]
    assert sorted(launched) == [f"Launch tp2 in block {block}" for block in (1, 2, 3)]


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("results/cpu/arms/nope.json", "has no arm 'nope'; its arms are tp1, tp2"),
        ("results/cpu/launches/nope/block1/outcome.json", "has no arm 'nope'"),
        ("results/cpu/launches/tp1/block9/outcome.json", "tp1 is planned in block 9: its blocks are 1 to 3"),
        ("results/cpu/launches/tp2-ep4/block1/outcome.json", "tp2-ep4 is planned in block 1: it is rejected"),
    ],
)
def test_a_target_that_was_mistyped_is_named_with_what_there_is(workspace, target, said):
    done = workspace.snakemake("-n", target)
    assert done.returncode != 0
    assert said in done.stdout + done.stderr
    assert "KeyError" not in done.stdout + done.stderr


def test_a_file_of_prompts_that_cannot_be_used_is_a_fault_of_the_plan(workspace):
    (workspace.path / "broken.yaml").write_text("- id: a\n  text: hello: [\n")
    (workspace.path / "empty.jsonl").write_text('{"prompt": "x"}\n{"promt": "y"}\nnot json\n')

    def use_them(config):
        chat = config["workloads"]["chat"]
        chat["file"] = "broken.yaml"
        config["workloads"]["lines"] = {**chat, "kind": "jsonl", "file": "empty.jsonl"}

    done = edited(workspace, use_them)
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "broken.yaml: not YAML in line 2" in said
    assert "line 2: neither `prompt` (text) nor `messages`; line 3: not JSON" in said


def test_a_missing_configuration_is_named(workspace):
    shutil.rmtree(workspace.path / "config")
    done = workspace.snakemake("-n")
    assert done.returncode != 0
    assert "config/config.yaml" in done.stdout + done.stderr
