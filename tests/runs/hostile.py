"""Settings that try to run code, made at random, and how many of them did.

`python -m tests.runs.hostile 10000`
"""

import sys
import tempfile
from contextlib import ExitStack
from itertools import chain, count, islice
from pathlib import Path
from random import Random
from unittest import mock

from tests.runs.test_allowed import CONSTRUCTORS, accepted, full_settings, spoilt

STARTED = ("os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "socket.connect")
"""Events by which code that settings asked for would show."""

if __name__ == "__main__":
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    settings = full_settings()
    executed = []
    rounds = (spoilt(settings, Random(seed)) for seed in count())
    cases = islice(chain.from_iterable(rounds), number)

    def note(event: str, arguments: tuple) -> None:
        if event in STARTED:
            executed.append(event)

    def note_construction(*arguments: object, **named: object) -> None:
        executed.append(repr(arguments))

    sys.addaudithook(note)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as patches:
        for module, name in CONSTRUCTORS:
            patches.enter_context(mock.patch.object(module, name, note_construction))
        names = list(accepted(Path(folder), cases))
    print(
        f"{number:,} settings, each read by load_run and by run=: accepted {len(names)}, "
        f"executed {len(executed)}"
    )
    print(*names[:20], *executed[:20], sep="\n")
    sys.exit(bool(names or executed))
