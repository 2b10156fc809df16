"""Waiting for other processes without a time of one's own."""

import time


def wait_for(condition):
    """However long it takes here; what never comes is ended by the suite's own limit
    (pyproject.toml, `timeout`)."""
    while not condition():
        time.sleep(0.02)
