"""Peak memory; torch is not imported for it, which would count where it is measured."""

import resource
import sys


def peak_memory() -> float:
    """The largest resident set of this process so far, in MB."""
    # Linux counts in kilobytes, macOS in bytes
    unit = 1e6 if sys.platform == "darwin" else 1e3
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
