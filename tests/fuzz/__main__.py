"""`python -m tests.fuzz overrides|files|checkpoints 10000 [SEED]`

Counts the generated command lines, data files or checkpoints that end in a foreign traceback or a
hang, and names them.
"""

import os
import sys
import tempfile
from functools import partial
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.pop("ATTNPROBE_DATA_DIR", None)

from tests.fuzz import checkpoints, files, overrides
from tests.fuzz.cases import outcomes

if __name__ == "__main__":
    kind = sys.argv[1]
    number = int(sys.argv[2])
    seed = int((sys.argv[3:] or [0])[0])
    case = {"overrides": overrides, "files": files, "checkpoints": checkpoints}[kind].case
    with tempfile.TemporaryDirectory() as folder, overrides.ready():
        os.chdir(folder)
        failures = outcomes(partial(case, folder=Path(folder), seed=seed), range(number))
    print("\n".join(failures))
    print(
        f"{kind}: {len(failures)} of {number:,} end in a foreign traceback or a hang (seed {seed})"
    )
    sys.exit(bool(failures))
