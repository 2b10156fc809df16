"""Does an importance explain the model, or would it say the same of any? (Adebayo et al. 2018)"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
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
from attnprobe.evidence.evidence import by_run, mean_of
from attnprobe.evidence.statistics import interval
from attnprobe.exact.nulls import permute_attention
from attnprobe.measures import spearman
from attnprobe.models.base import Model
from attnprobe.models.objectives import CoinFlips
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
from attnprobe.readings.importances import importances_in
from attnprobe.readings.means import facet_table, mean_in_columns, mean_over_texts, texts_with
from attnprobe.readings.reading import Drawing, Headline, Reading, Tabulation
from attnprobe.results.directory import WEIGHTS, Manifest, RunDirectory
from attnprobe.results.pivot import metrics_there
from attnprobe.results.table import scale_of

COIN_FLIPS = f"{CoinFlips.__module__}.{CoinFlips.__qualname__}"
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
    """Which importances still say the same when the model becomes random?

    The model is made random part by part (`Model.stages`), from its output downwards, by putting
    each tensor's numbers into random order.

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
    _random: dict[tuple[int, int], list["RandomPart"]] = field(
        default_factory=dict, init=False, repr=False
    )
    _twin: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False)

    def refuse(self, classifier: Model) -> None:
        """Refuse a twin that is another model as well, and read its weights."""
        super().refuse(classifier)
        if self.twin is None:
            return
        directory = RunDirectory(self.twin)
        manifest = directory.manifest()
        directory.verify([WEIGHTS])
        weights = load_file(directory.path / WEIGHTS)
        for name, parameter in classifier.named_parameters():
            if name not in weights or weights[name].shape != parameter.shape:
                raise UserError(
                    f"probe.sanity.twin={self.twin}: expected a run of the same model on the same "
                    f"data, trained with training=coin_flips; its weights have other sizes"
                )
            self._twin[name] = weights[name]

        objective = _objective_of(manifest)
        if objective != COIN_FLIPS:
            raise UserError(
                f"probe.sanity.twin={self.twin}: expected a run that was trained on labels by a "
                f"coin, and this one's objective is {objective or 'that of its own labels'}: train "
                f"it with training=coin_flips, or take +experiment=sanity, which trains one"
            )

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield how similar each importance is to itself in the random models and the twin."""
        content = subject.batch.content
        sizes = _sizes(subject, self.scores(subject))

        redrawn = subject.redrawn()
        noise = draws.uniform(1, content, subject.batch.example_id)
        for name, values in sizes.items():
            permuted = permute_attention(values, content, noise)[0]
            yield Measurement(f"floor_similarity_{name}", alike(values, permuted, content))
            is_drawn = subject.importance(name).drawn
            again = _sizes(redrawn, [name])[name] if is_drawn else values
            yield Measurement(f"ceiling_similarity_{name}", alike(values, again, content))

        similarities = self._similarities_down(subject, sizes, draws.seed)
        for part, similarity in similarities.items():
            for name, value in similarity.items():
                yield Measurement(f"similarity_{name}_down_to_{part}", value)
        *_, all_random = similarities.values()
        for name, value in all_random.items():
            yield Measurement(f"random_weights_similarity_{name}", value)

        if self._twin:
            for name, value in _similarity_with(self._twin, subject, sizes).items():
                yield Measurement(f"shuffled_labels_similarity_{name}", value)
        yield from self.notes(subject)

    def _similarities_down(
        self, subject: Subject, sizes: Mapping[str, Float[Tensor, "batch seq"]], seed: int
    ) -> dict[str, dict[str, Float[Tensor, "batch"]]]:
        """Part → importance → its similarity once all parts down to this one are random."""
        similarities: dict[str, dict[str, Tensor]] = {}
        for sample in range(self.samples):
            changed: dict[str, Tensor] = {}
            for part in self._random_parts(subject.classifier, seed, sample):
                changed |= part.parameters
                means = similarities.setdefault(part.name, {})
                for name, value in _similarity_with(changed, subject, sizes).items():
                    means[name] = means.get(name, 0) + value / self.samples
        return similarities

    def _random_parts(self, model: Model, seed: int, sample: int) -> "list[RandomPart]":
        # kept by the seed as well: a run's probes may have been timed before, under another one
        if (seed, sample) not in self._random:
            generator = torch.Generator().manual_seed(1_000_003 * seed + sample)
            self._random[seed, sample] = [
                RandomPart(part, {name: shuffled(model, name, generator) for name in names})
                for part, names in model.stages().items()
            ]
        return self._random[seed, sample]


def _objective_of(manifest: Manifest) -> str:
    """The class that a run's recipe names as its objective; empty where it names none."""
    setting: object = manifest
    for key in ("training", "training", "recipe", "objective", "_target_"):
        setting = setting.get(key) if isinstance(setting, Mapping) else None
    return setting if isinstance(setting, str) else ""


@dataclass(frozen=True)
class RandomPart:
    """One part of the model with its parameters' numbers in random order."""

    name: str
    parameters: Mapping[str, Tensor]


def _sizes(subject: Subject, names: Iterable[str]) -> dict[str, Float[Tensor, "batch seq"]]:
    return {name: values.detach().double() for name, values in strengths(subject, names).items()}


def _similarity_with(
    parameters: Mapping[str, Tensor], subject: Subject, sizes: Mapping[str, Tensor]
) -> dict[str, Float[Tensor, "batch"]]:
    """Each importance's similarity with itself in the model with these parameters.

    The model has its own parameters again afterwards.
    """
    model = subject.classifier
    batch = subject.batch
    originals = {name: model.get_parameter(name).detach().clone() for name in parameters}
    try:
        with torch.no_grad():
            for name, values in parameters.items():
                model.get_parameter(name).copy_(values)
            outputs = model(batch)
        readout = model.readout(batch, outputs)
        changed = replace(subject, outputs=outputs, readout=readout, seconds={}, _results={})
        return {
            name: alike(sizes[name], values, batch.content)
            for name, values in _sizes(changed, sizes).items()
        }
    finally:
        with torch.no_grad():
            for name, values in originals.items():
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
    has_padding_row = isinstance(owner, nn.Embedding) and owner.padding_idx == PADDING
    movable = values[1:] if has_padding_row else values
    order = torch.randperm(movable.numel(), generator=generator).to(values.device)
    mixed = movable.reshape(-1)[order].reshape(movable.shape)
    return torch.cat([values[:1], mixed]) if has_padding_row else mixed


HALF = 0.5
"""An importance depends on what the model has learnt if less than half of its ranking is left in a
random model."""
ORDER = (
    "head",
    "decoder",
    "attention",
    "question_encoder",
    "question_embedding",
    "layer",
    "encoder",
    "embeddings",
    "embedding",
)
"""The parts from the output down, in the order in which `Model.stages` has them."""
KINDS = {
    "random_weights": "random weights",
    "shuffled_labels": "labels by a coin",
    "floor": "random order (floor)",
    "ceiling": "itself redrawn (ceiling)",
}


def depth(part: str) -> tuple[int, int]:
    """How deep a part lies, counted from the output; of numbered layers the last comes first.

    >>> sorted(["embedding", "layer_1", "layer_10", "head"], key=depth)
    ['head', 'layer_10', 'layer_1', 'embedding']
    """
    match = re.fullmatch(r"(.+?)(?:_(\d+))?", part)
    assert match is not None
    name, number = match.groups()
    place = ORDER.index(name) if name in ORDER else ORDER.index("encoder")
    return place, -int(number or 0)


def sanity_table(results: pd.DataFrame) -> pd.DataFrame:
    """What is left of every importance's ranking, by what was made random."""
    importances = importances_in(results, "sanity", "random_weights_similarity_")
    endings = importances_in(results, "sanity", "similarity_")
    part_names = {end.rpartition("_down_to_")[2] for end in endings if "_down_to_" in end}
    parts = sorted(sorted(part_names), key=depth)
    measured = metrics_there(results, "sanity")

    def lines(rows: pd.DataFrame) -> Iterator[dict[str, object]]:
        for name, facts in importances.items():
            similarity = rows[f"random_weights_similarity_{name}"]
            ceiling = rows[f"ceiling_similarity_{name}"]
            line: dict[str, object] = {
                "importance": facts.title,
                "n": texts_with(rows, similarity),
                "depends on the model": depends_on_model(
                    by_run(rows, similarity), by_run(rows, ceiling)
                ),
            }
            for part in parts:
                similarity_down = rows[f"similarity_{name}_down_to_{part}"]
                line[f"down to {part.replace('_', ' ')}"] = mean_over_texts(rows, similarity_down)
            for kind, heading in KINDS.items():
                metric = f"{kind}_similarity_{name}"
                if metric in measured:
                    scale = scale_of(results, "sanity", metric)
                    line |= mean_in_columns(heading, rows, rows[metric], scale)
            yield line

    metrics = []
    for name in importances:
        metrics += [f"{kind}_similarity_{name}" for kind in KINDS]
        metrics += [f"similarity_{name}_down_to_{part}" for part in parts]
    return facet_table(results, "sanity", metrics, lines)


def depends_on_model(
    similarity: Float[np.ndarray, "runs texts"], ceiling: Float[np.ndarray, "runs texts"]
) -> str:
    """Whether less than half of the ceiling is left in the random model, by the whole interval."""
    lost = ceiling * HALF - similarity
    mean, low, high = interval(lost)
    if np.nanmin(lost, initial=np.inf) == np.nanmax(lost, initial=-np.inf):
        low = high = mean  # the same in every text: no interval
    if low > 0:
        return "yes"
    return "no" if high < 0 else "not decided"


def lines_down(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """What is left of each importance's ranking as the model becomes random, from its output down.

    It begins at 1, the ranking itself. A panel per data set and model.
    """
    table = sanity_table(results)
    tables = list(table.groupby("data and model", sort=False))
    importances = importances_in(results, "sanity", "random_weights_similarity_").values()
    styles: dict[str, dict[str, Any]] = {
        facts.title: {"color": facts.colour, "marker": "osD^v<>"[number % 7], "ms": 3, "lw": 1}
        for number, facts in enumerate(importances)
    }
    figure, panels = grid(len(tables), panel_height=2.2, columns=2)
    for panel, (heading, rows) in zip(panels, tables, strict=True):
        _draw_lines(panel, rows, styles)
        title(panel, counted(str(heading), int(rows["n"].max())))
    handles = [Line2D([], [], label=name, **style) for name, style in styles.items()]
    around(
        figure, x="random from the output down to", y="what is left of the ranking", handles=handles
    )
    return figure


def _draw_lines(panel: Axes, rows: pd.DataFrame, styles: Mapping[str, Mapping[str, Any]]) -> None:
    """A line per importance, dashed where it is not shown to depend on the model."""
    columns = [str(name) for name in rows if rows[name].notna().any()]
    steps = [name for name in columns if name.startswith("down to ")]
    labels = ["trained", *(step.removeprefix("down to ") for step in steps)]
    lowest = -0.4
    for row in rows.to_dict("records"):
        # every model is asked with the same draws, so that a ranking by luck alone stays what it
        # is; equal scores rank nothing, and nothing can be left of them
        values = [1.0 if row["n"] else np.nan, *(row[step] for step in steps)]
        lowest = min(lowest, np.nanmin([0.0, *values]) - 0.05)
        line_style = "-" if row["depends on the model"] == "yes" else "--"
        panel.plot(range(len(values)), values, ls=line_style, **styles[row["importance"]])
    panel.axhline(0, lw=0.5, color=INK, zorder=0)
    panel.set_xticks(range(len(labels)), labels, rotation=35, ha="right")
    panel.set_ylim(lowest, 1.05)


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
            "1 − Spearman's correlation of the two rankings, mean of the texts and of the random "
            f"models that were drawn (the interval is over texts alone); more than {HALF} is asked "
            "for"
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
            "with 95 % bootstrap intervals. These are over texts and seeds, of the random models "
            "that were drawn: others may differ by more (probe.sanity.samples=… draws more of "
            "them). It depends on the model where, by the whole interval, less than half of its "
            "ceiling is left (Adebayo et al. 2018).",
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
