"""Names that PyTorch looks for when Triton can be imported."""


class ASTSource:
    """What a kernel's source would be."""


class CompiledKernel:
    """What a compiled kernel would be."""


def triton_key():
    """Return the name of this stand-in, where Triton returns a hash of its own sources."""
    return "unavailable"


def make_backend(target):
    """Raise: nothing can be compiled."""
    raise NotImplementedError("Triton is not available on a CPU")
