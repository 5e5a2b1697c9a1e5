"""The gallery renders recordings and scenarios, and its index links them."""

import pytest

from reckoning.report.showcase import showcase
from tests.unit.report import specimen


@pytest.mark.slow
def test_gallery_holds_recordings_and_scenarios(tmp_path):
    specimen.write(tmp_path / "recordings" / "two-gpus", ran=[], arms=["ep8"], kind="recording")
    pages = showcase(tmp_path / "gallery", ["all-failed"], tmp_path / "recordings")
    assert pages == [("recording-two-gpus", "recording"), ("all-failed", "synthetic")]
    index = (tmp_path / "gallery/index.html").read_text()
    for name, _ in pages:
        assert f'href="{name}.html"' in index
        assert "</html>" in (tmp_path / f"gallery/{name}.html").read_text()
    assert "Recording of an earlier run" in (tmp_path / "gallery/recording-two-gpus.html").read_text()
