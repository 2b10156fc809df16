"""The command line: python -m attnprobe +experiment=jain_adversarial [data=…] [model=…] [probe=[…]] [-m]"""

import sys
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from attnprobe.errors import UserError

PACKAGE = Path(__file__).resolve().parent
# beside the package in a checkout, inside it in an installed copy
CONFIGURATION = next(p for p in (PACKAGE / "conf", PACKAGE.parent / "conf") if p.is_dir())


@hydra.main(config_path=str(CONFIGURATION), config_name="config", version_base="1.3")
def main(config: DictConfig) -> None:
    """Run one experiment; a mistake of the user ends it with one message and status 2."""
    # importing torch takes seconds that --help need not wait for
    from attnprobe.report.summary import data_notes, print_summary
    from attnprobe.results import read_manifest, read_results
    from attnprobe.run import run

    try:
        directory = run(config, sweep=HydraConfig.get().mode == RunMode.MULTIRUN)
    except UserError as error:
        print(f"attnprobe: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    print_summary(read_results(directory), directory=directory)
    if (directory / "figures").is_dir():
        print(f"figures: {directory / 'figures'}")
    for line in data_notes((read_manifest(directory) or {}).get("counts", {})):
        print(line)


if __name__ == "__main__":
    main()
