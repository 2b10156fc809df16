"""A job's log: where an attempt begins, and what it says about its end."""

import re
import signal
import time
from collections.abc import Sequence
from pathlib import Path

TAIL = 16_384
"""Bytes at the end of a log in which the error is looked for."""

MESSAGE = re.compile(r"(attnprobe: |[\w.]*(Error|Exception|Interrupt|Exit)\b)")
HEADING = re.compile(r"^--- \d{4}-\d\d-\d\d .*$", re.MULTILINE)
HINT = "Set the environment variable HYDRA_FULL_ERROR=1"


def heading(command: Sequence[str]) -> bytes:
    """The line with which an attempt begins; a log is continued by the next one."""
    return f"--- {time.strftime('%Y-%m-%d %H:%M:%S')}  {' '.join(command)}\n".encode()


def last_error(log: Path, status: int) -> str:
    """One line that says why a job with this exit status failed: the last error message of its last attempt, else its
    last line; for a signal its name."""
    if status < 0:
        name = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
        return f"killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
    try:
        with log.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - TAIL))
            text = file.read().decode("utf-8", errors="replace")
    except OSError as error:
        return f"no log: {error.strerror}"
    text = HEADING.split(text)[-1]
    # a progress bar draws itself again after a carriage return
    lines = [line.strip() for line in re.split(r"[\r\n]+", text)]
    lines = [line for line in lines if line and not line.startswith(HINT)]
    messages = [line for line in lines if MESSAGE.match(line)]
    return (messages or lines or ["no word in its log"])[-1]
