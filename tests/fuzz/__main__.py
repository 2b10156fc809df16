"""`python -m tests.fuzz overrides|files|checkpoints 10000 [SEED]`: how many generated command lines, data files or
checkpoints end in a foreign traceback or a hang, and which."""

import os
import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path

os.environ.setdefault("TQDM_DISABLE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.pop("ATTNPROBE_DATA_DIR", None)

from tests.fuzz import checkpoints, files, overrides
from tests.fuzz.cases import outcomes


def main() -> None:
    kind, number, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        os.chdir(folder)
        if kind == "overrides":
            case = partial(stack.enter_context(overrides.ready()), seed=seed)
        else:
            case = partial({"files": files, "checkpoints": checkpoints}[kind].failure, folder=Path(folder), seed=seed)
        failures = outcomes(case, range(number))
    print("\n".join(failures))
    print(f"{kind}: {len(failures)} of {number:,} end in a foreign traceback or a hang (seed {seed})")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
