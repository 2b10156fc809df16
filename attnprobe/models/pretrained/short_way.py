"""What follows the last layer's attention at the pooled row, without the rest of the network.

Everything but that row is fixed. So the network runs on texts of one piece, with one layer: what goes into it is the recorded
state of the pooled row (its residual), and what its attention gives is the sum of the recorded values under other weights.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnprobe.models.pretrained.doors import Pass, during


class ShortWay:
    """The last layer of a network and the head after it, for one row.

    Args:
        network: as `transformers` made it.
        module: the attention of its last layer.

    Raises:
        LookupError: the attention is in no list of layers.
    """

    def __init__(self, network: nn.Module, module: nn.Module) -> None:
        self.network = network
        names = {part: name for name, part in network.named_modules()}
        parts = names[module].split(".")
        for end in range(len(parts) - 1, 0, -1):
            layers = network.get_submodule(".".join(parts[:end]))
            if isinstance(layers, nn.ModuleList):
                self.place, self.name = network.get_submodule(".".join(parts[: end - 1])), parts[end - 1]
                self.layers, self.layer = layers, layers[int(parts[end])]
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

        hook = self.layer.register_forward_pre_hook(look, with_kwargs=True)
        try:
            yield
        finally:
            hook.remove()

    def __call__(
        self,
        attended: Float[Tensor, "rows heads size"],
        state: Float[Tensor, "rows hidden"],
        piece: Int[Tensor, "rows"],
    ) -> Float[Tensor, "rows outputs"]:
        """The network's logits.

        Args:
            attended: what the attention gives at the pooled row, by head.
            state: what went into the layer there.
            piece: any piece that is not padding.
        """
        one = Pass(result=attended.unsqueeze(1))
        self.place._modules[self.name] = nn.ModuleList([self.layer])
        try:
            with during(one), self.state_in(put=state.unsqueeze(1)):
                ids = piece.unsqueeze(1)
                logits: Tensor = self.network(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
        finally:
            self.place._modules[self.name] = self.layers
        return logits
