"""Does an importance explain the model, or would it say the same of any? (Adebayo et al. 2018,
*Sanity checks*)"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from safetensors.torch import load_file
from torch import Tensor, nn

from attnprobe.core.errors import UserError
from attnprobe.core.metrics import CORRELATION, Metric
from attnprobe.core.randomness import Draws
from attnprobe.core.settings import Count
from attnprobe.data.vocabulary import PADDING
from attnprobe.evidence.claims import Claim
from attnprobe.evidence.evidence import mean_of
from attnprobe.evidence.reading import (
    Drawing,
    Headline,
    Reading,
    Tabulation,
    facet_table,
    importances_in,
)
from attnprobe.evidence.statistics import interval, mean_in_columns
from attnprobe.exact.nulls import permute_attention
from attnprobe.measures import spearman
from attnprobe.models.base import Model
from attnprobe.plots.grid import around, counted, grid, title
from attnprobe.plots.style import INK
from attnprobe.probes.base import (
    DESCRIPTION,
    Measurement,
    Note,
    RankingProbe,
    Subject,
    strengths,
    undefined_in,
)
from attnprobe.results.directory import WEIGHTS, RunDirectory
from attnprobe.results.pivot import metrics_there

SOURCE = "Adebayo et al. 2018, section 3"
METRICS = (
    Metric(
        "similarity_{importance}_down_to_{part}",
        CORRELATION,
        "Spearman's correlation of the sizes of the scores with "
        "those of the same model whose parts from the output down to this one are random",
        source=SOURCE,
    ),
    Metric(
        "random_weights_similarity_{importance}",
        CORRELATION,
        "with the one all of whose parts are random",
        higher_is_better=False,
        source=SOURCE,
    ),
    Metric(
        "shuffled_labels_similarity_{importance}",
        CORRELATION,
        "with a model trained on labels by a coin",
        higher_is_better=False,
        source=SOURCE,
        only="with twin",
    ),
    Metric(
        "floor_similarity_{importance}",
        CORRELATION,
        "with the same scores in random order: what no relation looks like",
    ),
    Metric(
        "ceiling_similarity_{importance}",
        CORRELATION,
        "with itself under other random numbers; 1 where it draws none",
    ),
    *DESCRIPTION,
)


@dataclass
class Sanity(RankingProbe):
    """Make the model random, part by part (`Model.stages`) from its output downwards, by putting
    each tensor's numbers into random order, and see which importances still say the same.

    Attributes:
        samples: random models per part, over which the similarities are averaged.
        twin: directory of a finished run of the same model and data, trained with
            `training=coin_flips`; None: there is none.

    Note:
        Adebayo et al. draw the weights as they were initialised. Here they are the trained ones in
        random order, which needs no knowledge of how a model was initialised.
    """

    name = "sanity"
    metrics = METRICS
    of_words = True
    published = (
        "attention",
        "gradient",
        "gradient_input",
        "integrated_gradients",
        "leave_one_out",
        "random",
    )
    samples: Count = 2
    twin: str | None = None
    _random: dict[tuple[int, int], list[tuple[str, dict]]] = field(
        default_factory=dict, init=False, repr=False
    )
    _twin: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False)

    def refuse(self, classifier: Model) -> None:
        super().refuse(classifier)
        if self.twin is None:
            return
        directory = RunDirectory(self.twin)
        directory.manifest()  # that of a finished run
        directory.verify([WEIGHTS])
        weights = load_file(directory.path / WEIGHTS)
        wanted = dict(classifier.named_parameters())
        if any(
            name not in weights or weights[name].shape != one.shape for name, one in wanted.items()
        ):
            raise UserError(
                f"probe.sanity.twin={self.twin}: expected a run of the same model on the same "
                "data, trained with training=coin_flips; its weights have other sizes"
            )
        self._twin = {name: weights[name] for name in wanted}

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        content = subject.batch.content
        own = _sizes(subject, self.scores(subject))
        other = subject.redrawn()
        noise = draws.uniform(1, content, subject.batch.example_id)
        for name, values in own.items():
            in_random_order = permute_attention(values, content, noise)[0]
            yield Measurement(f"floor_similarity_{name}", alike(values, in_random_order, content))
            again = _sizes(other, [name])[name] if subject.importance(name).drawn else values
            yield Measurement(f"ceiling_similarity_{name}", alike(values, again, content))
        model = subject.classifier
        down: dict[str, dict[str, Tensor]] = {}
        for sample in range(self.samples):
            # by the seed too: a run's probes may have been timed before, under another one
            if (draws.seed, sample) not in self._random:
                generator = torch.Generator().manual_seed(1_000_003 * draws.seed + sample)
                self._random[draws.seed, sample] = [
                    (part, {name: shuffled(model, name, generator) for name in names})
                    for part, names in model.stages().items()
                ]
            changed: dict[str, Tensor] = {}
            for part, numbers in self._random[draws.seed, sample]:
                changed |= numbers
                before = down.get(part, {})
                alike_by_name = _similarity_with(changed, subject, own)
                down[part] = {
                    name: before.get(name, 0) + value / self.samples
                    for name, value in alike_by_name.items()
                }
        for part, similarity in down.items():
            for name, value in similarity.items():
                yield Measurement(f"similarity_{name}_down_to_{part}", value)
        for name, value in similarity.items():  # the last part: everything is random
            yield Measurement(f"random_weights_similarity_{name}", value)
        if self._twin:
            for name, value in _similarity_with(self._twin, subject, own).items():
                yield Measurement(f"shuffled_labels_similarity_{name}", value)
        yield from self.notes(subject)


def _sizes(subject: Subject, names: Iterable[str]) -> dict[str, Float[Tensor, "batch seq"]]:
    return {name: values.detach().double() for name, values in strengths(subject, names).items()}


def _similarity_with(
    numbers: Mapping[str, Tensor], subject: Subject, own: Mapping[str, Tensor]
) -> dict[str, Float[Tensor, "batch"]]:
    # in the model with these numbers in some of its parameters, which has its own again afterwards
    model = subject.classifier
    batch = subject.batch
    before = {name: model.get_parameter(name).detach().clone() for name in numbers}
    try:
        with torch.no_grad():
            for name, values in numbers.items():
                model.get_parameter(name).copy_(values)
            outputs = model(batch)
        readout = model.readout(batch, outputs)
        other = replace(subject, outputs=outputs, readout=readout, seconds={}, _results={})
        return {
            name: alike(own[name], again, batch.content)
            for name, again in _sizes(other, own).items()
        }
    finally:
        with torch.no_grad():
            for name, values in before.items():
                model.get_parameter(name).copy_(values)


def alike(
    a: Float[Tensor, "batch seq"], b: Float[Tensor, "batch seq"], content: Bool[Tensor, "batch seq"]
) -> Float[Tensor, "batch"]:
    """Spearman's correlation over the content; NaN where a score is undefined or all are equal."""
    undefined = undefined_in(a, content) | undefined_in(b, content)
    return spearman(a.nan_to_num(), b.nan_to_num(), content).masked_fill(undefined, torch.nan)


def shuffled(model: nn.Module, name: str, generator: torch.Generator) -> Tensor:
    """A parameter's numbers in random order; the row of padding of word vectors stays."""
    values = model.get_parameter(name).detach()
    owner = model.get_submodule(name.rpartition(".")[0])
    keep = isinstance(owner, nn.Embedding) and owner.padding_idx == PADDING
    moved = values[1:] if keep else values
    order = torch.randperm(moved.numel(), generator=generator).to(values.device)
    mixed = moved.reshape(-1)[order].reshape(moved.shape)
    return torch.cat([values[:1], mixed]) if keep else mixed


HALF = 0.5
"""An importance depends on what the model has learnt if less than half of its ranking is left in a
random model."""
ORDER = (
    "head",
    "decoder",
    "attention",
    "layer",
    "encoder",
    "question_encoder",
    "question_embedding",
    "embeddings",
    "embedding",
)
"""The parts from the output down."""
KINDS = {
    "random_weights": "random weights",
    "shuffled_labels": "labels by a coin",
    "floor": "random order (floor)",
    "ceiling": "itself redrawn (ceiling)",
}


def sanity_table(results: pd.DataFrame) -> pd.DataFrame:
    """What is left of every importance's ranking, by what was made random."""
    names = importances_in(results, "sanity", "random_weights_similarity_")
    ends = importances_in(results, "sanity", "similarity_")

    def depth(part: str) -> tuple[int, int]:  # counted from the output
        name, number = re.fullmatch(r"(.+?)(?:_(\d+))?", part).groups()  # type: ignore[union-attr]
        return ORDER.index(name) if name in ORDER else ORDER.index("encoder"), -int(number or 0)

    parts = sorted(
        {end.rpartition("_down_to_")[2] for end in ends if "_down_to_" in end}, key=depth
    )
    there = metrics_there(results, "sanity")

    def lines(rows: pd.DataFrame) -> Iterator[dict[str, object]]:
        for name, facts in names.items():
            left = rows[f"random_weights_similarity_{name}"].to_numpy()
            gone = rows[f"ceiling_similarity_{name}"].to_numpy() * HALF - left
            mean, low, high = interval(gone)
            if np.nanmin(gone, initial=np.inf) == np.nanmax(gone, initial=-np.inf):
                low = high = mean  # the same in every text: no interval
            line: dict[str, object] = {
                "importance": facts.title,
                "n": int((~np.isnan(left)).sum()),
                "depends on the model": "yes" if low > 0 else "no" if high < 0 else "not decided",
            }
            for part in parts:
                line[f"down to {part.replace('_', ' ')}"] = float(
                    rows[f"similarity_{name}_down_to_{part}"].mean()
                )
            for kind, heading in KINDS.items():
                if (metric := f"{kind}_similarity_{name}") in there:
                    line |= mean_in_columns(heading, rows[metric].to_numpy(), -1, 1)
            yield line

    metrics = [f"{kind}_similarity_{name}" for name in names for kind in KINDS]
    metrics += [f"similarity_{name}_down_to_{part}" for name in names for part in parts]
    return facet_table(results, "sanity", metrics, lines)


def lines_down(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """What is left of each importance's ranking as the model becomes random, from its output down.
    It begins at 1, the ranking itself. A panel per data set and model."""
    table = sanity_table(results)
    panels = list(table.groupby("data and model", sort=False))
    there = importances_in(results, "sanity", "random_weights_similarity_").values()
    marked: dict[str, dict[str, Any]] = {
        facts.title: {"color": facts.colour, "marker": "osD^v<>"[number % 7], "ms": 3, "lw": 1}
        for number, facts in enumerate(there)
    }
    figure, axes = grid(len(panels), panel_height=2.2, columns=2)
    for panel, (heading, own) in zip(axes, panels, strict=True):
        steps = [
            name for name in own if str(name).startswith("down to ") and own[name].notna().any()
        ]
        labels = ["trained", *(str(step).removeprefix("down to ") for step in steps)]
        for row in own.to_dict("records"):
            # every model is asked with the same draws, so that a ranking by luck alone stays what
            # it is; equal scores rank nothing, and there is nothing of them to be left
            values = [1.0 if row["n"] else np.nan, *(row[step] for step in steps)]
            style = "-" if row["depends on the model"] == "yes" else "--"
            panel.plot(range(len(values)), values, ls=style, **marked[row["importance"]])
        panel.axhline(0, lw=0.5, color=INK, zorder=0)
        panel.set_xticks(range(len(labels)), labels, rotation=35, ha="right")
        panel.set_ylim(-0.4, 1.05)
        title(panel, counted(str(heading), int(own["n"].max())))
    handles = [Line2D([], [], label=name, **look) for name, look in marked.items()]
    around(
        figure, x="random from the output down to", y="what is left of the ranking", handles=handles
    )
    return figure


CLAIMS = (
    Claim(
        name="attention_depends_on_the_model",
        criterion="stability",
        source="Adebayo et al. 2018",
        threshold=HALF,
        statement="In the same model with random weights attention ranks the words differently",
        measure=mean_of(
            "ceiling_similarity_attention",
            "random_weights_similarity_attention",
            value=np.subtract,
            ends=(-2, 2),
        ),
        quantity=(
            f"1 − Spearman's correlation of the two rankings, mean of the texts; more than {HALF} "
            "is asked for"
        ),
    ),
)

READING = Reading(
    probe="sanity",
    order=57,
    claims=CLAIMS,
    mark="random_weights_similarity_",
    title="Sanity: does an importance depend on what the model has learnt?",
    about=(
        "The model's weights are put into random order, from the output down to the word vectors, "
        "and every importance is asked again of the same texts. One whose ranking of the words "
        "stays explains words or architecture, not this model: word counts and positions must "
        "fail, gradients must not. A twin that was trained on labels by a coin is compared as "
        "well. A method that passes need not be right; one that fails cannot be."
    ),
    of_importance=(
        Headline("random_weights_similarity_{importance}", "left under random weights: {title}"),
    ),
    tables=(
        Tabulation(
            "sanity",
            "Spearman's correlation of every importance (its size) in the trained model with "
            "itself in models that are random from the output down to each part, means over the n "
            "texts; with all weights random, with labels by a coin, in random order and redrawn "
            "with 95 % bootstrap intervals. It depends on the model where, by the whole interval, "
            "less than half of its ceiling is left (Adebayo et al. 2018).",
            sanity_table,
        ),
    ),
    drawings=(
        Drawing(
            "sanity_down",
            lines_down,
            ("random_weights_similarity_attention",),
            optional=("*similarity_*",),
        ),
    ),
)
