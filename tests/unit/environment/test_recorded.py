"""Facts of real machines, kept as they were sent."""

from pathlib import Path

import pytest

from reckoning.environment import Level, diagnose
from reckoning.environment.facts import read_facts
from tests.unit.environment.machines import DFLASH, EAGER, SAMPLED, plan

FACTS = Path(__file__).parents[2] / "data" / "environment"


def found(name, plan_=None):
    return {item.code: item for item in diagnose(read_facts(FACTS / f"{name}.json"), plan_)}


def failing(findings):
    return {code for code, item in findings.items() if item.level is Level.FAIL}


@pytest.mark.parametrize("path", sorted(FACTS.glob("*.json")), ids=lambda path: path.stem)
def test_every_recorded_file_fits_the_schema_and_is_judged(path):
    facts = read_facts(path)
    assert diagnose(facts)
    assert diagnose(facts) == diagnose(facts)


def test_nvcc_13_whose_toolkit_lacks_curand():
    """A machine without GPU: nvcc 13.0 behind a wrapper in /usr/local/bin, no curand, no stubs of the driver."""
    findings = found("nvcc-13.0-without-curand")
    assert failing(findings) == {"header-curand-missing", "link-cudart", "link-libcuda"}
    assert "/usr/local/cuda-13.0/" in findings["header-curand-missing"].where
    assert "fatal error: curand.h: No such file or directory" in findings["header-curand-missing"].why
    assert findings["cuda-home-is-no-toolkit"].remedy == "export CUDA_HOME=/usr/local/cuda-13.0"
    assert findings["link-cudart"].remedy.startswith("export CUDA_HOME=/usr/local/cuda-13.0")
    assert findings["proof-compile"].level is Level.OK


def test_its_remedy_mends_what_it_says_and_no_more():
    """The same machine with CUDA_HOME exported: the runtime links now; curand and the stub are still missing."""
    findings = found("nvcc-13.0-without-curand-cuda-home")
    assert failing(findings) == {"header-curand-missing", "link-libcuda"}
    assert "cuda-home-is-no-toolkit" not in findings
    assert "Tried: /usr/bin/ld: cannot find -lcuda:" in findings["link-libcuda"].why


def test_only_the_arms_that_need_curand_are_stopped_by_it():
    findings = found("nvcc-13.0-without-curand", plan(EAGER, DFLASH, SAMPLED, temperature=0.7))
    assert findings["header-curand-missing"].concerns == ("dflash", "sampled")


def test_two_h200_with_a_whole_toolkit():
    """Two H200 behind NVLink, driver 580, nvcc 13.0, torch 2.11.0+cu130, FlashInfer 0.6.11.post1 in a site folder."""
    findings = found("h200-x2")
    assert failing(findings) == set()
    assert {"proof-compile", "proof-link", "proof-run", "proof-flashinfer", "peer-copy"} <= {
        code for code, item in findings.items() if item.level is Level.OK
    }
    assert "580.159.04" in findings["driver-recent"].found
    assert "NV18" in findings["gpu-links"].found
    # The host's own transformers 5.17.0 stands beside the 5.6.0 that SGLang 0.5.12.post1 pins.
    assert findings["package-twice"].level is Level.WARN
    assert findings["package-twice"].found.count("5.6.0") == 1, "a folder that stands twice on the path is one tree"
