"""Is the attention that we read and replace the one that the network computes with? Looked at before anything else."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnprobe.errors import UserError
from attnprobe.models.pretrained.doors import NAME, Pass, open_dropouts, open_interface
from attnprobe.models.pretrained.site import Queries

LIMITS = {torch.float32: 1e-5, torch.float64: 1e-9}
"""Largest difference of two logits, relative to the largest of the network's (at least 1)."""

Run = Callable[[Pass], Tensor]
"""One pass of the network over the batch: its logits."""


@dataclass
class Found:
    """How a network's attention is got at, and what was seen of it.

    Attributes:
        door: `interface` or `dropout`.
        calls: attentions in one pass.
        heads: of each of them.
        queries: whose rows reach the prediction from the last attention.
        differences: largest |Δlogit| of what must be equal, by name.
        remarks: what else a reader should know.
    """

    door: str
    calls: int
    queries: Queries
    heads: list[int] = field(default_factory=list)
    differences: dict[str, float] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    @property
    def facts(self) -> dict[str, Any]:
        """As the manifest writes it."""
        return {"door": self.door, "attentions": self.calls, "queries": str(self.queries),
                "differences": self.differences, "remarks": self.remarks}  # fmt: skip


def examine_attention(network: Any, run: Run, mask: Bool[Tensor, "batch pieces"], family: str) -> Found:
    """Open a door to the attention, and look whether it is one.

    Args:
        network: in eval mode.
        run: a pass over a batch with padding.
        mask: its pieces that are not padding.
        family: for the messages.

    Raises:
        UserError: there is no door, or what it leads to is not what the network computes with.
    """
    with torch.no_grad():
        own = run_as_made(network, run)
        door, seen = opened(network, run, family)
        limit = LIMITS[own.dtype] * max(1.0, float(own.abs().max()))
        last = Pass(seen - 1)
        recorded = run(last)
        again = Pass(seen - 1, torch.clone)
        replaced = run(again)
    refused = f"the attention of {family} cannot be examined: "
    if {last.count, again.count} != {seen}:
        raise UserError(f"{refused}{seen} attentions in one pass, and {last.count} in the next")
    assert last.recorded is not None
    if last.recorded.shape[-1] != mask.shape[1]:
        raise UserError(
            f"{refused}its last one is over {last.recorded.shape[-1]} places, and the text has {mask.shape[1]}"
        )
    queries = mask if last.recorded.shape[-2] == mask.shape[1] else mask[:, :1]
    sums = last.recorded.sum(-1).transpose(1, 2)[queries]
    if (sums - 1).abs().max() > 1e-3:
        raise UserError(f"{refused}its rows sum to {float(sums.min()):.3g} to {float(sums.max()):.3g}, and not to 1")
    given = (last.recorded * queries[:, None, :, None]).amax((1, 2))
    if not mask.all() and float(given[~mask].max()) > 1e-6:
        raise UserError(f"{refused}it gives weight to padding")
    found = Found(door, seen, Queries.ALL, [shape[1] for shape in last.seen])
    for name, logits in {"recorded": recorded, "replaced": replaced}.items():
        found.differences[name] = float((logits - own).abs().max())
        if not found.differences[name] <= limit:
            raise UserError(
                f"{refused}with its weights {name} the logits differ from its own by {found.differences[name]:.2g}"
            )
    found.queries = whose_rows(run, seen - 1, last.recorded, mask, refused)
    return found


def run_as_made(network: Any, run: Run) -> Float[Tensor, "batch outputs"]:
    """The logits of the library's own eager code."""
    before = network.config._attn_implementation
    if before == NAME:
        network.set_attn_implementation("eager")
    try:
        return run(Pass())
    finally:
        if before == NAME:
            network.set_attn_implementation(NAME)


def opened(network: Any, run: Run, family: str) -> tuple[str, int]:
    """The door that leads to attentions, and how many there are in a pass."""
    if open_interface(network):
        one = Pass()
        run(one)
        if one.count:
            return "interface", one.count
    open_dropouts(network, lambda: run(Pass()))
    one = Pass()
    run(one)
    if not one.count:
        raise UserError(
            f"the attention of {family} cannot be examined: it neither uses the attention interface of transformers nor ends "
            f"in a dropout module whose rows sum to 1"
        )
    return "dropout", one.count


def whose_rows(run: Run, call: int, weights: Tensor, mask: Bool[Tensor, "batch pieces"], refused: str) -> Queries:
    """Which queries' rows of the last attention reach the prediction: those with a gradient."""
    with torch.enable_grad():
        free = weights.detach().clone().requires_grad_()
        logits = run(Pass(call, lambda _: free))
        sign = torch.linspace(1, 2, logits.shape[-1], dtype=logits.dtype, device=logits.device)
        (gradient,) = torch.autograd.grad((logits * sign).sum(), free, allow_unused=True)
    if gradient is None or not gradient.abs().max() > 0:
        raise UserError(f"{refused}replacing its last attention changes nothing")
    reaching = gradient.abs().amax((1, 3)) > 0
    place = torch.arange(reaching.shape[1], device=reaching.device)
    first = (place == 0).expand_as(reaching)
    last = place == mask.sum(1, keepdim=True) - 1
    for queries, expected in {Queries.FIRST: first, Queries.LAST: last}.items():
        if torch.equal(reaching, expected):
            return queries
    return Queries.ALL


def is_finite_in_double(network: Any, run: Callable[[], Tensor]) -> bool:
    """Whether the network computes in float64 at all: a family whose softmax is in float32 may make −∞ of the mask's lowest
    float64, and no number of a row that is all padding. Its weights are float32 before and after."""
    before = next(network.parameters()).dtype
    try:
        with torch.no_grad():
            return bool(run_in_double(network, run).isfinite().all())
    except RuntimeError:  # tensors of two precisions meet
        return False
    finally:
        network.to(before)


def run_in_double(network: Any, run: Callable[[], Tensor]) -> Tensor:
    """Logits in float64."""
    network.double()
    return run()
