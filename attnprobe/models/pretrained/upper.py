"""What follows a lower layer's attention, from the states that went into that layer: the layers above it, and the head."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from jaxtyping import Float
from torch import Tensor, nn

from attnprobe.models.pretrained.short_way import ShortWay


class UpperLayers:
    """The layers of a network from a given one on.

    Everything else of the network runs as ever: what comes before the layers is computed and thrown away.

    Args:
        network: as `transformers` made it.
        modules: the attention of each of its layers, in the order in which they are called.

    Raises:
        LookupError: the layers are not in one list, each with one attention, in this order.
    """

    def __init__(self, network: nn.Module, modules: Sequence[nn.Module]) -> None:
        self.parts = [ShortWay(network, module) for module in modules]
        layers = self.parts[0].layers
        if len(layers) != len(modules) or any(
            part.layers is not layers or part.layer is not layers[number] for number, part in enumerate(self.parts)
        ):
            raise LookupError("its layers are not in one list, each with one attention")

    @contextmanager
    def starting(self, number: int, state: Float[Tensor, "batch pieces hidden"]) -> Iterator[None]:
        """Within it a pass begins with this layer, and with these states before it."""
        part = self.parts[number]
        part.place._modules[part.name] = nn.ModuleList(list(part.layers)[number:])
        try:
            with part.state_in(put=state):
                yield
        finally:
            part.place._modules[part.name] = part.layers

    @contextmanager
    def states(self, keep: list[Tensor]) -> Iterator[None]:
        """Within it what goes into each layer is kept, in order."""
        with ExitStack() as stack:
            for part in self.parts:
                stack.enter_context(part.state_in(keep=keep))
            yield
