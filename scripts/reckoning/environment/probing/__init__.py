"""Collecting raw facts. Nothing here has an opinion, changes the system, or waits without a limit."""
