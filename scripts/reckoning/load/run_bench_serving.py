"""Run by the engine's interpreter, not by ours: starts SGLang's bench_serving with the arguments given.

The module has moved (to `sglang.benchmark.serving`), and it imports `datasets` for image data that is not used here; an
engine built for serving alone may lack that package, so an empty one takes its place.
"""

import importlib.util
import runpy
import sys
import types
from importlib.metadata import version

NAMES = ("sglang.benchmark.serving", "sglang.bench_serving")


def _not_here(*_: object, **__: object) -> None:
    raise RuntimeError("the package `datasets` is not installed in this engine")


def main() -> None:
    if importlib.util.find_spec("datasets") is None:
        stand_in = types.ModuleType("datasets")
        stand_in.load_dataset = _not_here
        sys.modules["datasets"] = stand_in
    name = next(name for name in NAMES if importlib.util.find_spec(name) is not None)
    print(f"{name} of sglang {version('sglang')}", flush=True)
    runpy.run_module(name, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    sys.path.pop(0)  # this file's folder holds modules of ours that must not shadow the engine's
    main()
