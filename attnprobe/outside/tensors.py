"""Attention and position logits of a model that was trained elsewhere: all that the tests of
attention alone need."""

import os
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.core.batch import Batch, Outputs, Task
from attnprobe.core.errors import UserError
from attnprobe.core.readout import Readout
from attnprobe.models.trained import TrainedModel
from attnprobe.outside.audit import Audit, audit_model, default_probes
from attnprobe.probes.base import Probe

Arrays = Sequence[Any] | np.ndarray | Tensor


def audit_tensors(
    attention: Arrays,
    position_logits: Arrays | None = None,
    *,
    hidden: Arrays | None = None,
    weight: Arrays | None = None,
    bias: Arrays | None = None,
    labels: Sequence[int],
    tokens: Sequence[Sequence[str]] | None = None,
    classes: Sequence[str] | None = None,
    data: str = "texts",
    model: str = "own_model",
    output: str | os.PathLike = "audit",
    seed: int = 0,
    epsilon: float = 0.01,
    probes: Sequence[Probe] | None = None,
    page: bool = True,
) -> Audit:
    """Put an attention that was computed elsewhere to the tests that need nothing but tensors.

    For a model whose logits are linear in its attention: logits = Σ_t a_t z_t, with z_t = W h_t +
    b. Give these position logits z, or the states h with the decoder's weight and bias.

    Args:
        attention: of every text an array `[seq]`: weights of 0 or more over its words (no padding)
            that sum to 1.
        position_logits: of every text an array `[seq, classes]`, the decoder's bias included in
            each row.
        hidden: instead of these, of every text an array `[seq, hidden]`.
        weight: with `hidden`, the decoder's weight `[classes, hidden]`; one row is a single logit
            s, read as [0, s].
        bias: the decoder's, `[classes]`; importances by gradient need it beside `position_logits`
            too, or are left out.
        labels: class numbers from 0.
        tokens: the words of every text; without them positions are shown as numbers.
        classes: names of the classes.
        data: what these texts are called, in tables and page.
        model: what this model is called.
        output: the folder of `run/` and `report.html`. What another audit left there is replaced;
            anything else is refused.
        seed: of random orders and random attentions.
        epsilon: TVD from 0 to 1 within which another attention's prediction counts as the same.
        probes: other tests than permutation, adversarial (exact), single_weight, erasure, and skill
            of states.
        page: False writes none.

    Raises:
        UserError: a shape, a weight or a sum of weights (1 within 0.0001) is another, or the folder
            is somebody else's.
    """
    weights = arrays("attention", attention, 1)
    for number, row in enumerate(weights):
        if (row < 0).any() or abs(float(row.sum()) - 1) > 1e-4:
            raise UserError(
                f"attention of text {number} sums to {float(row.sum()):.6g}, its least weight is {float(row.min()):.3g}: "
                f"expected weights of 0 or more that sum to 1, without padding"
            )
    states = None if hidden is None else arrays("hidden", hidden, 2, weights)
    if (position_logits is None) == (states is None) or (states is None) != (weight is None):
        raise UserError(
            "audit_tensors: expected position_logits, or hidden with weight (and bias), and not both"
        )
    shift = None if bias is None else tensor("bias", bias, 1)
    if states is None:
        assert position_logits is not None
        logits = arrays("position_logits", position_logits, 2, weights)
    else:
        decoder = tensor("weight", weight, 2)
        if decoder.shape[1] != states[0].shape[1]:
            raise UserError(
                f"weight has the shape {list(decoder.shape)} and the states have {states[0].shape[1]} features: expected "
                f"[classes, {states[0].shape[1]}]"
            )
        logits = [one @ decoder.T for one in states]
    count = logits[0].shape[1]
    if shift is not None and len(shift) != count:
        raise UserError(
            f"bias has {len(shift)} numbers, and there are {count} classes: expected one for each"
        )
    if states is not None and shift is not None:
        logits = [one + shift for one in logits]
    if count == 1:  # a single logit s is [0, s]
        logits = [torch.cat([torch.zeros_like(one), one], -1) for one in logits]
        shift = None if shift is None else torch.cat([torch.zeros_like(shift), shift])
    if tokens is None:
        tokens = [[str(place + 1) for place in range(len(row))] for row in weights]
    if odd := [
        at for at, row in enumerate(weights) if at >= len(tokens) or len(tokens[at]) != len(row)
    ]:
        raise UserError(
            f"tokens of text {odd[0]}: expected {len(weights[odd[0]])} words, one for each weight"
        )
    if probes is None:
        probes = default_probes(epsilon, gradient=bias is not None)
    given: dict[str, Any] = {
        "classes": classes,
        "data": data,
        "output": output,
        "seed": seed,
        "page": page,
    }
    examined = TensorModel(weights, logits, states, shift)
    return audit_model(
        examined, tokens, labels, name=model, probes=probes, epsilon=epsilon, **given
    )


class TensorModel(TrainedModel):
    """Stands for a model of which only attention and position logits are known."""

    def __init__(
        self,
        attention: Sequence[Float[Tensor, "seq"]],
        position_logits: Sequence[Float[Tensor, "seq classes"]],
        hidden: Sequence[Float[Tensor, "seq hidden"]] | None,
        bias: Float[Tensor, "classes"] | None,
    ) -> None:
        super().__init__(position_logits[0].shape[1], Task.SINGLE_LABEL, None, None)
        self.known = attention
        self.logits = position_logits
        self.states = hidden
        self.bias = bias

    def placed(self, batch: Batch, values: Sequence[Tensor]) -> Tensor:
        """The values of this batch's texts at its content positions, 0 elsewhere."""
        flat = torch.cat([values[number] for number in batch.example_id.tolist()])
        into = flat.new_zeros(*batch.content.shape, *flat.shape[1:])
        into[batch.content] = flat
        return into

    def forward(self, batch: Batch) -> Outputs:
        attention = self.placed(batch, self.known)
        logits = self.placed(batch, self.logits)
        hidden = (
            attention.new_zeros(*attention.shape, 0)
            if self.states is None
            else self.placed(batch, self.states)
        )
        predicted = torch.einsum("bs,bsc->bc", attention, logits)
        return Outputs(predicted, attention, attention.log(), hidden, batch.content)

    def readout(self, batch: Batch, outputs: Outputs) -> Readout:
        unattended = None if self.bias is None else self.bias.expand(len(batch), -1)
        logits = self.placed(batch, self.logits)
        return Readout(
            outputs.attention,
            outputs.content,
            batch.example_id,
            position_logits=logits,
            unattended=unattended,
        )

    def inputs(self, *_: Any, **__: Any) -> NoReturn:
        raise UserError(
            "audit_tensors: one of probes= runs the model itself, and only tensors are known: leave it out, or describe the "
            "model and use attnprobe.audit_model (docs/own_model.md)"
        )

    outputs_from = without = inputs


def tensor(name: str, values: Any, axes: int) -> Tensor:
    """Numbers in float64, detached, on the CPU; a `UserError` where they have other axes, or one is
    not finite."""
    made = torch.as_tensor(values).detach().cpu().double()
    has_shape = made.ndim == axes and made.numel() > 0
    if not has_shape or not bool(made.isfinite().all()):
        what = "a number that is not finite" if has_shape else f"the shape {list(made.shape)}"
        raise UserError(
            f"{name} has {what}: expected {axes} axes of finite numbers, one text without padding"
        )
    return made


def arrays(
    name: str, values: Arrays, axes: int, like: Sequence[Tensor] | None = None
) -> list[Tensor]:
    """One tensor per text, as long as the texts of `like`."""
    made = [tensor(f"{name} of text {number}", one, axes) for number, one in enumerate(values)]
    if not made or len({one.shape[1:] for one in made}) > 1:
        raise UserError(
            f"{name}: expected one array per text, at least one, all with the same number of features"
        )
    if like is not None and [len(one) for one in made] != [len(one) for one in like]:
        raise UserError(
            f"{name}: expected as many texts as in attention, each with as many positions"
        )
    return made
