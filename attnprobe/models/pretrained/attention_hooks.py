"""Read and replace the attention of a network of `transformers`.

Two doors lead to it (as of transformers 5):

- `interface`: most families call an attention function of the library's registry. Ours calls the
  family's own function and may exchange its weights.
- `dropout`: the others end their attention in a dropout module. A hook may exchange what it
  returns.

`examine_attention` opens a door and checks that it leads to what the network computes with.
"""

import sys
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from torch.utils.hooks import RemovableHandle

from attnprobe.core.errors import UserError
from attnprobe.models.pretrained.site import Queries

NAME = "attnprobe"
"""What our attention function is called in the library's registry."""
LIMITS = {torch.float32: 1e-5, torch.float64: 1e-9}
"""Largest difference of two logits, relative to the largest of the network's (at least 1)."""

Weights = Float[Tensor, "batch heads queries keys"]


class AttentionRecord(NamedTuple):
    """One attention of a pass.

    Attributes:
        weights: of every head.
        visible: the places that a row may see. The others are padding, or forbidden by a mask: what
            follows, what is outside a window. They are the same in all heads.
        values: what the weights are multiplied with; None: not known, through a dropout module.
        module: the module that computed them.
    """

    weights: Tensor
    visible: Bool[Tensor, "batch 1 queries keys"]
    values: Float[Tensor, "batch heads keys size"] | None
    module: nn.Module


@dataclass(eq=False)
class Pass:
    """What happens to the attention in one pass of a network.

    Within `with Pass(…).active()` the network's attentions ask this object which weights to use.

    Attributes:
        call: the number of the attention that is recorded, from 0; None: none is.
        replace: the recorded attention → the weights to be used instead; None: it is only recorded.
        result: the result `[batch, 1, heads, size]` of every attention, whatever its weights; None:
            computed.
        observer: called with every attention in turn; None: only one is recorded.
        imposed: weights for every row of the attentions `imposed_at`, up to a factor, over what the
            row may see; a row that sees none of them stays. None: the weights are the network's.
        imposed_at: numbers of attentions, from 0.
        recorded: the attention that was asked for, after the pass.
        shapes: batch, heads, queries and keys of every attention, after the pass.
    """

    call: int | None = None
    replace: Callable[[AttentionRecord], Tensor] | None = None
    result: Tensor | None = None
    observer: Callable[[AttentionRecord], None] | None = None
    imposed: Float[Tensor, "batch keys"] | None = None
    imposed_at: Container[int] = ()
    recorded: AttentionRecord = field(init=False)
    shapes: list[torch.Size] = field(default_factory=list)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Make this the current pass: the one that attentions ask."""
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)

    def weights(
        self,
        weights: Weights,
        module: nn.Module,
        visible: Bool[Tensor, "batch 1 queries keys"],
        values: Tensor | None = None,
    ) -> Weights:
        """Record the next attention of the pass, and decide on its weights.

        Args:
            weights: as the network computed them.
            module: the module that computed them.
            visible: the places that each row may see.
            values: what they are multiplied with, where that is known.

        Returns:
            The weights to be used: the very same tensor, unless they are replaced.

        Raises:
            ForbiddenPlace: they are replaced, and one that is above 0 is on a place that its row
                cannot see.
        """
        number = len(self.shapes)
        if self.imposed is not None and number in self.imposed_at:
            weights = _imposed(weights, visible, self.imposed)
        self.shapes.append(weights.shape)

        record = AttentionRecord(weights, visible, values, module)
        if self.observer is not None:
            self.observer(record)
        if number != self.call:
            return weights
        self.recorded = record
        if self.replace is None:
            return weights
        replaced = self.replace(record)
        check_places(replaced, visible)
        return replaced


_CURRENT: ContextVar[Pass | None] = ContextVar("attnprobe_pass", default=None)


class ForbiddenPlace(AssertionError):
    """A pass was given an attention that its network cannot have."""


def check_places(weights: Tensor, visible: Bool[Tensor, "*rows keys"]) -> None:
    """Make sure that no place which a row cannot see has a weight.

    Args:
        weights: of rows of an attention.
        visible: the places that these rows may see.

    Raises:
        ForbiddenPlace: one has.
    """
    if not visible.all() and bool((weights.detach() * ~visible > 0).any()):
        raise ForbiddenPlace("an attention with a weight on a place that its row cannot see")


def _imposed(
    weights: Weights,
    visible: Bool[Tensor, "batch 1 queries keys"],
    imposed: Float[Tensor, "batch keys"],
) -> Weights:
    """`imposed` in every row, over the keys that the row may see, made to sum to 1."""
    rows = visible * imposed.to(weights.dtype)[:, None, None]
    total = rows.sum(-1, keepdim=True)
    return torch.where(total > 0, rows / torch.where(total > 0, total, 1), weights)


def _registered_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **settings: Any,
) -> tuple[Tensor, Tensor | None]:
    """The attention function that the registry calls.

    It is the family's own function, whose weights the current pass may replace.
    Its signature, and the order of its arguments, are the library's.
    """
    current = _CURRENT.get()
    if current is not None and current.result is not None:
        return current.result, None

    family = vars(sys.modules[type(module).__module__])
    result, weights = family["eager_attention_forward"](
        module,
        query,
        key,
        value,
        attention_mask,
        **settings,
    )
    if current is None:
        return result, weights

    heads_per_value = weights.shape[1] // value.shape[1]  # heads may share their values
    values = value if heads_per_value == 1 else value.repeat_interleave(heads_per_value, 1)
    used = current.weights(weights, module, _visible(attention_mask, weights), values)
    if used is not weights:
        result = (used @ values).transpose(1, 2).contiguous()
    return result, used


def _visible(mask: Tensor | None, weights: Weights) -> Bool[Tensor, "batch 1 queries keys"]:
    """The places that a mask leaves open: those where it is no lowest number, and not False."""
    batch, _, queries, keys = weights.shape
    if mask is None:
        return weights.new_ones(batch, 1, queries, keys, dtype=torch.bool)
    is_open = mask if mask.dtype is torch.bool else mask > torch.finfo(mask.dtype).min / 2
    # some families add a bias of every head to it: what is forbidden is so in all
    is_open = is_open[..., :queries, :keys].any(1, keepdim=True)
    is_open = is_open | ~is_open.any(-1, keepdim=True)  # rows of padding, which may see nothing
    return is_open.expand(batch, 1, queries, keys)


def _dropout_hook(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor | None:
    """The hook of a dropout module: None leaves the output as it is."""
    current = _CURRENT.get()
    if current is None or output.ndim != 4:  # some networks put other things through it as well
        return None
    # no mask is seen here: what it forbids has no weight in any head
    visible = (inputs[0] > 0).any(1, keepdim=True)
    used = current.weights(output, module, visible)
    return None if used is output else used


def _open_interface(network: Any) -> bool:
    """Make the network call `_registered_attention`.

    Returns:
        False where its family does not use the registry, or not in a way we know.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    families = {sys.modules[type(module).__module__] for module in network.modules()}
    if not any(hasattr(family, "eager_attention_forward") for family in families):
        return False
    # a name without a mask function gets no mask at all, silently
    AttentionInterface.register(NAME, _registered_attention)
    AttentionMaskInterface.register(NAME, eager_mask)
    try:
        network.set_attn_implementation(NAME)
    except ValueError:
        return False
    return bool(network.config._attn_implementation == NAME)


def _open_dropouts(run: Callable[[], Any]) -> None:
    """Hook the dropout modules that attention weights go through.

    In eval mode they are those for which every row of what goes in sums to 1.
    """
    dropouts: list[nn.Module] = []

    def collect(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if isinstance(module, nn.Dropout) and inputs[0].ndim == 4:
            sums = inputs[0].sum(-1)[:, :, 0]
            if torch.allclose(sums, torch.ones((), dtype=sums.dtype), atol=1e-4):
                dropouts.append(module)

    with register_module_forward_hook(collect):
        run()
    for module in dict.fromkeys(dropouts):
        if _dropout_hook not in module._forward_hooks.values():
            module.register_forward_hook(_dropout_hook)


class LastLayer:
    """The layer of a network's last attention, run by itself with the head that follows it.

    Everything else of the network runs as ever: what comes before the layers is computed and thrown
    away.

    Args:
        network: as `transformers` made it.
        module: the module that computes the last attention.

    Raises:
        LookupError: the attention is in no list of layers.
    """

    def __init__(self, network: nn.Module, module: nn.Module) -> None:
        self.network = network
        names = {part: name for name, part in network.named_modules()}
        path = names[module].split(".")
        # from the attention upwards: the first list that it is in is that of the layers
        for end in range(len(path) - 1, 0, -1):
            layers = network.get_submodule(".".join(path[:end]))
            if isinstance(layers, nn.ModuleList):
                self.layers = layers
                self.place = network.get_submodule(".".join(path[: end - 1]))
                self.name = path[end - 1]
                self.layer = layers[int(path[end])]
                return
        raise LookupError("the attention is in no list of layers")

    def keeping(self, states: list[Tensor]) -> RemovableHandle:
        """Within it, what goes into this layer is added to `states`."""

        def keep(module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
            states.append(layer_input(inputs, named))

        return self.layer.register_forward_pre_hook(keep, with_kwargs=True)

    def logits_of_row(
        self,
        attended: Float[Tensor, "rows heads size"],
        state: Float[Tensor, "rows hidden"],
        piece: Int[Tensor, "rows"],
    ) -> Float[Tensor, "rows outputs"]:
        """Compute the network's logits from one row of its last attention.

        The network runs on texts of one piece and with one layer.

        Args:
            attended: what the attention gives to the pooled row, by head.
            state: the pooled row's state before the layer.
            piece: any piece that is not padding.
        """
        ids = piece.unsqueeze(1)
        before = state.unsqueeze(1)

        def put(
            module: nn.Module,
            inputs: tuple[Any, ...],
            named: dict[str, Any],
        ) -> tuple[tuple[Any, ...], dict[str, Any]]:
            if inputs:
                return (before, *inputs[1:]), named
            return inputs, named | {"hidden_states": before}

        handle = self.layer.register_forward_pre_hook(put, with_kwargs=True)
        self.place._modules[self.name] = nn.ModuleList([self.layer])
        try:
            with Pass(result=attended.unsqueeze(1)).active(), handle:
                output = self.network(input_ids=ids, attention_mask=torch.ones_like(ids))
        finally:
            self.place._modules[self.name] = self.layers
        logits: Tensor = output.logits
        return logits.flatten(0, -2)


def layer_input(inputs: tuple[Any, ...], named: dict[str, Any]) -> Tensor:
    """The states that a layer is called with, by place or by name."""
    states: Tensor = inputs[0] if inputs else named["hidden_states"]
    return states


Run = Callable[[Pass], Tensor]
"""One pass of the network over the batch: its logits."""


@dataclass
class Examination:
    """How a network's attention is got at, and what was measured on the way.

    Attributes:
        door: `interface` or `dropout`.
        calls: the number of attentions in a pass.
        queries: whose rows reach the prediction from the last attention.
        heads: the number of heads of each attention.
        differences: the largest |Δlogit| of what must be equal, by name.
        remarks: what else a reader should know.
    """

    door: str
    calls: int
    queries: Queries
    heads: list[int] = field(default_factory=list)
    differences: dict[str, float] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


def examine_attention(
    network: Any,
    run: Run,
    mask: Bool[Tensor, "batch pieces"],
    family: str,
    read: Int[Tensor, "batch"],
    reads: Queries = Queries.LAST,
) -> Examination:
    """Open a door to the attention of a network, and check that it is the network's attention.

    Args:
        network: in eval mode.
        run: a pass over a batch with padding.
        mask: the pieces of the batch that are not padding.
        family: what the network is called in messages.
        read: the piece that each text's prediction is read from, unless it is the first, or all.
        reads: what such a piece is called.

    Raises:
        UserError: there is no door, or what it leads to is not what the network computes with.
    """
    with torch.no_grad():
        if network.config._attn_implementation == NAME:
            network.set_attn_implementation("eager")
        expected = run(Pass())  # by the library's own code
        door, calls = _open_door(network, run, family)
        recording = Pass(calls - 1)
        replacing = Pass(calls - 1, lambda record: record.weights.clone())
        logits = {"recorded": run(recording), "replaced": run(replacing)}

    if len(recording.shapes) != calls or len(replacing.shapes) != calls:
        raise _refusal(
            family, f"{calls} attentions in one pass, and {len(recording.shapes)} in the next"
        )
    weights = recording.recorded.weights
    _check_weights(weights, mask, family)

    examination = Examination(
        door=door,
        calls=calls,
        queries=Queries.ALL,
        heads=[shape[1] for shape in recording.shapes],
    )
    tolerance = LIMITS[expected.dtype] * max(1.0, float(expected.abs().max()))
    for name, result in logits.items():
        difference = float((result - expected).abs().max())
        examination.differences[name] = difference
        if not difference <= tolerance:
            raise _refusal(
                family,
                f"with its weights {name} the logits differ from its own by {difference:.2g}",
            )

    reaching = _rows_that_reach_the_prediction(run, calls - 1, weights, family)
    examination.queries = _queries(reaching, read, reads)
    return examination


def _refusal(family: str, reason: str) -> UserError:
    return UserError(
        f"the attention of {family} cannot be examined: {reason}. Take a checkpoint of another "
        f"family (docs/transformers.md names some)"
    )


def _open_door(network: Any, run: Run, family: str) -> tuple[str, int]:
    """Open the interface, or else the dropouts.

    Returns:
        The door, and the number of attentions in a pass.
    """
    first = Pass()
    if _open_interface(network):
        run(first)
    if first.shapes:
        return "interface", len(first.shapes)

    _open_dropouts(lambda: run(Pass()))
    first = Pass()
    run(first)
    if first.shapes:
        return "dropout", len(first.shapes)
    raise _refusal(
        family,
        "it neither uses the attention interface of transformers nor ends in a dropout module "
        "whose rows sum to 1",
    )


def _check_weights(weights: Weights, mask: Bool[Tensor, "batch pieces"], family: str) -> None:
    """Refuse weights that are not over the text's pieces, do not sum to 1, or lie on padding."""
    pieces = mask.shape[1]
    if weights.shape[-1] != pieces:
        raise _refusal(
            family, f"its last one is over {weights.shape[-1]} places, and the text has {pieces}"
        )
    if weights.shape[-2] not in (1, pieces):
        raise _refusal(
            family,
            f"its last one has rows for {weights.shape[-2]} places, and the text has {pieces}: it "
            f"joins neighbouring places on the way",
        )

    queries = mask if weights.shape[-2] == pieces else mask[:, :1]
    sums = weights.sum(-1).transpose(1, 2)[queries]
    if (sums - 1).abs().max() > 1e-3:
        raise _refusal(
            family,
            f"its rows sum to {float(sums.min()):.3g} to {float(sums.max()):.3g}, and not to 1",
        )

    largest = (weights * queries[:, None, :, None]).amax((1, 2))
    if not mask.all() and float(largest[~mask].max()) > 1e-6:
        raise _refusal(family, "it gives weight to padding")


def _rows_that_reach_the_prediction(
    run: Run,
    call: int,
    weights: Weights,
    family: str,
) -> Bool[Tensor, "batch queries"]:
    """The queries whose rows of this attention have a gradient."""
    with torch.enable_grad():
        free = weights.detach().clone().requires_grad_()
        logits = run(Pass(call, lambda _: free))
        # different factors, so that changes of two logits do not cancel
        factors = torch.linspace(1, 2, logits.shape[-1], dtype=logits.dtype, device=logits.device)
        (gradient,) = torch.autograd.grad((logits * factors).sum(), free, allow_unused=True)
    if gradient is None or not gradient.abs().max() > 0:
        raise _refusal(family, "replacing its last attention changes nothing")
    return gradient.abs().amax((1, 3)) > 0


def _queries(
    reaching: Bool[Tensor, "batch queries"], read: Int[Tensor, "batch"], reads: Queries
) -> Queries:
    """Name the rows that reach the prediction."""
    place = torch.arange(reaching.shape[1], device=reaching.device)
    if torch.equal(reaching, place == read.unsqueeze(1)):
        return reads
    if torch.equal(reaching, (place == 0).expand_as(reaching)):
        return Queries.FIRST
    return Queries.ALL
