"""No bad moment: python -m tests.faults [--scenario run …] [--kind kill …] [--points N] [--jobs N]
[--list FILE]

Every fault happens once before every operation by which the command changes files; then the same
command runs again, and must end with the files of a command that nothing disturbed, byte for byte,
apart from times."""

import argparse
import importlib
import json
import os
import pkgutil
import sys
import tempfile
from pathlib import Path

import pandas as pd

os.environ["OMP_NUM_THREADS"] = "1"  # before torch: a process with threads cannot be forked

from tests.faults.campaign import SCENARIOS, carried_out
from tests.faults.operations import KINDS
from tests.faults.processes import adopt_orphans


def main() -> None:
    """Carry out the campaign, print its table, and end with status 1 where something was wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--scenario", nargs="+", choices=SCENARIOS, default=list(SCENARIOS))
    parser.add_argument("--kind", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument(
        "--points", type=int, help="operations per scenario and kind, evenly spread (default: all)"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument(
        "--list", type=Path, help="write every finding into this file, one JSON object a line"
    )
    asked = parser.parse_args()
    import_everything()
    with tempfile.TemporaryDirectory(prefix="attnprobe-faults-") as folder:
        path = asked.list or Path(folder) / "findings"
        path.write_text("")
        children = []
        for number in range(asked.jobs):
            children.append(os.fork())
            if children[-1] == 0:
                adopt_orphans()
                with path.open("a", buffering=1) as file:
                    for name in asked.scenario:
                        place = Path(folder).resolve() / f"{name}-{number}"
                        for one in carried_out(
                            name, asked.kind, asked.points, number, asked.jobs, place
                        ):
                            file.write(json.dumps(one, ensure_ascii=False) + "\n")
                            for reason in one["wrong"] + one["unclear"]:
                                where = f"{name}, {one['kind']} at {one['at']} ({one['operation']})"
                                print(f"{where}: {reason}", file=sys.stderr, flush=True)
                os._exit(0)
        ended = [os.waitpid(pid, 0)[1] for pid in children]
        found = pd.DataFrame([json.loads(line) for line in path.read_text().splitlines()])
    found = found.assign(
        faults=1, wrong=found["wrong"].astype(bool), unclear=found["unclear"].astype(bool)
    )
    print(
        found.groupby(["scenario", "kind"], sort=False)[["faults", "wrong", "unclear"]]
        .sum()
        .to_string()
    )
    print(f"{len(found)} faults: {found['wrong'].sum()} wrong, {found['unclear'].sum()} unclear")
    raise SystemExit(int(any(ended) or found[["wrong", "unclear"]].to_numpy().any()))


def import_everything() -> None:
    """What the commands import, and what they read of sources, so that their forks need not: it
    decides no number."""
    import matplotlib.backends.backend_svg  # noqa: F401 - and its neighbours
    import PIL.Image
    import torch
    from hydra import initialize_config_dir

    import attnprobe
    from attnprobe.runs.composition import CONFIGURATION, composed, resolved
    from attnprobe.runs.validation import configured

    PIL.Image.init()
    for module in pkgutil.walk_packages(attnprobe.__path__, "attnprobe."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    with initialize_config_dir(str(CONFIGURATION), version_base="1.3"):
        for scenario in SCENARIOS.values():
            for module, *arguments in (*scenario.before, scenario.disturbed):
                if module == "attnprobe":
                    configured(resolved(composed(arguments)))
    torch.set_num_threads(1)


if __name__ == "__main__":
    main()
