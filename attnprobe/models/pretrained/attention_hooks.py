"""The two ways in to the attention of a network of `transformers`, checked to lead to what the
network computes with. Most families call an attention function of the library's registry: ours
calls the family's own and may exchange its weights. The others end their attention in a dropout
module, whose hook may exchange what it returns. (Read in transformers 5.)"""

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
LIMITS = {torch.float32: 1e-5, torch.float64: 1e-9}
"""Largest difference of two logits, relative to the largest of the network's (at least 1)."""

Weights = Float[Tensor, "batch heads queries keys"]


class Seen(NamedTuple):
    """One attention of a pass: its weights, what they are multiplied with (None: not seen, through
    a dropout module), and the module that computed them."""

    weights: Tensor
    values: Float[Tensor, "batch heads keys size"] | None
    module: nn.Module


@dataclass(eq=False)
class Pass:
    """What happens to the attention in one pass of a network: within `with Pass(…).active()`, its
    attentions ask this one.

    Attributes:
        call: which of the pass's attentions is meant, from 0; None: none is.
        replace: the weights of that attention → those to be used instead; None: they are only
            recorded.
        result: given instead of every attention's result `[batch, 1, heads, size]`, whatever its
            weights.
        keep: told of every attention in turn; None: only the one that is meant is recorded.
        given: put into every row of the attentions `given_at`, up to a factor, over what the row
            may see; a row that sees none of it stays. None: the weights are the network's own.
        recorded: the attention that was meant.
        seen: batch, heads, queries and keys of every attention.
    """

    call: int | None = None
    replace: Callable[[Tensor], Tensor] | None = None
    result: Tensor | None = None
    keep: Callable[[Seen], None] | None = None
    given: Float[Tensor, "batch keys"] | None = None
    given_at: Container[int] = ()
    recorded: Seen = field(init=False)
    seen: list[torch.Size] = field(default_factory=list)

    @contextmanager
    def active(self) -> Iterator[None]:
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)

    def weights(self, own: Weights, module: nn.Module, values: Tensor | None = None) -> Weights:
        """The weights to be used in one attention: `own` itself, but where they are to be
        replaced."""
        number = len(self.seen)
        if self.given is not None and number in self.given_at:
            there = (own > 0) * self.given.to(own.dtype)[
                :, None, None
            ]  # what is masked has no weight at all
            total = there.sum(-1, keepdim=True)
            own = torch.where(total > 0, there / torch.where(total > 0, total, 1), own)
        self.seen.append(own.shape)
        one = Seen(own, values, module)
        if self.keep is not None:
            self.keep(one)
        if number != self.call:
            return own
        self.recorded = one
        return own if self.replace is None else self.replace(own)


_CURRENT: ContextVar[Pass | None] = ContextVar("attnprobe_pass", default=None)


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **settings: Any,
) -> tuple[Tensor, Tensor | None]:
    """The attention function that is registered: the family's own one, its weights shown to the
    current pass."""
    now = _CURRENT.get()
    if now is not None and now.result is not None:
        return now.result, None
    own = vars(sys.modules[type(module).__module__])["eager_attention_forward"]
    result, weights = own(module, query, key, value, attention_mask, **settings)
    if now is None:
        return result, weights
    shared = weights.shape[1] // value.shape[1]  # heads may share their values
    values = value if shared == 1 else value.repeat_interleave(shared, 1)
    used = now.weights(weights, module, values)
    if used is not weights:
        result = (used @ values).transpose(1, 2).contiguous()
    return result, used


def _exchange(module: nn.Module, given: tuple[Any, ...], output: Tensor) -> Tensor | None:
    """The hook of a dropout module: None leaves the output as it is."""
    now = _CURRENT.get()
    used = output if now is None else now.weights(output, module)
    return None if used is output else used


def _open_interface(network: Any) -> bool:
    """Make the network call `_attention`; False where its family does not use the registry, or not
    in a way we know."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    families = {sys.modules[type(module).__module__] for module in network.modules()}
    if not any(hasattr(family, "eager_attention_forward") for family in families):
        return False
    # a name without a mask function gets no mask at all, silently
    AttentionInterface.register(NAME, _attention)
    AttentionMaskInterface.register(NAME, eager_mask)
    try:
        network.set_attn_implementation(NAME)
    except ValueError:
        return False
    return bool(network.config._attn_implementation == NAME)


def _open_dropouts(run: Callable[[], Any]) -> None:
    """Hook the dropout modules that are given attention weights: every row of what comes in sums to
    1 (in eval mode)."""
    opened: list[nn.Module] = []

    def look(module: nn.Module, given: tuple[Any, ...], output: Any) -> None:
        if isinstance(module, nn.Dropout) and given[0].ndim == 4:
            sums = given[0].sum(-1)[:, :, 0]
            if torch.allclose(sums, torch.ones((), dtype=sums.dtype), atol=1e-4):
                opened.append(module)

    with register_module_forward_hook(look):
        run()
    for module in dict.fromkeys(opened):
        if _exchange not in module._forward_hooks.values():
            module.register_forward_hook(_exchange)


class LastLayer:
    """The layer of a network's last attention, `module`, and the head after it; a LookupError where
    it is in no list of layers. Everything else of the network runs as ever: what comes before the
    layers is computed and thrown away."""

    def __init__(self, network: nn.Module, module: nn.Module) -> None:
        self.network = network
        parts = {part: name for name, part in network.named_modules()}[module].split(".")
        for end in range(len(parts) - 1, 0, -1):
            self.layers = network.get_submodule(".".join(parts[:end]))
            if isinstance(self.layers, nn.ModuleList):
                self.place = network.get_submodule(".".join(parts[: end - 1]))
                self.name = parts[end - 1]
                self.layer = self.layers[int(parts[end])]
                return
        raise LookupError("the attention is in no list of layers")

    def keeping(self, states: list[Tensor]) -> RemovableHandle:
        """Within it, what goes into this layer is added to `states`."""
        return self.layer.register_forward_pre_hook(
            lambda module, given, named: states.append(
                given[0] if given else named["hidden_states"]
            ),
            with_kwargs=True,
        )

    def logits_of_row(
        self,
        attended: Float[Tensor, "rows heads size"],
        state: Float[Tensor, "rows hidden"],
        piece: Int[Tensor, "rows"],
    ) -> Float[Tensor, "rows outputs"]:
        """The network's logits where all but the pooled row is fixed: it runs on texts of one piece
        (any that is not padding) and one layer, into which `state` goes and whose attention gives
        `attended`, by head."""
        ids = piece.unsqueeze(1)
        before = state.unsqueeze(1)
        instead = self.layer.register_forward_pre_hook(
            lambda module, given, named: (
                ((before, *given[1:]), named)
                if given
                else (given, named | {"hidden_states": before})
            ),
            with_kwargs=True,
        )
        self.place._modules[self.name] = nn.ModuleList([self.layer])
        try:
            with Pass(result=attended.unsqueeze(1)).active(), instead:
                logits: Tensor = self.network(
                    input_ids=ids, attention_mask=torch.ones_like(ids)
                ).logits
        finally:
            self.place._modules[self.name] = self.layers
        return logits.flatten(0, -2)


Run = Callable[[Pass], Tensor]
"""One pass of the network over the batch: its logits."""


@dataclass
class Found:
    """How a network's attention is got at: through which door (`interface` or `dropout`), how many
    there are in a pass (`calls`), with how many heads each, whose rows reach the prediction from
    the last one (`queries`), the largest |Δlogit| of what must be equal, by name (`differences`),
    and what else a reader should know (`remarks`)."""

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
    asked: Int[Tensor, "batch"] | None = None,
) -> Found:
    """Open a door to the attention of a network in eval mode, and look whether it is one, else
    raise a UserError that names the `family`. `run` is a pass over a batch with padding, `mask`
    says which of its pieces are none, and `asked` which piece of each text the prediction is read
    from, where that is not the same for all."""
    refused = f"the attention of {family} cannot be examined: "
    with torch.no_grad():
        if network.config._attn_implementation == NAME:
            network.set_attn_implementation("eager")
        own = run(Pass())  # by the library's own code
        first = Pass()
        door = "interface"
        if _open_interface(network):
            run(first)
        if not first.seen:
            _open_dropouts(lambda: run(Pass()))
            first = Pass()
            door = "dropout"
            run(first)
        calls = len(first.seen)
        if not calls:
            raise UserError(
                f"{refused}it neither uses the attention interface of transformers nor ends in a dropout module whose rows "
                f"sum to 1"
            )
        last = Pass(calls - 1)
        again = Pass(calls - 1, torch.clone)
        logits = {"recorded": run(last), "replaced": run(again)}
    if {len(last.seen), len(again.seen)} != {calls}:
        raise UserError(
            f"{refused}{calls} attentions in one pass, and {len(last.seen)} in the next"
        )
    weights = last.recorded.weights
    if weights.shape[-1] != mask.shape[1]:
        raise UserError(
            f"{refused}its last one is over {weights.shape[-1]} places, and the text has {mask.shape[1]}"
        )
    queries = mask if weights.shape[-2] == mask.shape[1] else mask[:, :1]
    sums = weights.sum(-1).transpose(1, 2)[queries]
    if (sums - 1).abs().max() > 1e-3:
        raise UserError(
            f"{refused}its rows sum to {float(sums.min()):.3g} to {float(sums.max()):.3g}, and not to 1"
        )
    given = (weights * queries[:, None, :, None]).amax((1, 2))
    if not mask.all() and float(given[~mask].max()) > 1e-6:
        raise UserError(f"{refused}it gives weight to padding")
    found = Found(door, calls, Queries.ALL, [shape[1] for shape in last.seen])
    for name, one in logits.items():
        apart = found.differences[name] = float((one - own).abs().max())
        if not apart <= LIMITS[own.dtype] * max(1.0, float(own.abs().max())):
            raise UserError(
                f"{refused}with its weights {name} the logits differ from its own by {apart:.2g}"
            )
    with torch.enable_grad():  # the queries whose rows reach the prediction have a gradient
        free = weights.detach().clone().requires_grad_()
        changed = run(Pass(calls - 1, lambda _: free))
        sign = torch.linspace(1, 2, changed.shape[-1], dtype=changed.dtype, device=changed.device)
        (gradient,) = torch.autograd.grad((changed * sign).sum(), free, allow_unused=True)
    if gradient is None or not gradient.abs().max() > 0:
        raise UserError(f"{refused}replacing its last attention changes nothing")
    reaching = gradient.abs().amax((1, 3)) > 0
    place = torch.arange(reaching.shape[1], device=reaching.device)
    if asked is not None and torch.equal(reaching, place == asked.unsqueeze(1)):
        found.queries = Queries.ASKED
    elif torch.equal(reaching, (place == 0).expand_as(reaching)):
        found.queries = Queries.FIRST
    elif torch.equal(reaching, place == mask.sum(1, keepdim=True) - 1):
        found.queries = Queries.LAST
    return found
