"""Attention and position logits of a model that was trained elsewhere.

They are all that the tests of attention alone need.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
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
from attnprobe.probes.labels import Labels

Arrays = Sequence[Any] | np.ndarray | Tensor


def audit_tensors(
    attention: Arrays,
    position_logits: Arrays | None = None,
    *,
    hidden: Arrays | None = None,
    weight: Arrays | None = None,
    bias: Arrays | None = None,
    labels: Sequence[int] | Sequence[Sequence[int]],
    tokens: Sequence[Sequence[str]] | None = None,
    classes: Sequence[str] | None = None,
    label_names: Sequence[str] | None = None,
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

    Of a model with an attention per label (CAML, LAAT) give `label_names`: then the attention of
    every text is `[labels, seq]`, `position_logits` likewise (w_l · h_t + b_l, one logit of a yes
    per label and word), or `hidden` with the weight `[labels, hidden]` and bias `[labels]` of the
    decoder; `labels` has a 0 or 1 per label.

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
        labels: class numbers from 0; with `label_names` a list of 0 and 1 for every text.
        tokens: the words of every text; without them positions are shown as numbers.
        classes: names of the classes.
        label_names: names of the labels, where each has an attention of its own.
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
    if label_names is not None:
        per_label = label_tensors(attention, position_logits, hidden, weight, bias, label_names)
        attention = per_label.attention
        position_logits = per_label.position_logits
        hidden = None
        weight = None
        bias = None
    weights = arrays("attention", attention, 1)
    for number, row in enumerate(weights):
        if (row < 0).any() or abs(float(row.sum()) - 1) > 1e-4:
            place = f"text {number}"
            if label_names is not None:
                text, label = divmod(number, len(label_names))
                place = f"text {text} for label {label_names[label]}"
            raise UserError(
                f"attention of {place} sums to {float(row.sum()):.6g}, its least weight is "
                f"{float(row.min()):.3g}: expected weights of 0 or more that sum to 1, "
                f"without padding"
            )
    decoder_bias = None if bias is None else tensor("bias", bias, 1)
    states = None if hidden is None else arrays("hidden", hidden, 2, weights)
    logits = _position_logits(weights, position_logits, states, weight, decoder_bias)
    if logits[0].shape[1] == 1:  # a single logit s is [0, s]
        logits = [torch.cat([torch.zeros_like(row), row], -1) for row in logits]
        if decoder_bias is not None:
            decoder_bias = torch.cat([torch.zeros_like(decoder_bias), decoder_bias])

    words = _words_of(weights[:: len(label_names or [""])], tokens)
    if probes is None:
        probes = default_probes(epsilon, gradient=bias is not None)
        if label_names is not None:
            probes.append(Labels())
    return audit_model(
        TensorModel(weights, logits, states, decoder_bias),
        words,
        labels,
        classes=classes,
        label_names=label_names,
        data=data,
        name=model,
        output=output,
        seed=seed,
        epsilon=epsilon,
        probes=probes,
        page=page,
    )


@dataclass(frozen=True)
class LabelTensors:
    """Attention and position logits of every text and label, the labels of a text in their order.

    Attributes:
        attention: `[seq]` of each.
        position_logits: `[seq, 1]` of each, the logit of a yes.
    """

    attention: list[Tensor]
    position_logits: list[Tensor]


def label_tensors(
    attention: Arrays,
    position_logits: Arrays | None,
    hidden: Arrays | None,
    weight: Arrays | None,
    bias: Arrays | None,
    names: Sequence[str],
) -> LabelTensors:
    """What `audit_tensors` is given of a model with an attention per label, by text and label.

    Raises:
        UserError: the tensors do not fit one another, or the labels.
    """
    weights = arrays("attention", _transposed(attention), 2)
    labels = weights[0].shape[1]
    if labels != len(names):
        raise UserError(
            f"attention has {labels} labels and label_names has {len(names)}: expected of every "
            f"text an array [labels, seq]"
        )
    label_logits = None if position_logits is None else _transposed(position_logits)
    states = None if hidden is None else arrays("hidden", hidden, 2, weights)
    decoder_bias = None if bias is None else tensor("bias", bias, 1)
    logits = _position_logits(weights, label_logits, states, weight, decoder_bias)
    if logits[0].shape[1] != labels:
        raise UserError(
            f"position logits are of {logits[0].shape[1]} labels, and attention is of {labels}: "
            f"expected the same"
        )
    rows = LabelTensors([], [])
    for text_weights, text_logits in zip(weights, logits, strict=True):
        for label in range(labels):
            rows.attention.append(text_weights[:, label])
            rows.position_logits.append(text_logits[:, label : label + 1])
    return rows


def _transposed(values: Arrays) -> list[np.ndarray]:
    """The array of each text with its axes in reverse order."""
    transposed = []
    for array in values:
        # numpy has no bfloat16
        numbers = array.detach().cpu().double() if isinstance(array, Tensor) else array
        transposed.append(np.asarray(numbers).T)
    return transposed


def _position_logits(
    weights: Sequence[Tensor],
    position_logits: Arrays | None,
    states: Sequence[Tensor] | None,
    weight: Arrays | None,
    bias: Tensor | None,
) -> list[Tensor]:
    """Position logits of every text, as they are given or decoded from states.

    Args:
        weights: the attention of every text, whose lengths the others must have.
        position_logits: of every text an array `[seq, classes]`.
        states: instead of these, `[seq, hidden]` of every text.
        weight: with states, the decoder's `[classes, hidden]`.
        bias: the decoder's, `[classes]`.

    Raises:
        UserError: neither or both are given, or one does not fit.
    """
    has_logits = position_logits is not None
    has_states = states is not None
    if has_logits == has_states or has_states != (weight is not None):
        raise UserError(
            "audit_tensors: expected position_logits, or hidden with weight (and bias), "
            "and not both"
        )
    if states is not None:
        return _decoded(states, tensor("weight", weight, 2), bias)
    assert position_logits is not None
    logits = arrays("position_logits", position_logits, 2, weights)
    _check_bias(bias, logits[0].shape[1])
    return logits


def _check_bias(bias: Tensor | None, count: int) -> None:
    if bias is not None and len(bias) != count:
        raise UserError(
            f"bias has {len(bias)} numbers, and there are {count} classes: expected one for each"
        )


def _decoded(states: Sequence[Tensor], weight: Tensor, bias: Tensor | None) -> list[Tensor]:
    """Position logits z_t = W h_t + b of every text."""
    features = states[0].shape[1]
    if weight.shape[1] != features:
        raise UserError(
            f"weight has the shape {list(weight.shape)} and the states have {features} features: "
            f"expected [classes, {features}]"
        )
    _check_bias(bias, weight.shape[0])
    logits = [row @ weight.T for row in states]
    return logits if bias is None else [row + bias for row in logits]


def _words_of(
    weights: Sequence[Tensor], tokens: Sequence[Sequence[str]] | None
) -> Sequence[Sequence[str]]:
    """The words of every text; the numbers of its positions where they are not known."""
    if tokens is None:
        return [[str(place + 1) for place in range(len(row))] for row in weights]
    for number, row in enumerate(weights):
        if number >= len(tokens) or len(tokens[number]) != len(row):
            raise UserError(
                f"tokens of text {number}: expected {len(row)} words, one for each weight"
            )
    return tokens


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
        self.attention = attention
        self.position_logits = position_logits
        self.states = hidden
        self.bias = bias

    def placed(self, batch: Batch, values: Sequence[Tensor]) -> Tensor:
        """The values of this batch's texts at its content positions, 0 elsewhere."""
        flat = torch.cat([values[number] for number in batch.example_id.tolist()])
        padded = flat.new_zeros(*batch.content.shape, *flat.shape[1:])
        padded[batch.content] = flat
        return padded

    def forward(self, batch: Batch) -> Outputs:
        """What is known of these texts, as a forward pass would yield it."""
        attention = self.placed(batch, self.attention)
        hidden = attention.new_zeros(*attention.shape, 0)
        if self.states is not None:
            hidden = self.placed(batch, self.states)
        position_logits = self.placed(batch, self.position_logits)
        logits = torch.einsum("bs,bsc->bc", attention, position_logits)
        return Outputs(logits, attention, attention.log(), hidden, batch.content)

    def readout(self, batch: Batch, outputs: Outputs) -> Readout:
        """The map from attention to prediction that the position logits are."""
        unattended = None if self.bias is None else self.bias.expand(len(batch), -1)
        return Readout(
            outputs.attention,
            outputs.content,
            batch.example_id,
            position_logits=self.placed(batch, self.position_logits),
            unattended=unattended,
        )

    def inputs(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse what runs the model itself."""
        raise UserError(
            "audit_tensors: one of probes= runs the model itself, and only tensors are known: "
            "leave it out, or describe the model and use attnprobe.audit_model (docs/own_model.md)"
        )

    outputs_from = without = inputs


def tensor(name: str, values: Any, axes: int) -> Tensor:
    """Numbers in float64, detached, on the CPU.

    Args:
        name: what they are called in the message.
        values: numbers.
        axes: how many they have.

    Raises:
        UserError: if they have another number of axes, or one is not finite.
    """
    numbers = torch.as_tensor(values).detach().cpu().double()
    problem = ""
    if numbers.ndim != axes or not numbers.numel():
        problem = f"the shape {list(numbers.shape)}"
    elif not bool(numbers.isfinite().all()):
        problem = "a number that is not finite"
    if problem:
        raise UserError(
            f"{name} has {problem}: "
            f"expected {axes} axes of finite numbers, one text without padding"
        )
    return numbers


def arrays(
    name: str, values: Arrays, axes: int, like: Sequence[Tensor] | None = None
) -> list[Tensor]:
    """One tensor per text.

    Args:
        name: what they are called in the message.
        values: of every text an array.
        axes: how many each has.
        like: tensors of the same texts, which must have the same lengths.

    Raises:
        UserError: if one does not fit.
    """
    tensors = [
        tensor(f"{name} of text {number}", array, axes) for number, array in enumerate(values)
    ]
    if not tensors or len({row.shape[1:] for row in tensors}) > 1:
        raise UserError(
            f"{name}: expected one array per text, at least one, "
            f"all with the same number of features"
        )
    if like is not None and [len(row) for row in tensors] != [len(row) for row in like]:
        raise UserError(
            f"{name}: expected as many texts as in attention, each with as many positions"
        )
    return tensors
