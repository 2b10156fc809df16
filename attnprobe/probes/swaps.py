"""Is attention on the words that decide? Sets of words change places with another text's.

The probe measures each text. What its numbers mean together, and when the answer is yes, is defined
in `attnprobe.evidence.deciding_words`; how words change places is in
`attnprobe.importance.word_swaps`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
import pandas as pd
import torch
from annotated_types import Ge
from jaxtyping import Float, Int
from torch import Tensor

from attnprobe.core.batch import Batch, Outputs
from attnprobe.core.errors import UserError
from attnprobe.core.metrics import COUNT, PROBABILITY_DIFFERENCE, SHARE, TVD, Metric, Scale
from attnprobe.core.randomness import Draws
from attnprobe.data.batching import TextSplit
from attnprobe.evidence import deciding_words
from attnprobe.evidence.deciding_words import PLACEMENT_METRICS, placement_of
from attnprobe.evidence.reading import Headline, Reading, Tabulation, facet_table
from attnprobe.exact.nulls import even
from attnprobe.importance.word_swaps import (
    Swapper,
    decisions_of,
    donors_of,
    effects_of_words,
    in_float32,
    order_by_weight,
    prefixes,
    rearranged,
)
from attnprobe.models.base import Unit
from attnprobe.probes.base import DESCRIPTION, Measurement, Note, Probe, Subject, positions

METRICS = (
    Metric(
        "swap_gain",
        PROBABILITY_DIFFERENCE,
        "how much more of the prediction stays with the words that attention ranks "
        "first than with the others; 0 in a random order",
        higher_is_better=True,
    ),
    Metric(
        "swap_scale",
        PROBABILITY_DIFFERENCE,
        "the same weights, on the words in the order of their effects",
    ),
    Metric(
        "swap_best",
        PROBABILITY_DIFFERENCE,
        "the words in the order of their effects, what speaks for the class first",
    ),
    Metric(
        "swap_bound",
        PROBABILITY_DIFFERENCE,
        "what all words together do: the prediction less its mean in other texts",
    ),
    Metric(
        "word_effect",
        Scale("probability"),
        "a word's part in what stays: least squares over random sets",
        step="position",
    ),
    Metric("swap_passes", COUNT, "passes that a text may take"),
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


@dataclass(frozen=True)
class DonorDraw:
    """The donor of each pair of changed texts, by what the pair measures.

    A donor is given as its row in the batch of donors.

    Attributes:
        attended: for the sets that are drawn by attention (`swap_gain`).
        random: for the random sets (`word_effect`).
        everything: for the exchange of all words (`swap_bound`).
        scale: for the same weights on the words with the largest effects (`swap_scale`).
        best: for the words in the order of their effects (`swap_best`).
    """

    attended: Int[Tensor, "pairs"]
    random: Int[Tensor, "random_sets"]
    everything: Int[Tensor, "pairs"]
    scale: Int[Tensor, "pairs"]
    best: Int[Tensor, "pairs"]


@dataclass(frozen=True)
class SwapResult:
    """What the swaps of one text say.

    Attributes:
        numbers: metric → its number.
        word_effects: each word's part in the gains, as a probability of the decision.
    """

    numbers: Mapping[str, float]
    word_effects: Float[Tensor, "words"]


@dataclass
class Swaps(Probe):
    """How much of the prediction stays with the words that attention ranks first?

    A *set* of words stays in the text, and all other words come from a donor: a text of the same
    length (or nearly) that the model decides differently, whatever its label. In a second text it
    is the other way round: the set comes from the donor, and all other words stay. The *gain* of
    the set is the difference of the predicted class's probability between these two texts.

    - `swap_gain`: sets of 1 to all but one words, drawn by their attention; mean over the pairs.
    - `word_effect`: each word's part in the gains of random sets.
    - `swap_scale`: as `swap_gain`, for the same weights on the words with the largest effects.
    - `swap_best`: sets of the words with the largest effects.
    - `swap_bound`: all words come from the donor.

    The scale and the best order are measured on pairs of their own, so that the noise of the
    effects does not flatter them. The attention reacts to the words that change, as it does in use.

    Attributes:
        passes: changed texts per text, whatever its length. Of 25, 2 measure the gain, 2 the scale,
            2 the best order, 18 nine random sets, and 1 has all its words exchanged.
        reach: measure `swap_best` too, of which *reach* is the share that attention gains.
        texts: texts that are examined at most, evenly over the split; the others have no number
            (NaN).
    """

    name = "swaps"
    metrics = METRICS
    one_decision = True
    passes: Annotated[int, Ge(100)] = deciding_words.RECORD_PASSES
    reach: bool = True
    texts: Annotated[int, Ge(20)] = 400

    _split: TextSplit | None = field(default=None, init=False, repr=False)
    _decisions: Int[np.ndarray, " rows"] | None = field(default=None, init=False, repr=False)

    def prepare(self, splits: Mapping[str, TextSplit]) -> None:
        """Keep the test split, whose texts lend each other words."""
        self._split = splits["test"]
        self._decisions = None

    @property
    def pairs(self) -> int:
        """Pairs of changed texts for the gain, and as many for each of the other means."""
        return self.passes // 25

    @property
    def random_sets(self) -> int:
        """Random sets of words, a pair of changed texts each."""
        return 9 * self.passes // 25

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield one number per text and metric, and an effect for each word."""
        if subject.classifier.unit is not Unit.WORD:
            return
        if self._split is None:
            raise UserError(
                "probe swaps takes words from other texts, which only a run has: leave it out here"
            )
        content = subject.batch.content
        readout = subject.readout
        model = in_float32(subject.classifier)
        if self._decisions is None:
            self._decisions = decisions_of(model, self._split, content.device)

        prediction = readout.prediction()
        results: dict[int, SwapResult] = {}
        for row in range(len(content)):
            result = self._measure_text(subject, row, prediction[row], model, draws)
            if result is not None:
                results[row] = result

        metrics = ["swap_gain", "swap_scale", "swap_bound", "top_word_effect", "swap_passes"]
        if self.reach:
            metrics.append("swap_best")
        for metric in metrics:
            column = torch.full(content.shape[:1], torch.nan, dtype=torch.float64)
            for row, result in results.items():
                column[row] = result.numbers[metric]
            yield Measurement(metric, column)

        word_effects = torch.full(content.shape, torch.nan, dtype=torch.float64)
        for row, result in results.items():
            word_effects[row, content[row].cpu()] = result.word_effects
        yield Measurement("word_effect", word_effects, positions(content).cpu())

        under_equal_weights = readout.predict(even(content).to(readout.attention.dtype))
        distance = (under_equal_weights - prediction).abs().sum(-1) / 2
        yield Measurement("equal_weights_distance", distance)

    def _measure_text(
        self,
        subject: Subject,
        row: int,
        prediction: Float[Tensor, "classes"],
        model: Callable[[Batch], Outputs],
        draws: Draws,
    ) -> SwapResult | None:
        """The numbers of one text; None where it is not examined, or no other text lends words."""
        batch = subject.batch
        content = batch.content[row]
        example_id = int(batch.example_id[row])
        donor_rows = self._donor_rows(example_id, words=int(content.sum()))
        if len(donor_rows) == 0:
            return None

        generator = draws.generator(example_id)
        donors, donor_draw = self._draw_donors(donor_rows, generator, content.device)

        # up to the last token that is not padding: there the count of tokens is at its largest
        width = int(batch.mask[row].long().cumsum(-1).argmax()) + 1
        decision = int(prediction.argmax())
        reader = getattr(subject.classifier, "reader", None)  # pretrained models have one
        swapper = Swapper(
            run=model,
            task=subject.classifier.task,
            text=batch.rows(slice(row, row + 1)).cut(width),
            donors=donors,
            decision=decision,
            longest=None if reader is None else reader.longest,
        )
        return self._swap_words(
            swapper,
            donor_draw,
            weights=subject.readout.attention[row][content].cpu().double(),
            probability=float(prediction[decision]),
            generator=generator,
        )

    def _donor_rows(self, example_id: int, words: int) -> Int[np.ndarray, " donors"]:
        """The rows, in the split, of the texts that can lend words to this one.

        Empty where this text is not examined.
        """
        assert self._split is not None
        assert self._decisions is not None
        row = self._split.row_of(example_id)
        # the first text of each of `texts` equal parts of the split
        is_sampled = row * self.texts % len(self._split) < self.texts
        if not is_sampled or words < 2:
            return np.zeros(0, np.int64)
        return donors_of(row, self._split.words.lengths, self._decisions)

    def _draw_donors(
        self, rows: Int[np.ndarray, " donors"], generator: torch.Generator, device: torch.device
    ) -> tuple[Batch, DonorDraw]:
        """Draw a donor for every pair of changed texts, with replacement.

        Args:
            rows: texts that can lend words, by their rows in the split.
            generator: of the text that borrows words.
            device: where the changed texts are run.

        Returns:
            The texts that were drawn, each once, and which of them each pair takes words from.
        """
        assert self._split is not None
        count = 4 * self.pairs + self.random_sets
        draw = torch.randint(len(rows), (count,), generator=generator)
        distinct, donor_of_pair = draw.unique(return_inverse=True)
        donors = self._split[rows[distinct.numpy()].tolist()].to(device)
        attended, random, everything, scale, best = donor_of_pair.to(device).split(
            [self.pairs, self.random_sets, self.pairs, self.pairs, self.pairs]
        )
        donor_draw = DonorDraw(
            attended=attended,
            random=random,
            everything=everything,
            scale=scale,
            best=best,
        )
        return donors, donor_draw

    def _swap_words(
        self,
        swapper: Swapper,
        donor_draw: DonorDraw,
        weights: Float[Tensor, "words"],
        probability: float,
        generator: torch.Generator,
    ) -> SwapResult:
        """Swap sets of words, and compare how much of the prediction each set keeps.

        Args:
            swapper: the text and its donors.
            donor_draw: which donor lends words to each pair of changed texts.
            weights: attention of each word.
            probability: probability of the decision in the unchanged text.
            generator: the random numbers of this text.
        """
        device = donor_draw.attended.device

        # sets drawn by attention, and random sets from which each word's effect is estimated
        attended = prefixes(order_by_weight(weights, self.pairs, generator), generator)
        random_order = torch.rand(
            self.random_sets, len(weights), generator=generator, dtype=torch.float64
        )
        random_sets = prefixes(random_order, generator).to(device)
        gains = swapper.differences(
            torch.cat([attended.to(device), random_sets]),
            torch.cat([donor_draw.attended, donor_draw.random]),
        )
        gain, random_gains = gains.split([self.pairs, self.random_sets])
        effects = effects_of_words(random_sets, random_gains).cpu()

        scale, best = self._yardsticks(swapper, donor_draw, weights, effects, generator)

        # all words exchanged
        everything = torch.ones(self.pairs, len(weights), dtype=torch.bool, device=device)
        bound = probability - float(swapper.probability(everything, donor_draw.everything).mean())

        numbers = {
            "swap_gain": float(gain.mean()),
            "swap_scale": scale,
            "swap_best": best,
            "swap_bound": bound,
            "top_word_effect": share_of_top_words(weights, effects.abs()),
            "swap_passes": float(self.passes),
        }
        return SwapResult(numbers, effects)

    def _yardsticks(
        self,
        swapper: Swapper,
        donor_draw: DonorDraw,
        weights: Float[Tensor, "words"],
        effects: Float[Tensor, "words"],
        generator: torch.Generator,
    ) -> tuple[float, float]:
        """What could have been gained at best.

        Args:
            swapper: as for `_swap_words`.
            donor_draw: likewise.
            weights: likewise.
            effects: what each word does, as estimated from the random sets.
            generator: as for `_swap_words`.

        Returns:
            The gain of the same weights on the words with the largest effects, and that of the
            words in the order of their effects (NaN without `reach`).
        """
        ideal_weights = rearranged(weights, effects.abs())
        scale_sets = prefixes(order_by_weight(ideal_weights, self.pairs, generator), generator)
        best_sets = scale_sets[:0]  # no set, whose mean gain is NaN
        if self.reach:
            best_sets = prefixes(effects.expand(self.pairs, -1), generator)

        gains = swapper.differences(
            torch.cat([scale_sets, best_sets]).to(donor_draw.scale.device),
            torch.cat([donor_draw.scale, donor_draw.best[: len(best_sets)]]),
        )
        scale, best = gains.split([len(scale_sets), len(best_sets)])
        return float(scale.mean()), float(best.mean())


def share_of_top_words(weights: Float[Tensor, "words"], strength: Float[Tensor, "words"]) -> float:
    """Whether the word with the most weight has the largest effect: 1 or 0.

    Where several words share the most weight: the share of them that have the largest effect.
    """
    top = weights >= weights.max() * (1 - 1e-9)
    strongest = strength == strength.max()
    return float((top & strongest).sum() / top.sum())


def placement_by_class(results: pd.DataFrame) -> pd.DataFrame:
    """Placement among the texts of each predicted class, as a table for a paper."""

    def lines(rows: pd.DataFrame) -> Iterator[dict[str, object]]:
        for predicted_class, texts in rows.groupby("predicted_class"):
            gain, scale, bound = (texts[name].to_numpy()[None] for name in PLACEMENT_METRICS)
            placement = placement_of(gain, scale, bound)
            line: dict[str, object] = {
                "predicted class": predicted_class,
                "texts": len(texts),
                "with something to point at": placement.n,
                "placement": placement.value,
                "placement, low": placement.low,
                "placement, high": placement.high,
            }
            if placement.unasked:
                line["placement"] = np.nan
                line["placement, low"] = np.nan
                line["placement, high"] = np.nan
            yield line

    return facet_table(results, "swaps", [*PLACEMENT_METRICS, "predicted_class"], lines)


READING = Reading(
    probe="swaps",
    order=4,
    title="Swapping: is the attention on the words that decide?",
    about=(
        "Words of a text change places with those of another text that the model decides "
        "differently. The words that attention ranks first stay, and all others are the other "
        "text's; or the other way round. In an order by chance neither keeps more of the "
        "prediction. Placement says where the weight lies: what more stays with the attended "
        "words, as a share of what the same weights would keep on the words that matter most. "
        "Which these are, other random sets tell. Reach says how much of the weight: the same as a "
        "share of the best order's. Placement 1 with reach 0.3 is in the right places and nearly "
        "even. The mixed texts have real words in their places and not always grammar. The "
        "attention reacts to them as it does in use. A single text's number is noisy: the other "
        "text's words speak too."
    ),
    claims=deciding_words.CLAIMS,
    headlines=(
        Headline("swap_gain", "gain of the attended words over the others"),
        Headline("swap_scale", "  the same weights at their best"),
        Headline("swap_best", "  the best order"),
        Headline("swap_bound", "what all words together do"),
        Headline("top_word_effect", "the most attended word has the largest effect"),
        Headline("equal_weights_distance", "TVD under equal weights"),
    ),
    tables=(
        Tabulation(
            "swaps",
            "Placement (0: order by chance, 1: the same weights on the words that matter most) by "
            "predicted class, with 95 % intervals over the texts that have something to point at; "
            "empty where there is nothing to point at.",
            placement_by_class,
            (*PLACEMENT_METRICS, "predicted_class"),
        ),
    ),
)
