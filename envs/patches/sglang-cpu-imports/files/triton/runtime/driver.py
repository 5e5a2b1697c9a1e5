"""Triton's answer on a machine without a GPU: no driver is active."""


class _Driver:
    @property
    def active(self):
        raise RuntimeError("0 active drivers: Triton is not available on a CPU")


driver = _Driver()
