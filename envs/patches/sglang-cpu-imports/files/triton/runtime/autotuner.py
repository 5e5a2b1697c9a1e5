"""Classes that PyTorch derives from, catches or asks `isinstance` about."""

from triton.runtime.jit import KernelInterface


class Autotuner(KernelInterface):
    """What `@triton.autotune` would return."""


class Heuristics(KernelInterface):
    """What `@triton.heuristics` would return."""


class OutOfResources(Exception):
    """Never raised here."""


class PTXASError(Exception):
    """Never raised here."""


class Config:
    """The options of one tuning candidate."""

    def __init__(self, kwargs=None, num_warps=4, num_stages=2, **others):
        self.kwargs = kwargs or {}
        self.num_warps = num_warps
        self.num_stages = num_stages
        self.others = others
