"""Does an importance explain the model, or would it say the same of any? (Adebayo et al. 2018, *Sanity checks*)"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from safetensors.torch import load_file
from torch import Tensor, nn

from attnprobe.data.vocabulary import PADDING
from attnprobe.errors import UserError
from attnprobe.importance.base import Subject
from attnprobe.measures import spearman
from attnprobe.models.trained import TrainedModel
from attnprobe.nulls.permutation import permute_attention
from attnprobe.probes.base import DESCRIPTION, Measurement, Note, RankingProbe, description
from attnprobe.randomness import Draws
from attnprobe.results.directory import WEIGHTS, RunDirectory
from attnprobe.results.metrics import CORRELATION, Metric

SOURCE = "Adebayo et al. 2018, section 3"
METRICS = (
    Metric("similarity_{importance}_down_to_{part}", CORRELATION, "Spearman's correlation of the sizes of the scores with "
           "those of the same model whose parts from the output down to this one are random", source=SOURCE),
    Metric("random_weights_similarity_{importance}", CORRELATION, "with the one all of whose parts are random",
           higher_is_better=False, source=SOURCE),
    Metric("shuffled_labels_similarity_{importance}", CORRELATION, "with a model trained on labels by a coin",
           higher_is_better=False, source=SOURCE, only="with twin"),
    Metric("floor_similarity_{importance}", CORRELATION, "with the same scores in random order: what no relation looks like"),
    Metric("ceiling_similarity_{importance}", CORRELATION, "with itself under other random numbers; 1 where it draws none"),
    *DESCRIPTION,
)  # fmt: skip
"""See `Sanity`."""


@dataclass
class Sanity(RankingProbe):
    """Make the model random, part by part from its output downwards, and see which importances still say the same.

    A part becomes random by putting its numbers into random order, tensor by tensor, so that their sizes stay (the row of
    padding stays where it is). Per importance X it yields

    - `similarity_X_down_to_P` for each part P (`TrainedModel.stages`): Spearman's correlation, −1 to 1, of the sizes of X's
      scores in the trained model and in the one whose parts from the output down to P are random, mean over `samples` random
      models; `random_weights_similarity_X`, the same with all parts random;
    - `shuffled_labels_similarity_X`: with the `twin`;
    - `floor_similarity_X`: X against itself in random order; `ceiling_similarity_X`: against itself with other random
      numbers.

    An importance that hardly changes when everything is random explains the words or the architecture, not what the model has
    learnt. And `predicted_class`, `content_length`, `max_attention`.

    Attributes:
        samples: random models per part.
        twin: directory of a finished run of the same model and data, trained with `training=coin_flips`; None: there is none.
        importances: see `RankingProbe`.

    Note:
        Adebayo et al. draw the weights as they were initialised. Here they are the trained ones in random order, which needs
        no knowledge of how a model was initialised.
    """

    name: ClassVar[str] = "sanity"
    metrics = METRICS
    of_words = True
    published = ("attention", "gradient", "gradient_input", "integrated_gradients", "leave_one_out", "random")
    samples: int = 2
    twin: str | None = None
    _random: dict[tuple[int, int], list[tuple[str, dict[str, Tensor]]]] = field(
        default_factory=dict, init=False, repr=False
    )
    _twin: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.samples < 1:
            raise UserError(f"probe.sanity.samples={self.samples}: expected 1 random model or more")

    def refuse(self, classifier: TrainedModel) -> None:
        """Read the twin's weights.

        Raises:
            UserError: the model cannot be examined, or the twin is another model.
        """
        super().refuse(classifier)
        if self.twin is None:
            return
        directory = RunDirectory(self.twin)
        directory.manifest()  # that of a finished run
        directory.verify([WEIGHTS])
        weights = load_file(directory.path / WEIGHTS)
        wanted = dict(classifier.named_parameters())
        if any(name not in weights or weights[name].shape != one.shape for name, one in wanted.items()):
            raise UserError(
                f"probe.sanity.twin={self.twin}: expected a run of the same model on the same data, trained with "
                f"training=coin_flips; its weights have other sizes"
            )
        self._twin = {name: weights[name] for name in wanted}

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield the measurements of one batch."""
        content, own = subject.batch.content, {n: size(one, n, subject) for n, one in self.scores(subject).items()}
        other = subject.redrawn()
        noise = draws.uniform(1, content, subject.batch.example_id)
        for name, values in own.items():
            in_random_order = permute_attention(values, content, noise)[0]
            yield Measurement(f"floor_similarity_{name}", alike(values, in_random_order, content))
            again = size(other.scores(name), name, other) if subject.importance(name).drawn else values
            yield Measurement(f"ceiling_similarity_{name}", alike(values, again, content))
        yield from self.when_random(subject, own, draws.seed)
        if self._twin:
            with replaced(subject.classifier, self._twin):
                for name, value in compared(same_texts(subject), own).items():
                    yield Measurement(f"shuffled_labels_similarity_{name}", value)
        yield from description(subject.readout)
        yield from self.notes(subject)

    def when_random(self, subject: Subject, own: Mapping[str, Tensor], seed: int) -> Iterator[Measurement]:
        """The similarities to random models, part by part."""
        model = subject.classifier
        assert isinstance(model, TrainedModel)
        found: dict[str, dict[str, Tensor]] = {}
        for sample in range(self.samples):
            # by the seed too: a run's probes may have been timed before, under another one
            if (seed, sample) not in self._random:
                generator = torch.Generator().manual_seed(1_000_003 * seed + sample)
                self._random[seed, sample] = random_parts(model, generator)
            changed: dict[str, Tensor] = {}
            for part, numbers in self._random[seed, sample]:
                changed |= numbers
                with replaced(model, changed):
                    values = compared(same_texts(subject), own)
                before = found.get(part, {})
                found[part] = {name: before.get(name, 0) + value / self.samples for name, value in values.items()}
        for part, similarity in found.items():
            for name, value in similarity.items():
                yield Measurement(f"similarity_{name}_down_to_{part}", value)
        for name, value in similarity.items():
            yield Measurement(f"random_weights_similarity_{name}", value)


def compared(other: Subject, own: Mapping[str, Float[Tensor, "batch seq"]]) -> dict[str, Float[Tensor, "batch"]]:
    """Each importance's scores against those in another model."""
    return {
        name: alike(values, size(other.scores(name), name, other), other.batch.content) for name, values in own.items()
    }


def same_texts(subject: Subject) -> Subject:
    """The same texts, asked again of the model as it is now."""
    model, batch = subject.classifier, subject.batch
    with torch.no_grad():
        outputs = model(batch)
    readout = model.readout(batch, outputs)
    return replace(subject, outputs=outputs, readout=readout, seconds={}, _results={})


def size(scores: Float[Tensor, "batch seq"], name: str, subject: Subject) -> Float[Tensor, "batch seq"]:
    """The scores without their sign."""
    scores = scores.detach().double()
    return scores.abs() if subject.importance(name).signed else scores


def alike(
    a: Float[Tensor, "batch seq"], b: Float[Tensor, "batch seq"], content: Bool[Tensor, "batch seq"]
) -> Float[Tensor, "batch"]:
    """Spearman's correlation over the content; NaN where a score is undefined or all are equal."""
    undefined = ((a.isnan() | b.isnan()) & content).any(-1)
    return spearman(a.nan_to_num(), b.nan_to_num(), content).masked_fill(undefined, torch.nan)


def random_parts(model: TrainedModel, generator: torch.Generator) -> list[tuple[str, dict[str, Tensor]]]:
    """Each part's parameters in random order, from the output down, by their names."""
    return [
        (part, {name: shuffled(model, name, generator) for name in names}) for part, names in model.stages().items()
    ]


def shuffled(model: nn.Module, name: str, generator: torch.Generator) -> Tensor:
    """A parameter's numbers in random order; the row of padding of word vectors stays."""
    values = model.get_parameter(name).detach()
    owner = model.get_submodule(name.rpartition(".")[0])
    keep = isinstance(owner, nn.Embedding) and owner.padding_idx == PADDING
    moved = values[1:] if keep else values
    order = torch.randperm(moved.numel(), generator=generator).to(values.device)
    mixed = moved.reshape(-1)[order].reshape(moved.shape)
    return torch.cat([values[:1], mixed]) if keep else mixed


@contextmanager
def replaced(model: nn.Module, numbers: Mapping[str, Tensor]) -> Iterator[None]:
    """Other numbers in some parameters, and the model's own again afterwards."""
    own = {name: model.get_parameter(name).detach().clone() for name in numbers}
    try:
        with torch.no_grad():
            for name, values in numbers.items():
                model.get_parameter(name).copy_(values)
        yield
    finally:
        with torch.no_grad():
            for name, values in own.items():
                model.get_parameter(name).copy_(values)
