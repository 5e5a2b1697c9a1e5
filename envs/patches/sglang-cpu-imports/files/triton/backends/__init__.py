"""No backend: PyTorch reads this as "Triton cannot run here"."""

backends = {}
