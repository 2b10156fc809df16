"""Settings that try to run code, made at random: `python -m tests.runs.hostile 10000` says how
many of them did."""

import sys
import tempfile
from itertools import chain, count, islice
from pathlib import Path
from random import Random
from unittest import mock

from hydra._internal.instantiate import _instantiate2

from tests.runs.test_allowed import accepted, full_settings, spoilt

STARTED = ("os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "socket.connect")
"""Events by which code that settings asked for would show."""

if __name__ == "__main__":
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    settings = full_settings()
    executed = []
    cases = islice(chain.from_iterable(spoilt(settings, Random(seed)) for seed in count()), number)
    sys.addaudithook(lambda event, _: executed.append(event) if event in STARTED else None)
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(_instantiate2, "_call_target", executed.append),
    ):
        through = list(accepted(Path(folder), cases))
    print(
        f"{number:,} settings, each read by load_run and by run=: accepted {len(through)}, executed {len(executed)}"
    )
    print(*through[:20], *executed[:20], sep="\n")
    sys.exit(bool(through or executed))
