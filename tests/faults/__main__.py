"""No bad moment: a command that is disturbed at any time can be given again.

    python -m tests.faults [--scenario run …] [--kind kill …] [--points N] [--jobs N] [--list FILE]

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
from dataclasses import asdict
from pathlib import Path

import pandas as pd

os.environ["OMP_NUM_THREADS"] = "1"  # before torch: a process with threads cannot be forked

from tests.faults.campaign import SCENARIOS, outcomes_of
from tests.faults.operations import KINDS
from tests.faults.processes import adopt_orphans


def main() -> None:
    """Carry out the campaign, print its table, and end with status 1 where something was wrong."""
    options = parser().parse_args()
    import_everything()
    with tempfile.TemporaryDirectory(prefix="attnprobe-faults-") as folder:
        path = options.list or Path(folder) / "findings"
        path.write_text("")
        children = []
        for part in range(options.jobs):
            child = os.fork()
            if child == 0:
                carry_out(options, part, Path(folder).resolve(), path)
                os._exit(0)
            children.append(child)
        statuses = [os.waitpid(child, 0)[1] for child in children]
        outcomes = pd.DataFrame([json.loads(line) for line in path.read_text().splitlines()])

    outcomes["faults"] = 1
    for column in ("wrong", "unclear"):
        outcomes[column] = outcomes[column].astype(bool)
    columns = ["faults", "wrong", "unclear"]
    print(outcomes.groupby(["scenario", "kind"], sort=False)[columns].sum().to_string())
    wrong = outcomes["wrong"].sum()
    unclear = outcomes["unclear"].sum()
    print(f"{len(outcomes)} faults: {wrong} wrong, {unclear} unclear")
    raise SystemExit(int(any(statuses) or wrong + unclear > 0))


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m tests.faults", description=__doc__.split("\n")[0]
    )
    made.add_argument("--scenario", nargs="+", choices=SCENARIOS, default=list(SCENARIOS))
    made.add_argument("--kind", nargs="+", choices=KINDS, default=KINDS)
    made.add_argument(
        "--points", type=int, help="operations per scenario and kind, evenly spread (default: all)"
    )
    made.add_argument("--jobs", type=int, default=1, help="processes at a time")
    made.add_argument(
        "--list", type=Path, help="write every finding into this file, one JSON object a line"
    )
    return made


def carry_out(options: argparse.Namespace, part: int, folder: Path, path: Path) -> None:
    """One process's part of the campaign; its outcomes are added to the file."""
    adopt_orphans()
    with path.open("a", buffering=1) as file:
        for name in options.scenario:
            for outcome in outcomes_of(
                name,
                options.kind,
                options.points,
                part=part,
                parts=options.jobs,
                place=folder / f"{name}-{part}",
            ):
                file.write(json.dumps(asdict(outcome), ensure_ascii=False) + "\n")
                for reason in outcome.wrong + outcome.unclear:
                    where = f"{name}, {outcome.kind} at {outcome.at} ({outcome.operation})"
                    print(f"{where}: {reason}", file=sys.stderr, flush=True)


def import_everything() -> None:
    """Import what the commands import, so that their forks need not: it decides no number."""
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
