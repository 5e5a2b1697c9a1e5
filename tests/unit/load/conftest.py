from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from reckoning.load import hot_path as hot_path_module


@pytest.fixture
def chat_workload(tmp_path: Path) -> dict:
    """A workload of three short prompts, closed loop, no flush (the scripted server is no SGLang unless said so)."""
    file = tmp_path / "prompts.yaml"
    file.write_text(yaml.safe_dump([{"id": f"p{n}", "text": f"prompt number {n}"} for n in range(3)]))
    return {"kind": "prompts", "file": str(file), "output_tokens": 8, "ignore_eos": True, "flush": False}


@pytest.fixture(params=["python", "compiled"], scope="module")
def hot_path(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each of the two forms of what is done for every token and every event."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(hot_path_module.VARIABLE, request.param)
        yield request.param
