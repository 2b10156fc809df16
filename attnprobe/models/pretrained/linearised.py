"""What the layers of a network do to their vectors, from one pass that is watched: every linear
module and normalisation, what went in and what came out. A part belongs where its numbers fit
(`_same`), or a LookupError says why it is not known."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

from attnprobe.models.base import Layers
from attnprobe.models.linearised_layers import (
    Affine,
    Block,
    Inner,
    Linearised,
    Mixing,
    Norm,
    affine_of,
    norm_of,
    ratio,
)
from attnprobe.models.pretrained.attention_hooks import LastLayer, Pass, Seen


class _Event(NamedTuple):
    """A call of a linear module or of a normalisation."""

    module: nn.Module
    is_norm: bool
    given: Tensor
    result: Tensor

    def norm(self) -> Norm:
        norm = norm_of(self.module, self.given)
        given = self.given.double()
        expected = (
            norm.scale * (given - given.mean(-1, keepdim=True)) / norm.spread.unsqueeze(-1)
            + norm.shift
        )
        if not _same(self.result, expected.to(self.result.dtype)):
            raise LookupError(f"{type(self.module).__name__} is no layer normalisation")
        return norm


@dataclass
class _Call:
    """A call of a layer: what happened before its attention and after it."""

    state: Tensor
    before: list[_Event] = field(default_factory=list)
    after: list[_Event] = field(default_factory=list)
    result: Tensor | None = None


def _same(one: Tensor | None, other: Tensor | None) -> bool:
    """Whether two vectors of a pass are one, but for rounding."""
    if one is None or other is None or one.shape != other.shape:
        return False
    tolerance = 1e-4 if one.dtype == torch.float32 else 1e-9
    return bool((one - other).abs().max() <= tolerance * max(1.0, float(other.abs().max())))


def linearise(
    network: nn.Module,
    run: Callable[[Pass], Tensor],
    kept: Sequence[Seen],
    every: Layers,
    order: Sequence[int],
) -> Linearised | str:
    """The network's layers on a batch; else why it is not known, in a few words. `run` is a pass
    over it: the logits of the data's classes, the network's outputs in this `order`; `kept` are the
    attentions of such a pass, also as `every`."""
    if any(one.values is None for one in kept):
        return "its values are not seen through a dropout module"
    calls: list[_Call] = []
    rest: list[_Event] = []
    seen: list[Seen] = []
    layers: list[nn.Module] = []

    def look(module: nn.Module, given: tuple[Any, ...], output: Any) -> None:
        """Keep what happens in a layer before its attention and after it, and what comes after the
        layers."""
        name = type(module).__name__
        if module in layers:
            calls[-1].result = output if isinstance(output, Tensor) else output[0]
        elif calls and (isinstance(module, nn.Linear) or name == "Conv1D" or name.endswith("Norm")):
            now = calls[-1]
            before = len(seen) < len(calls)
            where = rest if now.result is not None else now.before if before else now.after
            where.append(_Event(module, name.endswith("Norm"), given[0], output))

    try:
        layers += list(dict.fromkeys(LastLayer(network, one.module).layer for one in kept))
        with torch.no_grad(), ExitStack() as hooks:
            for layer in layers:
                begin = layer.register_forward_pre_hook(
                    lambda module, given, named: calls.append(
                        _Call(given[0] if given else named["hidden_states"])
                    ),
                    with_kwargs=True,
                )
                hooks.enter_context(begin)
            hooks.enter_context(register_module_forward_hook(look))
            logits = run(Pass(keep=seen.append))
        if len(calls) != len(kept):
            raise LookupError("not every layer has one attention")
        blocks, unknown = zip(*map(_block, calls, seen), strict=True)
        if any(not _same(one.result, other.state) for one, other in pairwise(calls)):
            raise LookupError("something comes between its layers")
    except LookupError as error:
        return str(error)
    head: Sequence[Any] = ()
    why = next(filter(None, unknown), "")
    if not why:
        try:
            head = _head(calls[-1], rest, every.row, logits, order)
        except LookupError as error:
            why = str(error)
    return Linearised(blocks, every.row, every.mask, head, why)


def _block(call: _Call, seen: Seen) -> tuple[Block, str]:
    """One layer, and why its values or its feed-forward network are not known; a LookupError where
    nothing is."""
    assert seen.values is not None
    weights = seen.weights
    values = seen.values
    side_by_side = (weights @ values).transpose(1, 2).flatten(2)
    affine = [one for one in call.after if not one.is_norm]
    output = next((one for one in affine if _same(one.given, side_by_side)), None)
    if output is None:
        raise LookupError("no linear module takes what its attention gives")
    total = call.state + output.result
    normed = next((one for one in call.after if one.is_norm and _same(one.given, total)), None)
    if normed is None:
        raise LookupError("what its attention gives is not simply added to its input")
    later = affine[affine.index(output) + 1 :]
    if not later or call.result is None:
        raise LookupError("no feed-forward network follows its attention")
    last = next(
        (
            one
            for one in call.after
            if one.is_norm and _same(one.given, normed.result + later[-1].result)
        ),
        None,
    )
    norms: tuple[_Event | None, _Event | None]
    if _same(call.result, total + later[-1].result):
        after = None
        result = total
        norms = (normed, None)
    elif last is not None and _same(call.result, last.result):
        after = normed.norm()
        result = normed.result
        norms = (None, last)
    else:
        raise LookupError(
            "its layers do not end in the sum of a feed-forward network and its input"
        )
    mixing = Mixing(
        call.state.double(),
        None,
        None,
        weights.double(),
        values.double(),
        affine_of(output.module),
        after,
        True,
        result.double(),
    )
    try:
        before, value = _value(call, values)
        if len(later) != 2 or not _same(later[0].given, normed.result):
            raise LookupError(
                "its feed-forward networks are not two linear modules with an activation between them"
            )
        first, second = (None if one is None else one.norm() for one in norms)
        ratios = _activation(later[0].result, later[1].given)
        inner = Inner(first, affine_of(later[0].module), ratios, affine_of(later[1].module), second)
    except LookupError as error:
        return Block(mixing, None), str(error)
    return Block(mixing._replace(before=before, value=value), inner), ""


def _value(call: _Call, values: Tensor) -> tuple[Norm | None, Affine]:
    """How the values come from the layer's state: a normalisation or none, and a linear map."""
    flat = values.transpose(1, 2).flatten(2)
    size = flat.shape[-1]
    for one in call.before:
        if one.is_norm or one.result.ndim != 3:
            continue
        for start in range(0, one.result.shape[-1] - size + 1, size):
            if not _same(one.result[..., start : start + size], flat):
                continue
            value = Affine(*(part[start : start + size] for part in affine_of(one.module)))
            if _same(one.given, call.state):
                return None, value
            for norm in call.before:
                if norm.is_norm and _same(norm.result, one.given) and _same(norm.given, call.state):
                    return norm.norm(), value
    raise LookupError("its values are no linear map of a layer's input")


def _activation(given: Tensor, result: Tensor) -> Tensor:
    """act(x) / x for one of the library's activation functions."""
    from transformers.activations import ACT2FN

    without_weights = (ACT2FN[name] for name in ACT2FN if name not in ("xielu", "prelu"))
    if given.shape == result.shape and any(_same(one(given), result) for one in without_weights):
        return ratio(given, result)
    raise LookupError("between two linear modules there is no activation function that is known")


def _head(
    last: _Call, rest: list[_Event], row: Tensor | None, logits: Tensor, order: Sequence[int]
) -> Sequence[Any]:
    """From the deciding state to the logits: a chain of linear modules, normalisations and
    activations on one state."""
    if row is None:
        raise LookupError("its prediction averages the states")
    assert last.result is not None
    text = torch.arange(len(row), device=row.device)
    now = last.result[text, row]
    stages: list[Affine | Norm | Tensor] = []
    for event in rest:
        given, result = (
            one if one.ndim == 2 else one[text, row] for one in (event.given, event.result)
        )
        if not _same(given, now):
            stages.append(_activation(now, given))
        event = event._replace(given=given, result=result)
        stages.append(event.norm() if event.is_norm else affine_of(event.module))
        now = result
    output = stages.pop() if stages else None
    if not isinstance(output, Affine) or not _same(now[:, order], logits):
        raise LookupError("its logits are not what its last linear module gives")
    return [*stages, Affine(output.weight[order], output.bias[order])]
