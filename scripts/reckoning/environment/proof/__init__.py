"""Proving the tool chain: compile, link and run small programs as the JIT compilers would, within time limits."""

from reckoning.environment.proof.run import prove

__all__ = ["prove"]
