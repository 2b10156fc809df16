"""Hydra's way to a sweep that is no single grid: several grids, one after the other.

Hydra takes sweepers only from this namespace, and imports this file at every start.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import CompactHydraException

OF_THE_SWEEP = ("+experiment=", "grids=")
"""Settings of the sweep itself, which its jobs do not have."""


class GridsSweeper(BasicSweeper):
    """All combinations of every grid of `hydra.sweeper.grids` (conf/experiment/papers.yaml).

    A grid is what `hydra.sweeper.params` is to Hydra's own sweeper: settings and their values,
    separated by commas. What the command line says of a setting replaces what a grid says, so
    that `seed=0` makes every grid smaller.
    """

    def __init__(
        self,
        grids: Mapping[str, Mapping[str, Any]],
        names: Sequence[str],
        max_batch_size: int | None = None,
        params: Mapping[str, str] | None = None,
    ) -> None:
        """Keep the grids.

        Args:
            grids: name → setting → values, as on a command line.
            names: the grids that are run, in their order.
            max_batch_size: as of Hydra's own sweeper.
            params: settings that all grids have; a grid's own come after them.
        """
        super().__init__(max_batch_size, dict(params or {}))
        self.grids = grids
        self.names = names

    def sweep(self, arguments: list[str]) -> Any:
        """Run the jobs of all grids as one sweep.

        Args:
            arguments: of the command line.

        Raises:
            CompactHydraException: a grid that is asked for is nowhere; nothing was started.
        """
        unknown = [str(name) for name in self.names if name not in self.grids]
        if unknown:
            from attnprobe.core.errors import UserError

            mistake = UserError(
                f"grids=[{','.join(self.names)}]: there is no {', '.join(unknown)}; expected some "
                f"of {', '.join(self.grids)}"
            )
            raise CompactHydraException(f"attnprobe: {mistake}") from mistake
        return super().sweep(
            [argument for argument in arguments if not argument.startswith(OF_THE_SWEEP)]
        )

    def split_arguments(  # type: ignore[override]  # a static method there, which knows no grids
        self, overrides: Sequence[Any], max_batch_size: int | None
    ) -> list[list[list[str]]]:
        """Every grid's combinations with the command line, in the grids' order.

        Args:
            overrides: the settings of `params` and of the command line.
            max_batch_size: jobs that Hydra hands to its launcher at once; None: all.
        """
        parser = OverridesParser.create()
        jobs: list[list[str]] = []
        for name in self.names:
            grid = self.grids[name].items()
            settings = [f"{setting}={values}" for setting, values in grid]
            whole = [*parser.parse_overrides(settings), *overrides]
            jobs += chain.from_iterable(BasicSweeper.split_arguments(whole, None))
        return [list(batch) for batch in self.split_overrides_to_chunks(jobs, max_batch_size)]
