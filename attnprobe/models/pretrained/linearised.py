"""What the layers of a network do to their vectors, found by watching one pass.

Every call of a linear module or of a normalisation is kept: what went in, and what came out. Where
a call belongs is decided by its numbers: the module that is given the attended vectors is the
attention's output map, and so on. Where the numbers fit nowhere, a LookupError says what is not
known.
"""

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
    Stage,
    affine_of,
    norm_of,
    ratio,
)
from attnprobe.models.pretrained.attention_hooks import (
    AttentionRecord,
    LastLayer,
    Pass,
    layer_input,
)


class _Call(NamedTuple):
    """A call of a linear module or of a normalisation."""

    module: nn.Module
    is_norm: bool
    input: Tensor
    output: Tensor

    def norm(self) -> Norm:
        """Read the normalisation; a LookupError where it computes something else."""
        norm = norm_of(self.module, self.input)
        vectors = self.input.double()
        centred = vectors - vectors.mean(-1, keepdim=True)
        expected = norm.scale * centred / norm.spread.unsqueeze(-1) + norm.shift
        if not _equal(self.output, expected.to(self.output.dtype)):
            raise LookupError(f"{type(self.module).__name__} is no layer normalisation")
        return norm


@dataclass
class _LayerCall:
    """A call of a layer: its state, the calls before its attention and after it, its result."""

    state: Tensor
    before: list[_Call] = field(default_factory=list)
    after: list[_Call] = field(default_factory=list)
    result: Tensor | None = None


@dataclass
class _Watch:
    """One pass of a network, watched.

    Attributes:
        modules: the network's layers.
        attentions: what each computed, in order.
        layers: the layers' calls, in order.
        head: calls after the last layer.
    """

    modules: Sequence[nn.Module]
    attentions: list[AttentionRecord] = field(default_factory=list)
    layers: list[_LayerCall] = field(default_factory=list)
    head: list[_Call] = field(default_factory=list)

    def watch(self, run: Callable[[Pass], Tensor]) -> Tensor:
        """Run the pass, and return its logits."""
        with torch.no_grad(), ExitStack() as hooks:
            for module in self.modules:
                handle = module.register_forward_pre_hook(self._layer_begins, with_kwargs=True)
                hooks.enter_context(handle)
            hooks.enter_context(register_module_forward_hook(self._module_ends))
            return run(Pass(observer=self.attentions.append))

    def _layer_begins(
        self,
        module: nn.Module,
        inputs: tuple[Any, ...],
        named: dict[str, Any],
    ) -> None:
        self.layers.append(_LayerCall(layer_input(inputs, named)))

    def _module_ends(self, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if module in self.modules:
            self.layers[-1].result = output if isinstance(output, Tensor) else output[0]
            return

        name = type(module).__name__
        is_norm = name.endswith("Norm")
        is_linear = isinstance(module, nn.Linear) or name == "Conv1D"
        if not self.layers or not (is_norm or is_linear):
            return
        layer = self.layers[-1]
        call = _Call(module, is_norm, inputs[0], output)
        if layer.result is not None:
            self.head.append(call)
        elif len(self.attentions) < len(self.layers):
            layer.before.append(call)
        else:
            layer.after.append(call)


def _equal(vectors: Tensor | None, expected: Tensor | None) -> bool:
    """Whether two tensors of a pass are equal but for rounding."""
    if vectors is None or expected is None or vectors.shape != expected.shape:
        return False
    tolerance = 1e-4 if vectors.dtype == torch.float32 else 1e-9
    difference = (vectors - expected).abs().max()
    return bool(difference <= tolerance * max(1.0, float(expected.abs().max())))


def linearise(
    network: nn.Module,
    run: Callable[[Pass], Tensor],
    attentions: Sequence[AttentionRecord],
    layers: Layers,
    order: Sequence[int],
) -> Linearised | str:
    """Linearise a network's layers on a batch.

    Args:
        network: as `transformers` made it.
        run: a pass over the batch; returns the logits of the data's classes.
        attentions: all attentions of such a pass.
        layers: the same attentions.
        order: the network's output for each of the data's classes.

    Returns:
        The layers; else, in a few words, why they are not known.
    """
    if any(record.values is None for record in attentions):
        return "its values are not seen through a dropout module"
    try:
        # each layer once, in order
        modules = dict.fromkeys(LastLayer(network, record.module).layer for record in attentions)
        watch = _Watch(list(modules))
        logits = watch.watch(run)
        if len(watch.layers) != len(attentions):
            raise LookupError("not every layer has one attention")

        blocks: list[Block] = []
        reasons: list[str] = []
        for layer, record in zip(watch.layers, watch.attentions, strict=True):
            block, reason = _block(layer, record)
            blocks.append(block)
            reasons.append(reason)
        if any(not _equal(lower.result, upper.state) for lower, upper in pairwise(watch.layers)):
            raise LookupError("something comes between its layers")
    except LookupError as error:
        return str(error)

    head: Sequence[Stage] = ()
    unknown = next(filter(None, reasons), "")
    if not unknown:
        try:
            head = _head(watch, layers.row, logits, order)
        except LookupError as error:
            unknown = str(error)
    return Linearised(blocks, layers.row, layers.mask, head, unknown)


class _Parts(NamedTuple):
    """The calls that make up a layer.

    Attributes:
        output: the map of the attended vectors.
        total: the layer's input plus what its attention gives.
        normalised: the normalisation of `total`.
        inner: the linear modules of the feed-forward network.
        last: the normalisation at the layer's end; None: the layer normalises before, not after.
    """

    output: _Call
    total: Tensor
    normalised: _Call
    inner: Sequence[_Call]
    last: _Call | None


def _parts(layer: _LayerCall, record: AttentionRecord) -> _Parts:
    """Find the calls that make up a layer; a LookupError where one is missing."""
    assert record.values is not None
    linear = [call for call in layer.after if not call.is_norm]
    norms = [call for call in layer.after if call.is_norm]

    # state + output(Σ weights · values), and the normalisation that follows it or comes next
    attended = (record.weights @ record.values).transpose(1, 2).flatten(2)
    output = _call_on(attended, linear)
    if output is None:
        raise LookupError("no linear module takes what its attention gives")
    total = layer.state + output.output
    normalised = _call_on(total, norms)
    if normalised is None:
        raise LookupError("what its attention gives is not simply added to its input")
    inner_calls = linear[linear.index(output) + 1 :]
    if not inner_calls or layer.result is None:
        raise LookupError("no feed-forward network follows its attention")

    # pre-norm: x + inner(norm(x)); post-norm: x = norm(x), then norm(x + inner(x))
    inner_output = inner_calls[-1].output
    last = _call_on(normalised.output + inner_output, norms)
    if _equal(layer.result, total + inner_output):
        return _Parts(output, total, normalised, inner_calls, None)
    if last is not None and _equal(layer.result, last.output):
        return _Parts(output, total, normalised, inner_calls, last)
    raise LookupError("its layers do not end in the sum of a feed-forward network and its input")


def _block(layer: _LayerCall, record: AttentionRecord) -> tuple[Block, str]:
    """Linearise one layer.

    Returns:
        The layer, and why its values or its feed-forward network are not known (empty: they are).

    Raises:
        LookupError: nothing is known.
    """
    assert record.values is not None
    parts = _parts(layer, record)
    normalised = parts.normalised
    is_pre_norm = parts.last is None
    mixing = Mixing(
        state=layer.state.double(),
        before=None,
        value=None,
        weights=record.weights.double(),
        values=record.values.double(),
        output=affine_of(parts.output.module),
        after=None if is_pre_norm else normalised.norm(),
        adds_input=True,
        result=(parts.total if is_pre_norm else normalised.output).double(),
    )

    try:
        before, value = _value(layer, record.values)
        if len(parts.inner) != 2 or not _equal(parts.inner[0].input, normalised.output):
            raise LookupError(
                "its feed-forward networks are not two linear modules with an activation between "
                "them"
            )
        first, second = parts.inner
        before_inner = normalised.norm() if is_pre_norm else None
        after_inner = None if parts.last is None else parts.last.norm()
        inner = Inner(
            before=before_inner,
            first=affine_of(first.module),
            ratio=_activation(first.output, second.input),
            second=affine_of(second.module),
            after=after_inner,
        )
    except LookupError as error:
        return Block(mixing, None), str(error)
    return Block(mixing._replace(before=before, value=value), inner), ""


def _call_on(vectors: Tensor, calls: Sequence[_Call]) -> _Call | None:
    """The first of these calls whose input these vectors are."""
    return next((call for call in calls if _equal(call.input, vectors)), None)


def _value(layer: _LayerCall, values: Tensor) -> tuple[Norm | None, Affine]:
    """How the values come from the layer's state: a normalisation or none, and a linear map.

    One linear module may compute queries, keys and values side by side.
    """
    side_by_side = values.transpose(1, 2).flatten(2)
    size = side_by_side.shape[-1]
    norms = [call for call in layer.before if call.is_norm]
    for call in layer.before:
        if call.is_norm or call.output.ndim != 3:
            continue
        for start in range(0, call.output.shape[-1] - size + 1, size):
            columns = slice(start, start + size)
            if not _equal(call.output[..., columns], side_by_side):
                continue
            weight, bias = affine_of(call.module)
            value = Affine(weight[columns], bias[columns])
            if _equal(call.input, layer.state):
                return None, value
            for norm in norms:
                if _equal(norm.output, call.input) and _equal(norm.input, layer.state):
                    return norm.norm(), value
    raise LookupError("its values are no linear map of a layer's input")


def _activation(inputs: Tensor, result: Tensor) -> Tensor:
    """act(x) / x for one of the library's activation functions; a LookupError for any other."""
    from transformers.activations import ACT2FN

    without_weights = (ACT2FN[name] for name in ACT2FN if name not in ("xielu", "prelu"))
    if inputs.shape == result.shape and any(
        _equal(activation(inputs), result) for activation in without_weights
    ):
        return ratio(inputs, result)
    raise LookupError("between two linear modules there is no activation function that is known")


def _head(
    watch: _Watch,
    row: Tensor | None,
    logits: Tensor,
    order: Sequence[int],
) -> Sequence[Stage]:
    """From the deciding state to the logits.

    It is a chain of linear modules, normalisations and activations on one state.
    """
    if row is None:
        raise LookupError("its prediction averages the states")
    text = torch.arange(len(row), device=row.device)

    def deciding(vectors: Tensor) -> Tensor:
        return vectors if vectors.ndim == 2 else vectors[text, row]

    result = watch.layers[-1].result
    assert result is not None
    state = result[text, row]
    stages: list[Stage] = []
    for call in watch.head:
        step = call._replace(input=deciding(call.input), output=deciding(call.output))
        if not _equal(step.input, state):
            stages.append(_activation(state, step.input))
        stages.append(step.norm() if step.is_norm else affine_of(step.module))
        state = step.output

    output = stages.pop() if stages else None
    if not isinstance(output, Affine) or not _equal(state[:, order], logits):
        raise LookupError("its logits are not what its last linear module gives")
    return [*stages, Affine(output.weight[order], output.bias[order])]
