"""What a process holds after arrays of a few megabytes are gone, in a process of its own."""

import os
import platform
import subprocess
import sys

import pyarrow as pa
import pytest

from attnprobe.report.memory import ARROWS

SCRIPT = """
import sys
import numpy as np
from attnprobe.report.memory import give_back_memory

if sys.argv[1] == "given back":
    give_back_memory()
size = 1 << 18
large = np.ones(16 * size)  # once it is freed, glibc takes nothing smaller for large
del large
arrays = [np.ones(size) for _ in range(40)]  # 2 MB each, after each a small one that stays
kept = []
for place in range(40):
    arrays[place] = np.ones(size)
    kept.append(np.ones(1000))
del arrays
with open("/proc/self/statm") as file:
    print(int(file.read().split()[1]))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library than glibc")
def test_what_is_deleted_leaves_the_process():
    pages = [
        int(subprocess.run([sys.executable, "-c", SCRIPT, how], check=True, stdout=subprocess.PIPE, text=True).stdout)
        for how in ("kept", "given back")
    ]
    assert pages[0] - pages[1] > 40 * (1 << 21) / 4096 / 2


@pytest.mark.skipif(sys.platform != "linux", reason="another system than Linux")
@pytest.mark.parametrize("named", [None, "mimalloc"])
def test_arrow_asks_the_system_unless_the_user_says_whom(named):
    script = (
        "import os\nfrom attnprobe.report.memory import ARROWS, give_back_memory\ngive_back_memory()\n"
        "import pyarrow as pa\nprint(pa.default_memory_pool().backend_name, os.environ.get(ARROWS))"
    )
    environment = {name: value for name, value in os.environ.items() if name != ARROWS}
    environment |= {} if named is None else {ARROWS: named}
    said = subprocess.run(
        [sys.executable, "-c", script], check=True, stdout=subprocess.PIPE, text=True, env=environment
    ).stdout.split()
    expected = "system" if named is None or named not in pa.supported_memory_backends() else named
    assert said == [expected, str(named)]


def test_the_report_begins_with_nothing_of_arrow_imported():
    script = "import sys, attnprobe.report.__main__\nassert 'pyarrow' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
