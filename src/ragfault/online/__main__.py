"""The worker process of the background: frames on standard input, frames on standard output."""

from __future__ import annotations

import os
import signal
import sys

from ragfault.online.working import serve

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, who still wants the scores
    given = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a judge prints is no frame
    try:
        serve(sys.stdin.buffer, given)
    except BrokenPipeError:  # whoever asked was killed: there is nobody to tell
        os._exit(1)
