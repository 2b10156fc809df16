"""The command line: python -m attnprobe +experiment=jain_adversarial [data=…] [model=…] [probe=[…]] [-m]"""

import sys
from collections.abc import Sequence
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import CompactHydraException, InstantiationException
from hydra.types import RunMode
from omegaconf import DictConfig

from attnprobe.errors import UserError
from attnprobe.launching.signals import answering_signals
from attnprobe.launching.slots import end_with_pool, wait_briefly
from attnprobe.running.devices import refuse_several_devices

PACKAGE = Path(__file__).resolve().parent
# beside the package in a checkout, inside it in an installed copy
CONFIGURATION = next(p for p in (PACKAGE / "conf", PACKAGE.parent / "conf") if p.is_dir())


@answering_signals()
@hydra.main(config_path=str(CONFIGURATION), config_name="config", version_base="1.3")
def main(config: DictConfig) -> float | None:
    """Run one experiment; a mistake of the user ends it with one message and status 2.

    Returns:
        in a sweep the number that a search for settings optimises (Hydra's own launchers run jobs in this process).
    """
    end_with_pool()
    wait_briefly()
    # importing torch takes seconds that --help need not wait for
    from attnprobe.launching.sweep import objective
    from attnprobe.report.study_summary import publish_study
    from attnprobe.report.summary import data_notes, print_summary
    from attnprobe.results.directory import read_manifest
    from attnprobe.results.table import read_results
    from attnprobe.running.run import run
    from attnprobe.running.settings import taken_up
    from attnprobe.studies.base import carry_out_study, with_teacher

    overrides = list(HydraConfig.get().overrides.task)
    sweep = HydraConfig.get().mode == RunMode.MULTIRUN
    try:
        if sweep or config.study is not None:
            refuse_several_devices(config.trainer)
        if config.study is not None:
            publish_study(carry_out_study(overrides, composed))
            return None
        config = taken_up(config, overrides)
        if config.teacher == "auto":
            config = composed(with_teacher(overrides, composed))
        directory = run(config, sweep=sweep)
    except (UserError, InstantiationException) as raised:
        # a mistake that a constructor found comes wrapped
        error = raised if isinstance(raised, UserError) else raised.__cause__
        if not isinstance(error, UserError):
            raise
        if sweep:  # Hydra's own launchers go on with the next job
            raise CompactHydraException(f"attnprobe: {error}") from None
        print(f"attnprobe: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    print_summary(read_results(directory), directory=directory)
    if (directory / "figures").is_dir():
        print(f"figures: {directory / 'figures'}")
    for line in data_notes((read_manifest(directory) or {}).get("counts", {})):
        print(line)
    return objective(directory) if sweep else None


def composed(overrides: Sequence[str]) -> DictConfig:
    """The configuration that these command-line arguments give, while the program runs."""
    return hydra.compose("config", overrides=list(overrides))


if __name__ == "__main__":
    main()
