"""Reckoning: which way of serving this MoE model is best on this machine, as a reproducible experiment."""

__version__ = "0.1.0"
