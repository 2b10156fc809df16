"""No bad moment: python -m tests.faults [--scenario run …] [--kind kill …] [--points N] [--jobs N] [--list FILE]

Every fault happens once before every operation by which the command changes files; then the same command runs again,
and must end with the files of a command that nothing disturbed, byte for byte, apart from times.
"""

import argparse
import importlib
import json
import os
import pkgutil
import sys
import tempfile
from collections import Counter
from dataclasses import asdict
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # before torch: a process with threads cannot be forked

from tests.faults.campaign import carried_out
from tests.faults.operations import KINDS
from tests.faults.processes import adopt_orphans
from tests.faults.scenarios import SCENARIOS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__.split("\n")[0])
    parser.add_argument("--scenario", nargs="+", choices=[one.name for one in SCENARIOS], default=None)
    parser.add_argument("--kind", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument(
        "--points", type=int, help="this many operations per scenario and kind, evenly spread (default: all)"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument(
        "--list", type=Path, help="write every finding into this file as it comes, one JSON object a line"
    )
    asked = parser.parse_args()
    import_everything()
    with tempfile.TemporaryDirectory() as name:
        path = asked.list or Path(name) / "findings"
        path.write_text("")
        children = []
        for number in range(asked.jobs):
            if (pid := os.fork()) == 0:
                carry_out(asked, number, path)
                os._exit(0)
            children.append(pid)
        ended = [os.waitpid(pid, 0)[1] for pid in children]
        findings = [json.loads(line) for line in path.read_text().splitlines()]
    for (scenario, kind), number in Counter((one["scenario"], one["fault"]["kind"]) for one in findings).items():
        print(f"{scenario:20} {kind:18} {number} faults")
    wrong, vague = (sum(bool(one[word]) for one in findings) for word in ("wrong", "unclear"))
    print(f"{len(findings)} faults: {wrong} wrong, {vague} unclear")
    raise SystemExit(bool(any(ended) or wrong or vague))


def import_everything() -> None:
    """What the commands import, and what they read of sources, so that their forks need not: it decides no number."""
    import matplotlib.backends.backend_agg
    import matplotlib.backends.backend_pdf
    import matplotlib.backends.backend_svg  # noqa: F401 - and its neighbours
    import PIL.Image
    import torch
    from hydra import initialize_config_dir

    import attnprobe
    from attnprobe.runs.composition import CONFIGURATION, composed, resolved
    from attnprobe.runs.validation import check

    PIL.Image.init()
    for module in pkgutil.walk_packages(attnprobe.__path__, "attnprobe."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    with initialize_config_dir(str(CONFIGURATION), version_base="1.3"):
        for scenario in SCENARIOS:
            for one in (*scenario.before, scenario.disturbed):
                if one.module == "attnprobe":
                    check(resolved(composed(one.arguments)))
    torch.set_num_threads(1)


def carry_out(asked: argparse.Namespace, number: int, path: Path) -> None:
    """One process's share of the campaign; its findings are added to a file as they come."""
    adopt_orphans()
    with path.open("a", buffering=1) as file:
        for scenario in SCENARIOS:
            if asked.scenario is None or scenario.name in asked.scenario:
                for _, finding in carried_out(scenario, asked.kind, asked.points, number, asked.jobs):
                    file.write(json.dumps(asdict(finding), ensure_ascii=False) + "\n")
                    for reason in (*finding.wrong, *finding.unclear):
                        where = f"{finding.scenario}, {finding.fault.kind} at {finding.fault.at}"
                        print(f"{where} ({finding.operation}): {reason}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
