from triton._unavailable import names
from triton.runtime.autotuner import Autotuner, Heuristics, OutOfResources
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction, KernelInterface

__all__ = ["Autotuner", "Heuristics", "JITFunction", "KernelInterface", "OutOfResources", "driver"]
__getattr__ = names(__name__)
