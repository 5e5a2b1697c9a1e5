from pathlib import Path

import pytest
import yaml


@pytest.fixture
def chat_workload(tmp_path: Path) -> dict:
    """A workload of three short prompts, closed loop, no flush (the scripted server is no SGLang unless said so)."""
    file = tmp_path / "prompts.yaml"
    file.write_text(yaml.safe_dump([{"id": f"p{n}", "text": f"prompt number {n}"} for n in range(3)]))
    return {"kind": "prompts", "file": str(file), "output_tokens": 8, "ignore_eos": True, "flush": False}
