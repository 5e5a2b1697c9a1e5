"""The limit on open files: one stream is one socket, so a level may need more than the default of 1024."""

from __future__ import annotations

import resource

RESERVE = 64  # files that the process needs beside the streams


class TooFewDescriptors(RuntimeError):
    """The hard limit on open files is below what a level needs."""


def allow_streams(streams: int) -> int:
    """Raise the soft limit on open files until `streams` sockets fit; return the soft limit now in force.

    Raises TooFewDescriptors, with the remedy, when the hard limit is too low: better no point than one at a
    concurrency that was never reached.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = streams + RESERVE
    unlimited = resource.RLIM_INFINITY
    if soft == unlimited or soft >= needed:
        return soft
    if hard != unlimited and hard < needed:
        raise TooFewDescriptors(
            f"{streams} streams need {needed} open files, but the hard limit is {hard}: raise it "
            f"(ulimit -Hn {needed} as root, LimitNOFILE= in a service, --ulimit nofile= for a container)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    return needed
