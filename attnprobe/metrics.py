"""The measures as metrics of torchmetrics: over batches, devices and loggers.

```python
from attnprobe.metrics import JensenShannon

moved = JensenShannon()
moved.update(attention, other_attention, mask=content)
self.log("test/moved", moved)
```

Each row of a batch, a text, has a number of its own (`attnprobe.measures`); the metric is their
mean, or all of them in the order in which they came.
"""

from abc import abstractmethod
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from attnprobe.core.errors import UserError
from attnprobe.measures import LN2, jensen_shannon, kendall_tau, total_variation

Rows = Float[Tensor, "batch seq"]


class RowMetric(Metric):
    """A number per row of two tensors of rows.

    Args:
        reduction: `mean` of the rows where the number is defined, or `none`: every row's number,
            NaN where it is undefined. Of several processes, those of the first one come first.
        **options: see `torchmetrics.Metric`.

    Raises:
        UserError: there is no such reduction.
    """

    full_state_update = False
    total: Tensor
    rows: Tensor
    undefined: Tensor
    """Rows so far whose number is undefined."""
    values: list[Tensor]

    def __init__(self, reduction: Literal["mean", "none"] = "mean", **options: Any) -> None:
        super().__init__(**options)
        if reduction not in ("mean", "none"):
            raise UserError(f"reduction={reduction!r}: expected 'mean' or 'none'")
        self.reduction = reduction
        self.add_state("undefined", torch.tensor(0), dist_reduce_fx="sum")
        if reduction == "none":
            self.add_state("values", [], dist_reduce_fx="cat")
        else:
            self.add_state("total", torch.tensor(0.0), dist_reduce_fx="sum")
            self.add_state("rows", torch.tensor(0), dist_reduce_fx="sum")

    def update(
        self, preds: Rows, target: Rows, mask: Bool[Tensor, "batch seq"] | None = None
    ) -> None:
        """Add a batch.

        Args:
            preds: rows.
            target: the rows that they are compared with.
            mask: entries that count; None: all.

        Raises:
            ValueError: the shapes or types do not fit.
        """
        values = self.measure(preds, target, mask).flatten()
        is_undefined = values.isnan()
        self.undefined += is_undefined.sum()
        if self.reduction == "none":
            self.values.append(values)
        else:
            self.total = self.total + torch.where(is_undefined, 0, values).sum()
            self.rows += (~is_undefined).sum()

    def compute(self) -> Tensor:
        """The mean, NaN where no row is defined; or `[rows]`."""
        if self.reduction == "none":
            return dim_zero_cat(self.values)
        return self.total / torch.where(self.rows > 0, self.rows, torch.nan)

    @staticmethod
    @abstractmethod
    def measure(
        preds: Rows, target: Rows, mask: Bool[Tensor, "batch seq"] | None = None, /
    ) -> Float[Tensor, "batch"]:
        """The number of every row."""


class JensenShannon(RowMetric):
    """Jensen-Shannon divergence of distributions, in nats, 0 to ln 2."""

    is_differentiable = True
    higher_is_better = None
    plot_lower_bound = 0.0
    plot_upper_bound = LN2
    measure = staticmethod(jensen_shannon)


class TotalVariation(RowMetric):
    """Total variation distance of distributions, 0 to 1: half the L1 distance."""

    is_differentiable = True
    higher_is_better = None
    plot_lower_bound = 0.0
    plot_upper_bound = 1.0
    measure = staticmethod(total_variation)


class KendallTau(RowMetric):
    """Kendall's τ-b of each row, −1 to 1; undefined for a constant row.

    Note:
        `torchmetrics.KendallRankCorrCoef` ranks columns over all batches, and has no mask: four
        zeros of padding turn a τ of −1 into +0.6.
    """

    is_differentiable = False
    higher_is_better = True
    plot_lower_bound = -1.0
    plot_upper_bound = 1.0
    measure = staticmethod(kendall_tau)


__all__ = ["JensenShannon", "KendallTau", "RowMetric", "TotalVariation"]
