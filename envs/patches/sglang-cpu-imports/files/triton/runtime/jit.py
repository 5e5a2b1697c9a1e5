"""Classes that PyTorch derives from or asks `isinstance` about."""


class KernelInterface:
    """What a launchable kernel would be."""

    def __class_getitem__(cls, item):
        return cls


class JITFunction(KernelInterface):
    """What `@triton.jit` would return."""
