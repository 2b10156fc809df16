"""Is attention on the words that decide? Sets of words are kept, and all others become filler.

The probe measures each text. What its numbers mean together, and when the answer is yes, is defined
in `attnprobe.evidence.deciding_words`; how words become filler, and what each word does, is in
`attnprobe.importance.word_swaps`.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
import pandas as pd
import torch
from annotated_types import Ge
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from attnprobe.core.batch import Batch, Outputs
from attnprobe.core.clock import CLOCK
from attnprobe.core.errors import UserError
from attnprobe.core.metrics import COUNT, SHARE, TVD, Metric, Scale
from attnprobe.core.randomness import Draws
from attnprobe.data.batching import TextSplit, short_enough
from attnprobe.evidence import deciding_words
from attnprobe.evidence.deciding_words import (
    LEAST_RELIABILITY,
    LEAST_STRENGTH,
    PASSES_METRIC,
    ROUNDED_METRIC,
    SHARE_METRICS,
    Questions,
    ShareOfClass,
    mean_reliability,
    reference_strength,
)
from attnprobe.exact.nulls import even
from attnprobe.importance.word_swaps import (
    POSITIONS_AT_ONCE,
    Filler,
    KeptWords,
    Precision,
    Swapper,
    WordEffects,
    in_float32,
)
from attnprobe.models.base import Unit
from attnprobe.probes.base import DESCRIPTION, Measurement, Note, RankingProbe, Subject, positions
from attnprobe.readings.means import facet_table
from attnprobe.readings.reading import Headline, Reading, Tabulation
from attnprobe.results.pivot import CLASSES, class_of, metrics_of_classes

BEYOND_CHANCE = Scale("share beyond chance", -2, 2)
ROOM = Scale("share", 0, 2)
AGREEMENT = Scale("share", -1, 1)
STRENGTH = Scale("squared change of the probabilities, halved")
SEVERAL_CLASSES = "three classes or more; of two the numbers are those of both"
METRICS = (
    Metric(
        "swap_excess",
        BEYOND_CHANCE,
        "the weight on words that move the prediction, less what even weights have there",
        higher_is_better=True,
    ),
    Metric("swap_room", ROOM, "the same for all weight on one word that moves the prediction"),
    Metric("swap_strength", STRENGTH, "what the word does that moves the prediction most"),
    Metric(
        "swap_reliability",
        AGREEMENT,
        "how far two halves of the passes agree on what that word does",
    ),
    Metric("own_excess", BEYOND_CHANCE, "as swap_excess, in texts that keep most words"),
    Metric("own_room", ROOM, "as swap_room, in texts that keep most words"),
    Metric("own_strength", STRENGTH, "as swap_strength, in texts that keep most words"),
    Metric(
        "output_excess_{class}",
        BEYOND_CHANCE,
        "as swap_excess, for words that move the probability of this class, predicted or not",
        higher_is_better=True,
        only=SEVERAL_CLASSES,
    ),
    Metric("output_room_{class}", ROOM, "as swap_room, likewise", only=SEVERAL_CLASSES),
    Metric("output_strength_{class}", STRENGTH, "as swap_strength, likewise", only=SEVERAL_CLASSES),
    Metric(
        "swap_excess_{importance}",
        BEYOND_CHANCE,
        "as swap_excess, for the sizes of the importance's scores",
        higher_is_better=True,
        only="`importances` names some",
    ),
    Metric(
        "word_share",
        AGREEMENT,
        "how far a word is one that moves the prediction; 1 from a third of the strongest effect",
        step="position",
    ),
    Metric(PASSES_METRIC, COUNT, "passes that the text took"),
    Metric(
        ROUNDED_METRIC,
        COUNT,
        "1: the passes multiplied matrices in bfloat16",
        only="`products` is bfloat16",
    ),
    Metric(
        "top_word_effect",
        SHARE,
        "whether the most attended word is the one with the largest effect (of several that are "
        "level, the share)",
        higher_is_better=True,
    ),
    Metric(
        "equal_weights_distance",
        TVD,
        "between the predictions under the model's own attention and under equal weights",
    ),
    *DESCRIPTION,
)
PASSES_OF_PAIR = 2
MOST_TEXTS_OF_FILLER = 1000
"""Texts whose words are the filler at most, evenly over the split."""
PILOT_TEXTS = 20
"""Texts by which the number of passes is chosen."""
SHARP = 3.0
"""Lead of the predicted class over the second one, in logits, to which a run's texts are scaled in
the median, whatever the temperature of the model. Of two classes it is a prediction of 0.95."""
LEAST_LEAD = 1e-4
"""Median lead below which logits count as equal: rounding may have made the difference."""


@dataclass(frozen=True)
class Plan:
    """What is the same for all texts of a run.

    Attributes:
        filler: what words are replaced by.
        sharpness: what the logits are multiplied by.
        passes: how many passes each text takes.
        measured: what the first look, which chose `passes`, measured of its few texts; by their
            rows in the split.
    """

    filler: Filler
    sharpness: float
    passes: int = 0
    measured: Mapping[int, KeptWords] = field(default_factory=dict)


@dataclass
class Swaps(RankingProbe):
    """What share of the weight, beyond chance, is on words that move the prediction?

    A random *set* of words stays in the text, and all other words become filler: words drawn from
    all texts, whatever their place and label. In a second text it is the other way round. From many
    such pairs follows what each word does to the probabilities of all classes, without a look at
    the attention. A word *moves the prediction* fully from a third of the strongest word's effect
    on, and below that in proportion to its square.

    - `swap_excess`: Σ weight × share of the words, less the mean share: 0 for even weights. The
      mean is over the words that attention may be given to: one that no row sees is no chance.
    - `swap_room`: 1 − the mean share: the most that the excess can be.
    - `swap_strength`: the squared effect of the strongest word, by which texts are weighted; near 0
      where nothing in the text moves the prediction.

    The passes are of the text, so that every attention, attribution and null has its number from
    the same ones. There are more where the effects are too noisy, which a first look at a few texts
    says: it sees texts and model, never the attention.

    Attributes:
        passes: changed texts per text to begin with.
        most_passes: doubled until effects are reliable, the passes end here.
        texts: texts that are examined at most, evenly over the split; the others have no number
            (NaN).
        products: what the model multiplies matrices in. In bfloat16 it is faster on processors and
            graphics cards that have it; a verdict then cites no track record, which is of float32
            but for MiniLM's part.
        importances: whose scores get the same number as attention.
    """

    name = "swaps"
    metrics = METRICS
    one_decision = True
    published = ()
    passes: Annotated[int, Ge(100)] = deciding_words.RECORD_PASSES[0]
    most_passes: Annotated[int, Ge(100)] = deciding_words.RECORD_PASSES[-1]
    texts: Annotated[int, Ge(20)] = 400
    products: Precision = "float32"

    _split: TextSplit | None = field(default=None, init=False, repr=False)
    _is_examined: np.ndarray | None = field(default=None, init=False, repr=False, compare=False)
    _plan: Plan | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.most_passes < self.passes:
            raise UserError(
                f"most_passes={self.most_passes}: expected at least passes={self.passes}"
            )

    def prepare(self, splits: Mapping[str, TextSplit]) -> None:
        """Keep the test split, whose words are the filler, and choose the texts."""
        self._split = splits["test"]
        self._is_examined = self._examined_rows(self._split)
        self._plan = None

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield one number per text and metric, and for each word how far it decides."""
        model = subject.classifier
        if model.unit is Unit.WORD or model.gathers_words:
            yield from self._numbers(subject, self.sets_of_words(subject, draws))

    def sets_of_words(self, subject: Subject, draws: Draws) -> dict[int, KeptWords]:
        """Keep sets of words of each examined text, and ask the model.

        The first batch chooses how many passes all texts take, without a look at attention.

        Args:
            subject: a model that attends to words, and a batch of the test split.
            draws: of the probe.

        Returns:
            The sets by the row in the batch; the other texts are not examined.

        Raises:
            UserError: the texts are not of a run, so that there are no others.
        """
        if self._split is None or self._is_examined is None:
            raise UserError(
                "probe swaps takes words from other texts, which only a run has: leave it out here"
            )
        examiner = Examiner.of(subject, draws, self.products)
        if self._plan is None:
            rows = np.flatnonzero(self._is_examined).tolist()
            self._plan = self._planned(examiner, self._split, rows)

        batch = subject.batch
        sets: dict[int, KeptWords] = {}
        ids = batch.example_id.tolist()
        for row, example_id in enumerate(CLOCK.track(ids, "", "of this batch")):
            split_row = self._split.row_of(example_id)
            if not self._is_examined[split_row]:
                continue
            if split_row in self._plan.measured:
                sets[row] = self._plan.measured[split_row]
            else:
                text = batch.rows(slice(row, row + 1))
                sets[row] = examiner.kept_words(text, self._plan, self._plan.passes)
        return sets

    def _examined_rows(self, split: TextSplit) -> Bool[np.ndarray, " rows"]:
        """Whether each row of a split is examined.

        Texts are chosen evenly over the split, each with all its rows (where rows ask for labels, a
        text has one per label): as many as have `texts` rows. A text of one word is left out.
        """
        text = np.arange(len(split)) if split.text_number is None else split.text_number
        text_count = int(text.max(initial=0)) + 1
        sample_count = math.ceil(self.texts * text_count / max(1, len(split)))
        # the first text of each of `sample_count` equal parts
        is_sampled = text * sample_count % text_count < sample_count
        return is_sampled & (split.words.lengths > 1)

    def _planned(self, examiner: "Examiner", split: TextSplit, rows: list[int]) -> Plan:
        """Look at a few texts, and double the passes until their effects are reliable.

        The look is at texts and model, never at the attention.

        Args:
            examiner: of the model.
            split: whose words are the filler.
            rows: those that are examined.
        """
        step = math.ceil(len(split) / MOST_TEXTS_OF_FILLER)
        texts = (split[[row]] for row in range(0, len(split), step))
        filler = Filler.of(texts, examiner.device)
        plan = Plan(filler, examiner.sharpness(split, rows))
        pilot = rows[:: max(1, len(rows) // PILOT_TEXTS)]

        def first_look(passes: int) -> dict[int, KeptWords]:
            return {
                row: examiner.kept_words(split[[row]].to(examiner.device), plan, passes)
                for row in CLOCK.track(pilot, "first look", "texts")
            }

        passes = self.passes
        measured = first_look(passes)
        while 2 * passes <= self.most_passes and not are_reliable(measured.values()):
            passes *= 2
            measured = first_look(passes)
        return replace(plan, passes=passes, measured=measured)

    def _numbers(
        self, subject: Subject, sets: Mapping[int, KeptWords]
    ) -> Iterator[Measurement | Note]:
        """What the sets of each text say of the attention, and of the importances.

        Args:
            subject: the batch.
            sets: by the row in the batch; the other texts are not examined.
        """
        seen = subject.readout.content
        # attention has a choice only where it sees two words or more
        sets = {row: kept for row, kept in sets.items() if int(seen[row].sum()) > 1}
        effects = {row: kept.effects() for row, kept in sets.items()}
        own_effects = {row: kept.effects_in_own_context() for row, kept in sets.items()}
        yield from self._what_words_do(subject, effects)
        yield from self._excess_over_chance(subject, effects, own_effects)
        yield from self.notes(subject)

        passes = {row: float(PASSES_OF_PAIR * len(kept.kept)) for row, kept in sets.items()}
        yield _column(PASSES_METRIC, seen, passes)
        if self.products == "bfloat16":
            yield _column(ROUNDED_METRIC, seen, dict.fromkeys(sets, 1.0))

        prediction = subject.readout.prediction()
        equal_weights = even(seen).to(subject.readout.attention.dtype)
        under_equal_weights = subject.readout.predict(equal_weights)
        distance = (under_equal_weights - prediction).abs().sum(-1) / 2
        yield Measurement("equal_weights_distance", distance)

    def _what_words_do(
        self, subject: Subject, effects: Mapping[int, WordEffects]
    ) -> Iterator[Measurement]:
        """What the words of each text do, and whether the most attended one does most."""
        content = positions_of_text(subject)
        yield Measurement("word_share", _shares(effects, content), positions(content).cpu())
        reliability = {row: effect.reliability for row, effect in effects.items()}
        yield _column("swap_reliability", content, reliability)
        attention = subject.readout.attention
        top = {
            row: share_of_top_words(attention[row, content[row]].cpu(), effect.squared)
            for row, effect in effects.items()
        }
        yield _column("top_word_effect", content, top)

    def _excess_over_chance(
        self,
        subject: Subject,
        effects: Mapping[int, WordEffects],
        own_effects: Mapping[int, WordEffects],
    ) -> Iterator[Measurement]:
        """The numbers that the share of the weight on deciding words is made of."""
        content = positions_of_text(subject)
        seen = subject.readout.content
        attention = subject.readout.attention
        # a word that no row sees is no chance of attention's: it has no share
        shares = _shares(effects, content).masked_fill(~seen.cpu(), torch.nan)
        own_shares = _shares(own_effects, content).masked_fill(~seen.cpu(), torch.nan)
        yield from _parts_of_share("swap", effects, shares, attention)
        yield from _parts_of_share("own", own_effects, own_shares, attention)
        yield from _of_every_class(effects, content, seen, attention)
        for name, scores in self.scores(subject).items():
            excess = _excess(shares, as_weights(scores, seen))
            yield Measurement(f"swap_excess_{self.label(name)}", excess)


@dataclass(frozen=True)
class Examiner:
    """What examines the texts of a run: the model, and its random numbers.

    Attributes:
        run: the model, in float32.
        longest: pieces that the model reads at most; None: it reads no pieces, or any number.
        position_of: `Model.position_of` of the model.
        device: where the model is.
        draws: of the probe.
    """

    run: Callable[[Batch], Outputs]
    longest: int | None
    position_of: Callable[[Batch], Int[Tensor, "batch tokens"]]
    device: torch.device
    draws: Draws

    @classmethod
    def of(cls, subject: Subject, draws: Draws, products: Precision = "float32") -> "Examiner":
        """The examiner of the subject's model, which multiplies matrices in that precision."""
        reader = getattr(subject.classifier, "reader", None)  # pretrained models have one
        return cls(
            run=in_float32(subject.classifier, products=products),
            longest=None if reader is None else reader.longest,
            position_of=subject.classifier.position_of,
            device=subject.batch.content.device,
            draws=draws,
        )

    def sharpness(self, split: TextSplit, rows: Sequence[int]) -> float:
        """What the logits are multiplied by, so that their median lead is `SHARP`.

        A model of another temperature then gives the same outcomes.

        Args:
            split: the texts.
            rows: those that are examined.
        """
        leads = []
        for part in short_enough(split.words.lengths[rows], most=POSITIONS_AT_ONCE):
            batch = split[[rows[place] for place in part]].to(self.device)
            with torch.no_grad():
                first_two = self.run(batch).logits.double().topk(2).values
            leads += (first_two[:, 0] - first_two[:, 1]).tolist()
        return SHARP / max(float(np.median(leads)), LEAST_LEAD)

    def kept_words(self, text: Batch, plan: Plan, passes: int) -> KeptWords:
        """Keep sets of a text's words, and ask the model.

        Args:
            text: a batch of one text.
            plan: of the run.
            passes: how many.
        """
        # up to the last token: there the running count of tokens first reaches its maximum
        width = int(text.mask[0].long().cumsum(-1).argmax()) + 1
        text = text.cut(width)
        position = self.position_of(text)
        swapper = Swapper(self.run, text, plan.filler, self.longest, position)
        generator = self.draws.generator(int(text.example_id))
        return swapper.pairs(passes // PASSES_OF_PAIR, plan.sharpness, generator)


def are_reliable(sets: Iterable[KeptWords]) -> bool:
    """Whether more passes would add little to what is known of these texts.

    That holds as well where no word moves the prediction: no number of passes finds one.
    """
    effects = [kept.effects() for kept in sets]
    strength = np.array([[effect.strength for effect in effects]])
    reliability = np.array([[effect.reliability for effect in effects]])
    if reference_strength(strength)[0] < LEAST_STRENGTH:
        return True
    return mean_reliability(reliability, strength) >= LEAST_RELIABILITY


def positions_of_text(subject: Subject) -> Bool[Tensor, "batch seq"]:
    """The words of each text, seen by the attention or not; or its sentences."""
    if subject.classifier.unit is Unit.WORD:
        return subject.batch.content
    return subject.readout.content


def as_weights(
    scores: Float[Tensor, "batch seq"], content: Bool[Tensor, "batch seq"]
) -> Float[Tensor, "batch seq"]:
    """The sizes of scores as weights that sum to 1; even ones where all are 0 or undefined."""
    sizes = scores.abs().double().nan_to_num().masked_fill(~content, 0)
    total = sizes.sum(-1, keepdim=True)
    return torch.where(total > 0, sizes / total.clamp(min=1e-300), even(content).double())


def _shares(
    effects: Mapping[int, WordEffects], content: Bool[Tensor, "batch seq"]
) -> Float[Tensor, "batch seq"]:
    """How far each word is one that decides, by its place; NaN where there is no number."""
    shares = torch.full(content.shape, torch.nan, dtype=torch.float64)
    for row, effect in effects.items():
        shares[row, content[row].cpu()] = effect.shares
    return shares


def _excess(
    shares: Float[Tensor, "batch seq"], weights: Float[Tensor, "batch seq"]
) -> Float[Tensor, "batch"]:
    """The weight on words that move the prediction beyond that of even weights.

    Args:
        shares: of the words that may have weight; NaN elsewhere.
        weights: which sum to 1 over these words.

    Returns:
        NaN for a text without any number.
    """
    on_words = (weights.cpu().double() * shares).nansum(-1)
    return on_words - shares.nanmean(-1)


def _of_every_class(
    effects: Mapping[int, WordEffects],
    content: Bool[Tensor, "batch seq"],
    seen: Bool[Tensor, "batch seq"],
    attention: Float[Tensor, "batch seq"],
) -> Iterator[Measurement]:
    """The numbers of the share, for the words that move each class; nothing of two classes."""
    classes = max((effect.first.shape[-1] for effect in effects.values()), default=0)
    if classes <= 2:
        return
    for number in range(classes):
        of_class = {row: effect.of_class(number) for row, effect in effects.items()}
        shares = _shares(of_class, content).masked_fill(~seen.cpu(), torch.nan)
        yield from _parts_of_share("output", of_class, shares, attention, f"_class_{number}")


def _parts_of_share(
    name: str,
    effects: Mapping[int, WordEffects],
    shares: Float[Tensor, "batch seq"],
    attention: Float[Tensor, "batch seq"],
    suffix: str = "",
) -> Iterator[Measurement]:
    """Excess, room and strength of every text, the three numbers that its share is made of."""
    yield Measurement(f"{name}_excess{suffix}", _excess(shares, attention))
    yield Measurement(f"{name}_room{suffix}", 1 - shares.nanmean(-1))
    strength = {row: effect.strength for row, effect in effects.items()}
    yield _column(f"{name}_strength{suffix}", shares, strength)


def _column(
    metric: str, batch: Shaped[Tensor, "batch seq"], numbers: Mapping[int, float]
) -> Measurement:
    """A metric with one number per row of the batch; NaN for rows that have none."""
    column = torch.full(batch.shape[:1], torch.nan, dtype=torch.float64)
    for row, number in numbers.items():
        column[row] = number
    return Measurement(metric, column)


def share_of_top_words(weights: Float[Tensor, "words"], strength: Float[Tensor, "words"]) -> float:
    """Whether the word with the most weight has the largest effect: 1 or 0.

    Where several words share the most weight: the share of them that have the largest effect.
    """
    top = weights >= weights.max() * (1 - 1e-9)
    strongest = strength == strength.max()
    return float((top & strongest).sum() / top.sum())


def share_by_class(results: pd.DataFrame) -> pd.DataFrame:
    """The share of the weight on deciding words by predicted class, as a table for a paper."""

    def lines(rows: pd.DataFrame) -> Iterator[dict[str, object]]:
        # several seeds are no further texts
        questions = Questions.of(rows, (*SHARE_METRICS, "predicted_class"))
        for part in deciding_words.shares_of_classes(
            *questions.columns, clusters=questions.clusters
        ):
            yield {"predicted class": part.predicted_class} | _cells(part)

    return facet_table(results, "swaps", [*SHARE_METRICS, "predicted_class"], lines)


def share_by_label(results: pd.DataFrame) -> pd.DataFrame:
    """The same by label, where rows ask for labels; else a table without rows."""

    def lines(rows: pd.DataFrame) -> Iterator[dict[str, object]]:
        questions = Questions.of(rows, SHARE_METRICS)
        if questions.clusters.label is None:
            return
        labels = deciding_words.shares_of_labels(*questions.columns, clusters=questions.clusters)
        for label in labels:
            yield {"label": label.label} | _cells(label.part)

    return facet_table(results, "swaps", SHARE_METRICS, lines)


def share_by_output(results: pd.DataFrame) -> pd.DataFrame:
    """The same of every class, predicted or not, where there are three or more."""
    classes = deciding_words.output_classes(results)
    metrics = metrics_of_classes(deciding_words.OUTPUT_METRICS, classes)
    names = results.attrs.get(CLASSES, [])

    def lines(rows: pd.DataFrame) -> Iterator[dict[str, object]]:
        outputs = deciding_words.questions_of_outputs(rows, classes)
        for part in deciding_words.shares_of_classes(*outputs.columns, clusters=outputs.clusters):
            name = class_of(f"class_{part.predicted_class}", names)
            yield {"class": name} | _cells(part)

    return facet_table(results, "swaps", metrics, lines)


def _cells(part: ShareOfClass) -> dict[str, object]:
    """The cells of a line of either table."""
    return {
        "texts": part.texts,
        "decided by words of their own": part.decided,
        "share": part.share.value,
        "share, low": part.share.low,
        "share, high": part.share.high,
        "answer": part.answer,
    }


READING = Reading(
    probe="swaps",
    order=4,
    title="Swapping: is the attention on the words that decide?",
    about=(
        "Random sets of a text's words are kept, and all other words become filler, words drawn "
        "from all texts; then the other way round. From many such pairs follows what each word "
        "does to the probabilities, whatever attention says. A word moves the prediction fully "
        "from a third of the strongest word's effect on. The share is of the weight beyond "
        "chance: 0 for even weights, and for any order by chance; 1 where all weight is on words "
        "that move the prediction. A text counts by how much its strongest word does, so that one "
        "whose class is known by what it lacks hardly counts. The mixed texts are no grammatical "
        "ones. The attention reacts to them as it does in use. With model.unit=sentence, sentences "
        "stand for words: all words of a sentence are kept, or none is."
    ),
    claims=deciding_words.CLAIMS,
    headlines=(
        Headline("swap_excess", "weight beyond chance on words that move the prediction, per text"),
        Headline("swap_strength", "squared effect of a text's strongest word, halved"),
        Headline("swap_reliability", "agreement of two halves of the passes on it"),
        Headline("top_word_effect", "the most attended word has the largest effect"),
        Headline("equal_weights_distance", "TVD under equal weights"),
        Headline(PASSES_METRIC, "passes of a text"),
    ),
    tables=(
        Tabulation(
            "swaps",
            "Share of the weight beyond chance that is on words that move the prediction, by "
            "predicted class, with 95 % intervals over texts; decided by words of their own: how "
            "many texts' worth of evidence is in words.",
            share_by_class,
            (*SHARE_METRICS, "predicted_class"),
        ),
        Tabulation(
            "swaps_labels",
            "The same by the label that is asked for, whether the answer is no or yes.",
            share_by_label,
            SHARE_METRICS,
        ),
        Tabulation(
            "swaps_outputs",
            "The same for every class, by the words that move its own probability, in all texts, "
            "whatever class is predicted.",
            share_by_output,
            deciding_words.EVERY_OUTPUT,
        ),
    ),
)
