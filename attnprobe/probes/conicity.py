"""Are the states that attention chooses from alike? (Mohankumar et al. 2020, conicity)"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from attnprobe.core.metrics import Metric, Scale
from attnprobe.core.randomness import Draws
from attnprobe.probes.base import DESCRIPTION, Measurement, Note, Probe, Subject
from attnprobe.readings.reading import Headline, Reading

COSINE = Scale("cosine", -1, 1)
METRICS = (
    Metric(
        "conicity",
        COSINE,
        "of a state with the mean of the text's states, mean over the states",
        higher_is_better=False,
        source="Mohankumar et al. 2020, section 3.1",
    ),
    Metric(
        "conicity_null",
        COSINE,
        "of as many vectors of this size, as long as the states, in random directions",
    ),
    *DESCRIPTION,
)


@dataclass
class Conicity(Probe):
    """Mean cosine of a text's states with their mean, beside that of random directions.

    Near 1 all states point the same way, and it hardly matters which of them is attended to. As
    many vectors of the same lengths in random directions give what chance gives (`conicity_null`),
    which is far from 0 in short texts. NaN where the states have no mean direction.
    """

    name = "conicity"
    metrics = METRICS

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield the conicity of the states and of random directions, −1 to 1."""
        content = subject.outputs.content
        states = subject.outputs.hidden.double()
        yield Measurement("conicity", conicity(states, content))

        noise = draws.normal(states.shape[-1], content, subject.batch.example_id)
        directions = F.normalize(noise.movedim(0, -1).to(states), dim=-1)
        lengths = states.norm(dim=-1, keepdim=True)
        yield Measurement("conicity_null", conicity(directions * lengths, content))


def conicity(
    states: Float[Tensor, "batch seq hidden"], content: Bool[Tensor, "batch seq"]
) -> Float[Tensor, "batch"]:
    """Mean cosine of the content's states with their mean, −1 to 1.

    Returns:
        NaN for a text without a state, and where the mean or a state is 0.
    """
    count = content.sum(-1, keepdim=True)
    inside = torch.where(content.unsqueeze(-1), states, 0)
    mean = inside.sum(1) / torch.where(count > 0, count, torch.nan)

    lengths = states.norm(dim=-1) * mean.norm(dim=-1, keepdim=True)
    products = torch.einsum("bsh,bh->bs", inside, mean)
    cosines = products / torch.where(lengths > 0, lengths, torch.nan)
    return torch.where(content, cosines, 0).sum(-1) / count.squeeze(-1)


READING = Reading(
    probe="conicity",
    order=14,
    title="Conicity: are the states that attention chooses from alike?",
    about=(
        "The mean cosine of a text's states with their mean. Near 1 all states point the same "
        "way: whichever of them is attended to, much the same comes out, and a weight says "
        "little of its word. As many vectors in random directions are shown beside it; of few "
        "vectors these are far from 0 too."
    ),
    headlines=(
        Headline("conicity", "mean cosine of the states with their mean"),
        Headline("conicity_null", "  in random directions"),
    ),
)
