"""The worker process of the background scorer: messages on standard input and standard output."""

from __future__ import annotations

import os
import signal
import sys

from ragfault.evaluation.online.background import run_worker

if __name__ == "__main__":
    # the parent handles Ctrl-C and still waits for the scores
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    output_stream = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # what a judge prints is no message
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        run_worker(sys.stdin.buffer, output_stream)
    except BrokenPipeError:
        # the parent was killed
        os._exit(1)
