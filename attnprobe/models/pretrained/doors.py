"""The two ways in to the attention of a network of `transformers`.

Most families call an attention function of the library's registry: ours calls the family's own and may exchange its weights.
The others end their attention in a dropout module, whose hook may exchange what it returns. (Read in transformers 5.)
"""

import sys
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

NAME = "attnprobe"
"""Under which our function is registered."""

Weights = Float[Tensor, "batch heads queries keys"]


class Seen(NamedTuple):
    """One attention of a pass; see `Pass`."""

    weights: Tensor
    values: Tensor | None
    module: nn.Module


class Pass:
    """What happens to the attention in one pass of a network.

    Attributes:
        call: which of the pass's attentions is meant, from 0; None: none is.
        replace: the weights of that attention → those to be used instead; None: they are only recorded.
        result: given instead of every attention's result `[batch, 1, heads, size]`, whatever its weights.
        count: attentions so far.
        recorded: the weights that were meant.
        values: what they were multiplied with `[batch, heads, keys, size]`; None through a dropout module.
        module: which computed them.
        seen: batch, heads, queries and keys of every attention.
        keep: told of every attention in turn; None: only the one that is meant is recorded.
        first: the number, in a whole pass, of this one's first attention.
        even: the numbers, in a whole pass, of attentions that give all that they may see the same weight.
    """

    def __init__(
        self,
        call: int | None = None,
        replace: Callable[[Tensor], Tensor] | None = None,
        result: Tensor | None = None,
        keep: Callable[[Seen], None] | None = None,
        first: int = 0,
    ) -> None:
        self.call, self.replace, self.result, self.keep = call, replace, result, keep
        self.first = first
        self.even: Container[int] = ()
        self.count = 0
        self.recorded: Tensor | None = None
        self.values: Tensor | None = None
        self.module: nn.Module | None = None
        self.seen: list[torch.Size] = []

    def weights(self, own: Weights, module: nn.Module, values: Tensor | None = None) -> Weights:
        """The weights to be used in one attention: `own` itself, but where they are to be replaced."""
        number, self.count = self.count, self.count + 1
        if number + self.first in self.even:
            there = (own > 0).to(own.dtype)  # what is masked has no weight at all
            own = there / there.sum(-1, keepdim=True).clamp_min(1)
        self.seen.append(own.shape)
        if self.keep is not None:
            self.keep(Seen(own, values, module))
        if number != self.call:
            return own
        self.recorded, self.values, self.module = own, values, module
        return own if self.replace is None else self.replace(own)


@contextmanager
def embedded(network: Any, ids: Tensor, inputs: Tensor | None) -> Iterator[None]:
    """Within it these vectors `[batch, pieces, embed]` stand for the embeddings of these pieces; None: their own do."""
    if inputs is None:
        yield
        return

    def exchange_vectors(module: nn.Module, given: tuple[Any, ...], output: Tensor) -> Tensor | None:
        return inputs if given and given[0].shape == ids.shape and torch.equal(given[0], ids) else None

    hook = network.get_input_embeddings().register_forward_hook(exchange_vectors)
    try:
        yield
    finally:
        hook.remove()


CURRENT: ContextVar[Pass | None] = ContextVar("attnprobe_pass", default=None)


@contextmanager
def during(one: Pass) -> Iterator[Pass]:
    """Within it, attentions ask this pass."""
    token = CURRENT.set(one)
    try:
        yield one
    finally:
        CURRENT.reset(token)


def attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **settings: Any
) -> tuple[Tensor, Tensor | None]:
    """The attention function that is registered: the family's own one, its weights shown to the current pass."""
    now = CURRENT.get()
    if now is not None and now.result is not None:
        now.count += 1
        return now.result, None
    own = vars(sys.modules[type(module).__module__])["eager_attention_forward"]
    result, weights = own(module, query, key, value, attention_mask, **settings)
    if now is None:
        return result, weights
    values = value.repeat_interleave(weights.shape[1] // value.shape[1], 1)  # heads may share their values
    used = now.weights(weights, module, values)
    if used is not weights:
        result = (used @ values).transpose(1, 2).contiguous()
    return result, used


def open_interface(network: Any) -> bool:
    """Make the network call `attention`; False where its family does not use the registry, or not in a way we know."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    families = {sys.modules[type(module).__module__] for module in network.modules()}
    if not any(hasattr(family, "eager_attention_forward") for family in families):
        return False
    # a name without a mask function gets no mask at all, silently
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, eager_mask)
    try:
        network.set_attn_implementation(NAME)
    except ValueError:
        return False
    return bool(network.config._attn_implementation == NAME)


def open_dropouts(network: nn.Module, run: Callable[[], Any]) -> int:
    """Hook the dropout modules that are given attention weights: every row of what comes in sums to 1.

    Args:
        run: one pass of the network, in eval mode.

    Returns:
        how many there are.
    """
    opened: list[nn.Module] = []

    def look(module: nn.Module, given: tuple[Any, ...], output: Any) -> None:
        weights = given[0]
        if weights.ndim == 4 and torch.allclose(
            weights.sum(-1)[:, :, 0], torch.ones((), dtype=weights.dtype), atol=1e-4
        ):
            opened.append(module)

    looking = [module.register_forward_hook(look) for module in network.modules() if isinstance(module, nn.Dropout)]
    try:
        run()
    finally:
        for hook in looking:
            hook.remove()
    for module in dict.fromkeys(opened):
        if exchange not in module._forward_hooks.values():
            module.register_forward_hook(exchange)
    return len(opened)


def exchange(module: nn.Module, given: tuple[Any, ...], output: Tensor) -> Tensor | None:
    """The hook: None leaves the output as it is."""
    now = CURRENT.get()
    if now is None:
        return None
    used = now.weights(output, module)
    return None if used is output else used
