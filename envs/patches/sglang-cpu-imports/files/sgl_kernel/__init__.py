"""Stands in for SGLang's CUDA kernels on a machine without a GPU: every name can be imported, no kernel can be called.

The real package needs libcuda to be imported. `sgl_kernel.scalar_type` is absent on purpose: SGLang has its own
fallback for it, which it takes when that import fails.
"""

__version__ = "0.0.0"


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)

    def unavailable(*args, **kwargs):
        raise NotImplementedError(f"sgl_kernel.{name} needs a GPU; on a CPU it only can be imported")

    unavailable.__name__ = name
    return unavailable
