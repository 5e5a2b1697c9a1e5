"""Stands in for Triton on a machine without a GPU: SGLang's kernels can be defined, none can be launched."""

from triton._unavailable import Unavailable, names
from triton.runtime.autotuner import Config, OutOfResources
from triton.runtime.jit import JITFunction, KernelInterface

__all__ = ["Config", "JITFunction", "KernelInterface", "OutOfResources", "cdiv", "next_power_of_2"]
__version__ = "3.5.0"
__getattr__ = names(__name__)


def cdiv(x, y):
    """Return x / y rounded up."""
    return (x + y - 1) // y


def next_power_of_2(n):
    """Return the smallest power of two that is at least n."""
    return 1 << (n - 1).bit_length() if n > 0 else 0


def _decorator_factory(*args, **kwargs):
    return lambda function: function


autotune = heuristics = _decorator_factory
jit = Unavailable("triton.jit")
