"""CASE 38: `ulimit -n 256` with 512 streams."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
from reckoning.load.descriptors import TooFewDescriptors, allow_streams
try:
    print(allow_streams(512), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
except TooFewDescriptors as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("soft", "hard", "said"),
    [
        (256, 1024, "576 576"),
        (1000, 1024, "1000 1000"),
        (256, 512, "512 streams need 576 open files, but the hard limit is 512: raise it (ulimit -Hn 576 as root"),
    ],
)
def test_the_limit_is_raised_or_the_level_is_refused(soft: int, hard: int, said: str) -> None:
    scripts = Path(__file__).parents[3] / "scripts"
    script = SCRIPT.format(soft=soft, hard=hard)
    result = subprocess.run([sys.executable, "-c", script], cwd=scripts, capture_output=True, text=True, check=True)
    assert result.stdout.startswith(said)
