"""Starts one of SGLang's two load clients from an unpacked wheel, without the engine it comes with.

python contender_bench_serving.py WHEEL_FOLDER python|rust ARGUMENTS...   (run by the peers' interpreter, see peers.sh)

Only imports are replaced: the engine's packages that the clients name but do not use while they measure.
"""

import importlib.util
import runpy
import sys
import sysconfig
import types
from pathlib import Path

EXTENSION = f"sglang/srt/rust_extensions/_bench{sysconfig.get_config_var('EXT_SUFFIX')}"


def module(name: str, path: Path | None = None, **attributes: object) -> None:
    made = types.ModuleType(name)
    if path is not None:
        made.__path__ = [str(path)]
    vars(made).update(attributes)
    sys.modules[name] = made


def load(name: str, path: Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made
    spec.loader.exec_module(made)
    return made


def tokenizer(name: str, **_: object) -> object:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(name)


def run_python(wheel: Path) -> None:
    nowhere = Path("/nonexistent")
    module("sglang", wheel / "sglang")
    for name in ("sglang.srt", "sglang.srt.disaggregation", "sglang.srt.utils"):
        module(name, nowhere)
    module("sglang.srt.disaggregation.utils", FAKE_BOOTSTRAP_HOST="2.2.2.2")
    module("sglang.srt.utils.hf_transformers_utils", get_tokenizer=tokenizer)
    load("sglang.srt.utils.network", wheel / "sglang/srt/utils/network.py")
    if importlib.util.find_spec("datasets") is None:
        module("datasets", load_dataset=None)
    runpy.run_module("sglang.benchmark.serving", run_name="__main__", alter_sys=True)


def run_rust(wheel: Path) -> None:
    extension = load("sglang.srt.rust_extensions._bench", wheel / EXTENSION)
    extension.run_argv(sys.argv)


if __name__ == "__main__":
    wheel, which = Path(sys.argv[1]).resolve(), sys.argv[2]
    del sys.argv[1:3]
    if which == "rust":
        run_rust(wheel)
    else:
        run_python(wheel)
