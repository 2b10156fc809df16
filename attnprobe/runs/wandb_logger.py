"""Lightning's logger for W&B, in a file of its own because importing it takes a while."""

from collections.abc import Mapping, Sequence

from lightning.pytorch.loggers import WandbLogger

from attnprobe.report.tracking import curve


class NamedWandbLogger(WandbLogger):
    """W&B's logger, with curves of a class under the class's name.

    Attributes:
        classes: names of the classes; empty: their numbers stay.
    """

    classes: Sequence[str] = ()

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Log the metrics under the names that W&B shows."""
        named = {curve(name, self.classes): value for name, value in metrics.items()}
        super().log_metrics(named, step)
