"""`python -m tests.fuzz overrides 10000` or `python -m tests.fuzz files 10000`: counts, and every foreign traceback."""

import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("TQDM_DISABLE", "1")
os.environ.pop("ATTNPROBE_DATA_DIR", None)

from tests.fuzz import files, overrides
from tests.fuzz.test_fuzz import small_data


def main() -> None:
    kind, number, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        found = (
            overrides.failures(number, small_data(), seed)
            if kind == "overrides"
            else files.failures(number, Path(folder), seed)
        )
    print("\n".join(found))
    print(f"{kind}: {len(found)} foreign tracebacks of {number} (seed {seed})")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
