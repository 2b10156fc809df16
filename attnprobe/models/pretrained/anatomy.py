"""What the layers of a network do to their vectors, from one pass that is watched: every linear module and normalisation,
what went in and what came out. Nothing is taken on trust: a part belongs where its numbers fit (`same`), or it is not
known."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from attnprobe.batch import Batch
from attnprobe.models.anatomy import Affine, Anatomy, Block, Inner, Mixing, Norm, Stage, affine_of, norm_of, ratio
from attnprobe.models.pretrained.doors import Pass, Seen
from attnprobe.models.pretrained.short_way import ShortWay

if TYPE_CHECKING:
    from attnprobe.models.pretrained.model import PretrainedClassifier


@dataclass
class Event:
    """A call of a linear module or of a normalisation."""

    module: nn.Module
    given: Tensor
    result: Tensor

    @property
    def is_norm(self) -> bool:
        """Whether it normalises."""
        return type(self.module).__name__.endswith("Norm")

    @property
    def affine(self) -> Affine:
        """As a matrix."""
        return affine_of(self.module, turned=type(self.module).__name__ == "Conv1D")


@dataclass
class Call:
    """A call of a layer: what happened before its attention and after it."""

    state: Tensor
    before: list[Event] = field(default_factory=list)
    seen: Seen | None = None
    after: list[Event] = field(default_factory=list)
    result: Tensor | None = None


def same(one: Tensor | None, other: Tensor | None) -> bool:
    """Whether two vectors of a pass are one, but for rounding."""
    if one is None or other is None or one.shape != other.shape:
        return False
    tolerance = 1e-4 if one.dtype == torch.float32 else 1e-9
    return bool((one - other).abs().max() <= tolerance * max(1.0, float(other.abs().max())))


@contextmanager
def watched(network: nn.Module, layers: Sequence[nn.Module], calls: list[Call], rest: list[Event]) -> Iterator[None]:
    """Within it the calls of these layers are kept, and what else of the network comes after the first of them."""

    def begin(module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        calls.append(Call(given[0] if given else named["hidden_states"]))

    def end(module: nn.Module, given: tuple[Any, ...], output: Any) -> None:
        calls[-1].result = output if isinstance(output, Tensor) else output[0]

    def look(module: nn.Module, given: tuple[Any, ...], output: Tensor) -> None:
        if not calls:
            return
        now = calls[-1]
        where = rest if now.result is not None else now.before if now.seen is None else now.after
        where.append(Event(module, given[0], output))

    hooks = [layer.register_forward_pre_hook(begin, with_kwargs=True) for layer in layers]
    hooks += [layer.register_forward_hook(end) for layer in layers]
    for module in network.modules():
        name = type(module).__name__
        if isinstance(module, nn.Linear) or name == "Conv1D" or name.endswith("Norm"):
            hooks.append(module.register_forward_hook(look))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def anatomy_of(model: "PretrainedClassifier", batch: Batch) -> Anatomy | str:
    """The network's anatomy on this batch; else why it is not known, in a few words."""
    every = model.layers(batch)
    if every is None:
        return "its attention is not over the text's own pieces alone"
    kept: list[Seen] = []
    with torch.no_grad():
        model.run(batch, Pass(keep=kept.append))
    if any(one.values is None for one in kept):
        return "its values are not seen through a dropout module"
    calls: list[Call] = []
    rest: list[Event] = []

    def keep(seen: Seen) -> None:
        calls[-1].seen = seen

    try:
        layers = list(dict.fromkeys(ShortWay(model.network, one.module).layer for one in kept))
        with torch.no_grad(), watched(model.network, layers, calls, rest):
            logits = model.run(batch, Pass(keep=keep))
        if len(calls) != len(kept) or any(one.seen is None for one in calls):
            raise LookupError("not every layer has one attention")
        unknown: list[str] = []
        blocks = [block_of(one, unknown) for one in calls]
        if any(not same(one.result, other.state) for one, other in pairwise(calls)):
            raise LookupError("something comes between its layers")
    except LookupError as error:
        return str(error)
    head: Sequence[Stage] = []
    if not unknown:
        try:
            head = head_of(model, calls[-1], rest, every.row, logits)
        except LookupError as error:
            unknown.append(str(error))
    return Anatomy(blocks, every.row, every.mask, head, "; ".join(dict.fromkeys(unknown)))


def block_of(call: Call, unknown: list[str]) -> Block:
    """One layer; what of it is not known is added to `unknown`.

    Raises:
        LookupError: what its attention gives is not added to its input.
    """
    assert call.seen is not None
    assert call.seen.values is not None
    weights, values = call.seen.weights, call.seen.values
    side_by_side = (weights @ values).transpose(1, 2).flatten(2)
    affine = [one for one in call.after if not one.is_norm]
    output = next((one for one in affine if same(one.given, side_by_side)), None)
    if output is None:
        raise LookupError("no linear module takes what its attention gives")
    total = call.state + output.result
    normed = next((one for one in call.after if one.is_norm and same(one.given, total)), None)
    if normed is None:
        raise LookupError("what its attention gives is not simply added to its input")
    later = affine[affine.index(output) + 1 :]
    if not later or call.result is None:
        raise LookupError("no feed-forward network follows its attention")
    last = next((one for one in call.after if one.is_norm and same(one.given, normed.result + later[-1].result)), None)
    if same(call.result, total + later[-1].result):
        after, result = None, total
        norms: tuple[Event | None, Event | None] = (normed, None)
    elif last is not None and same(call.result, last.result):
        after, result, norms = layer_norm(normed), normed.result, (None, last)
    else:
        raise LookupError("its layers do not end in the sum of a feed-forward network and its input")
    before, value = value_of(call, values, unknown)
    inner = inner_of(normed, later, norms, unknown)
    mixing = Mixing(
        call.state.double(),
        before,
        value,
        weights.double(),
        values.double(),
        output.affine,
        after,
        True,
        result.double(),
    )
    return Block(mixing, inner)


def layer_norm(event: Event) -> Norm:
    """What this normalisation does.

    Raises:
        LookupError: it is of another kind.
    """
    norm, given = norm_of(event.module, event.given), event.given.double()
    expected = norm.scale * (given - given.mean(-1, keepdim=True)) / norm.spread.unsqueeze(-1) + norm.shift
    if not same(event.result, expected.to(event.result.dtype)):
        raise LookupError(f"{type(event.module).__name__} is no layer normalisation")
    return norm


def value_of(call: Call, values: Tensor, unknown: list[str]) -> tuple[Norm | None, Affine | None]:
    """How the values come from the layer's state: a normalisation or none, and a linear map."""
    flat = values.transpose(1, 2).flatten(2)
    size = flat.shape[-1]
    for one in call.before:
        if one.is_norm or one.result.ndim != 3:
            continue
        for start in range(0, one.result.shape[-1] - size + 1, size):
            if not same(one.result[..., start : start + size], flat):
                continue
            weight, bias = one.affine
            value = Affine(weight[start : start + size], bias[start : start + size])
            if same(one.given, call.state):
                return None, value
            norm = next((other for other in call.before if other.is_norm and same(other.result, one.given)), None)
            if norm is not None and same(norm.given, call.state):
                try:
                    return layer_norm(norm), value
                except LookupError as error:
                    unknown.append(str(error))
                    return None, None
    unknown.append("its values are no linear map of a layer's input")
    return None, None


def inner_of(
    normed: Event, later: list[Event], norms: tuple[Event | None, Event | None], unknown: list[str]
) -> Inner | None:
    """The feed-forward network of a layer."""
    try:
        if len(later) != 2 or not same(later[0].given, normed.result):
            raise LookupError("its feed-forward networks are not two linear modules with an activation between them")
        before, after = (None if one is None else layer_norm(one) for one in norms)
        ratios = activation(later[0].result, later[1].given)
        return Inner(before, later[0].affine, ratios, later[1].affine, after)
    except LookupError as error:
        unknown.append(str(error))
        return None


def activation(given: Tensor, result: Tensor) -> Tensor:
    """act(x) / x for one of the library's activation functions.

    Raises:
        LookupError: it is none of them.
    """
    from transformers.activations import ACT2FN

    if given.shape == result.shape:
        for name in ACT2FN:
            if name in ("xielu", "prelu"):  # has weights of its own
                continue
            if same(ACT2FN[name](given), result):
                return ratio(given, result)
    raise LookupError("between two linear modules there is no activation function that is known")


def head_of(
    model: "PretrainedClassifier", last: Call, rest: list[Event], row: Tensor | None, logits: Tensor
) -> Sequence[Stage]:
    """From the deciding state to the logits.

    Raises:
        LookupError: it is no chain of linear modules, normalisations and activation functions on one state.
    """
    if row is None:
        raise LookupError("its prediction averages the states")
    assert last.result is not None
    text = torch.arange(len(row), device=row.device)
    now = last.result[text, row]
    stages: list[Stage] = []
    for event in rest:
        given, result = (one if one.ndim == 2 else one[text, row] for one in (event.given, event.result))
        if not same(given, now):
            stages.append(activation(now, given))
        stages.append(layer_norm(Event(event.module, given, result)) if event.is_norm else event.affine)
        now = result
    output = stages.pop() if stages else None
    if not isinstance(output, Affine) or not same(now[:, model.order], logits):
        raise LookupError("its logits are not what its last linear module gives")
    return [*stages, Affine(output.weight[model.order], output.bias[model.order])]
