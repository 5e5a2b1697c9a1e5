"""What holds for every test."""

import signal

# A shell lets the commands in its background ignore Ctrl-C, and all that they start with them: tests of Ctrl-C need it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
