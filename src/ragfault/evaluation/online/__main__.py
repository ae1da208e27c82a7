"""The worker process of the background scorer: messages on standard input and standard output."""

from __future__ import annotations

import os
import signal
import sys

from ragfault.evaluation.online.background import run_worker

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, who still wants the scores
    output_stream = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a judge prints is no frame
    try:
        run_worker(sys.stdin.buffer, output_stream)
    except BrokenPipeError:  # whoever asked was killed: there is nobody to tell
        os._exit(1)
