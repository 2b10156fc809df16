"""Passes of the upper part of a network alone: everything but one attention is fixed, so what comes before its layer need
not be computed again."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnprobe.models.pretrained.attention_hooks import Pass
from attnprobe.models.pretrained.heads import last_of


class UpperPart:
    """The layers of a network from that of one attention on, and the head after them.

    Everything else of the network runs as ever: what comes before the layers is computed and thrown away.

    Args:
        network: as `transformers` made it.
        module: an attention of its layers.

    Raises:
        LookupError: the attention is in no list of layers.
    """

    def __init__(self, network: nn.Module, module: nn.Module) -> None:
        self.network = network
        parts = {part: name for name, part in network.named_modules()}[module].split(".")
        for end in range(len(parts) - 1, 0, -1):
            layers = network.get_submodule(".".join(parts[:end]))
            if isinstance(layers, nn.ModuleList):
                self.place, self.name = network.get_submodule(".".join(parts[: end - 1])), parts[end - 1]
                self.layers, self.number = layers, int(parts[end])
                self.layer = layers[self.number]
                return
        raise LookupError("the attention is in no list of layers")

    @contextmanager
    def state_in(self, keep: list[Tensor] | None = None, put: Tensor | None = None) -> Iterator[None]:
        """Within it, what goes into the layer is kept, or replaced."""

        def look(module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
            state = given[0] if given else named["hidden_states"]
            if keep is not None:
                keep.append(state)
            if put is None:
                return None
            return ((put, *given[1:]), named) if given else (given, named | {"hidden_states": put})

        with self.layer.register_forward_pre_hook(look, with_kwargs=True):
            yield

    @contextmanager
    def starting(self, state: Float[Tensor, "batch pieces hidden"], *, alone: bool = False) -> Iterator[None]:
        """Within it a pass begins with this layer (`alone`: and ends with it), and with these states before it."""
        layers = [self.layer] if alone else list(self.layers)[self.number :]
        self.place._modules[self.name] = nn.ModuleList(layers)
        try:
            with self.state_in(put=state):
                yield
        finally:
            self.place._modules[self.name] = self.layers

    def logits_of_row(
        self,
        attended: Float[Tensor, "rows heads size"],
        state: Float[Tensor, "rows hidden"],
        piece: Int[Tensor, "rows"],
    ) -> Float[Tensor, "rows outputs"]:
        """The network's logits where this is its last layer, and all but the pooled row is fixed: it runs on texts of one
        piece, whose attention gives what it is told.

        Args:
            attended: what the attention gives at the pooled row, by head.
            state: what went into the layer there.
            piece: any piece that is not padding.
        """
        ids = piece.unsqueeze(1)
        with Pass(result=attended.unsqueeze(1)), self.starting(state.unsqueeze(1), alone=True):
            logits: Tensor = self.network(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
        return last_of(logits, torch.zeros_like(piece))


@contextmanager
def keeping_states(parts: Sequence[UpperPart], keep: list[Tensor]) -> Iterator[None]:
    """Within it what goes into each of these layers is kept, in order."""
    with ExitStack() as stack:
        for part in parts:
            stack.enter_context(part.state_in(keep=keep))
        yield
