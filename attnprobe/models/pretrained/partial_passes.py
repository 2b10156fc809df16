"""The last layer of a network and its head alone: the short way past the last attention."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from attnprobe.models.pretrained.attention_hooks import Pass


class LastLayer:
    """The layer of a network's last attention, `module`, and the head after it; a LookupError where it is in no list of
    layers. Everything else of the network runs as ever: what comes before the layers is computed and thrown away."""

    def __init__(self, network: nn.Module, module: nn.Module) -> None:
        self.network = network
        parts = {part: name for name, part in network.named_modules()}[module].split(".")
        for end in range(len(parts) - 1, 0, -1):
            self.layers = network.get_submodule(".".join(parts[:end]))
            if isinstance(self.layers, nn.ModuleList):
                self.place, self.name = network.get_submodule(".".join(parts[: end - 1])), parts[end - 1]
                self.layer = self.layers[int(parts[end])]
                return
        raise LookupError("the attention is in no list of layers")

    def keeping(self, states: list[Tensor]) -> RemovableHandle:
        """Within it, what goes into this layer is added to `states`."""
        return self.layer.register_forward_pre_hook(
            lambda module, given, named: states.append(given[0] if given else named["hidden_states"]), with_kwargs=True
        )

    def logits_of_row(
        self,
        attended: Float[Tensor, "rows heads size"],
        state: Float[Tensor, "rows hidden"],
        piece: Int[Tensor, "rows"],
    ) -> Float[Tensor, "rows outputs"]:
        """The network's logits where all but the pooled row is fixed: it runs on texts of one piece and one layer, whose
        attention gives what it is told.

        Args:
            attended: what the attention gives at the pooled row, by head.
            state: what went into the layer there.
            piece: any piece that is not padding.
        """
        ids, before = piece.unsqueeze(1), state.unsqueeze(1)
        instead = self.layer.register_forward_pre_hook(
            lambda module, given, named: (
                ((before, *given[1:]), named) if given else (given, named | {"hidden_states": before})
            ),
            with_kwargs=True,
        )
        self.place._modules[self.name] = nn.ModuleList([self.layer])
        try:
            with Pass(result=attended.unsqueeze(1)).active(), instead:
                logits: Tensor = self.network(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
        finally:
            self.place._modules[self.name] = self.layers
        return logits.flatten(0, -2)
