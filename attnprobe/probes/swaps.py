"""Is attention on the words that decide? Sets of words change places with another text's."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
import pandas as pd
import torch
from annotated_types import Ge
from jaxtyping import Float

from attnprobe.core.errors import UserError
from attnprobe.core.metrics import COUNT, PROBABILITY_DIFFERENCE, SHARE, TVD, Metric, Scale
from attnprobe.core.randomness import Draws
from attnprobe.data.batching import TextSplit, short_enough
from attnprobe.evidence.claims import Claim
from attnprobe.evidence.evidence import Evidence, Measure, by_run, mean_of, share_of, values_of
from attnprobe.evidence.reading import Headline, Reading, Tabulation, facet_table
from attnprobe.evidence.statistics import bernstein, pseudovalues, ratio_of
from attnprobe.exact.nulls import even
from attnprobe.importance.word_swaps import (
    AT_ONCE,
    Swapper,
    donors_of,
    drawn_by,
    effects,
    in_single,
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

PASSES = 400
"""A text's, of which the track record is that goes by no number of passes."""


@dataclass
class Swaps(Probe):
    """The words that attention ranks first, from this text, and all others from another text; and
    the other way round.

    A donor is a text of the same length (or nearly), drawn without a look at its label. k words, 1
    to all but one, are drawn by their weights; the gain is how much more of the predicted class's
    probability stays with them than with the others, in the mean of the pairs. `swap_scale` is the
    gain of the same weights in the order of |effect|, which is estimated from other random sets, in
    pairs of its own. The attention reacts, as it does in use, to the words that change.

    Attributes:
        passes: texts that are put together, whatever the length. Of 25 two are of a pair drawn by
            attention, two of one for the scale, two for `swap_best`, 18 of nine random sets, and
            one has all words exchanged.
        reach: measure `swap_best` too.
        texts: most texts that are examined, evenly over the split; of the others there is no number
            (NaN).
    """

    name = "swaps"
    metrics = METRICS
    one_decision = True
    passes: Annotated[int, Ge(100)] = PASSES
    reach: bool = True
    texts: Annotated[int, Ge(20)] = 400

    _split: TextSplit | None = field(default=None, init=False, repr=False)
    _decisions: np.ndarray | None = field(default=None, init=False, repr=False)

    def prepare(self, splits: Mapping[str, TextSplit]) -> None:
        self._split = splits["test"]
        self._decisions = None

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        if subject.classifier.unit is not Unit.WORD:
            return
        if self._split is None:
            raise UserError(
                "probe swaps takes words from other texts, which only a run has: leave it out here"
            )
        content = subject.batch.content
        readout = subject.readout
        predicted = readout.prediction()
        run = in_single(subject.classifier)
        if self._decisions is None:
            self._decisions = np.zeros(len(self._split), np.int64)
            for rows in short_enough(self._split.words.lengths, most=AT_ONCE):
                with torch.no_grad():
                    self._decisions[rows] = (
                        run(self._split[rows].to(content.device)).logits.argmax(-1).cpu().numpy()
                    )
        names = [
            "swap_gain",
            "swap_scale",
            *(["swap_best"] if self.reach else []),
            "swap_bound",
            "top_word_effect",
            "swap_passes",
        ]
        columns = {
            name: torch.full(content.shape[:1], torch.nan, dtype=torch.float64) for name in names
        }
        word_effects = torch.full(content.shape, torch.nan, dtype=torch.float64)
        pairs = self.passes // 25
        random_sets = 9 * self.passes // 25
        reader = getattr(subject.classifier, "reader", None)
        task = subject.classifier.task
        longest = None if reader is None else reader.longest
        device = content.device
        split = self._split
        for row, number in enumerate(subject.batch.example_id.tolist()):
            batch = subject.batch
            words = int(content[row].sum())
            place = split.row_of(number)
            # the first of each of `texts` equal parts of the split
            examined = words > 1 and place * self.texts % len(split) < self.texts
            pool = (
                donors_of(place, split.words.lengths, self._decisions)
                if examined
                else np.zeros(0, np.int64)
            )
            if not len(pool):  # no other text lends it any words
                continue
            decision = int(predicted[row].argmax())
            generator = draws.generator(number)
            text = batch.rows(slice(row, row + 1)).cut(
                int(batch.mask[row].long().cumsum(-1).argmax()) + 1
            )
            lots = torch.randint(len(pool), (4 * pairs + random_sets,), generator=generator)
            used, donor = lots.unique(return_inverse=True)
            lenders = split[pool[used.numpy()].tolist()].to(device)
            swapper = Swapper(run, task, text, lenders, decision, longest)
            of_own, of_sets, of_bound, *of_later = donor.to(device).split(
                [pairs, random_sets, pairs, pairs, pairs]
            )
            weights = readout.attention[row][content[row]].cpu().double()
            own = prefixes(drawn_by(weights, pairs, generator), generator).to(device)
            keys = torch.rand(random_sets, words, generator=generator, dtype=torch.float64)
            sets = prefixes(keys, generator).to(device)
            difference = swapper.differences(torch.cat([own, sets]), torch.cat([of_own, of_sets]))
            effect = effects(sets, difference[pairs:]).cpu()
            by_effect = drawn_by(rearranged(weights, effect.abs()), pairs, generator)
            later = [prefixes(by_effect, generator).to(device)]
            if self.reach:
                later.append(prefixes(effect.expand(pairs, -1), generator).to(device))
            at_best = swapper.differences(torch.cat(later), torch.cat(of_later[: len(later)]))
            everything = torch.ones(pairs, words, dtype=torch.bool, device=device)
            top = weights >= weights.max() * (1 - 1e-9)
            strongest = effect.abs() == effect.abs().max()
            columns["swap_gain"][row] = difference[:pairs].mean()
            columns["swap_scale"][row] = at_best[:pairs].mean()
            if self.reach:
                columns["swap_best"][row] = at_best[pairs:].mean()
            kept_anyway = float(swapper.probability(everything, of_bound).mean())
            columns["swap_bound"][row] = float(predicted[row, decision]) - kept_anyway
            columns["swap_passes"][row] = self.passes
            columns["top_word_effect"][row] = (top & strongest).sum() / top.sum()
            word_effects[row, content[row].cpu()] = effect
        for name, column in columns.items():
            yield Measurement(name, column)
        yield Measurement("word_effect", word_effects, positions(content).cpu())
        under_equal = readout.predict(even(content).to(readout.attention.dtype))
        yield Measurement("equal_weights_distance", (under_equal - predicted).abs().sum(-1) / 2)


LEAST_BOUND = 0.1
"""Probability that all words together move the prediction by, from which on a text has something to
point at."""
LEAST_SCALE = 0.05
"""What the same weights must be able to gain at best, in shares of the bound, for placement to be
asked for at all."""
FEWEST = 20
"""Texts that have something to point at, likewise."""
SMALLEST = 0.4
"""Placement beyond which attention is said to be on the words that decide
(docs/results/calibration.md)."""
LEAST_EFFECT = 0.01
"""Total variation distance from the prediction under equal weights below which the weights make no
difference."""
PARTS = ("swap_gain", "swap_scale", "swap_bound")


def placement_of(
    gain: Float[np.ndarray, "runs texts"],
    scale: Float[np.ndarray, "runs texts"],
    bound: Float[np.ndarray, "runs texts"],
) -> Evidence:
    """Where the weight lies: Σ gain / Σ scale, each divided by its text's bound, so that every text
    that has something to point at weighs about alike. 0 for an order by chance, 1 for the same
    weights at their best; printed up to 1.

    The scale is a mean over random sets as well, so that it may fall short of the best by what they
    leave unknown."""
    together = np.stack([gain, scale, bound])
    known = ~np.isnan(together).any((0, 1))
    gain, scale, bound = together[..., known]
    has = bound > LEAST_BOUND
    parts = _shares(gain, scale, bound)
    texts = int(has.any(0).sum())
    if texts < FEWEST:
        why = f"in {texts} of {known.sum()} texts the words together move the prediction by more than {LEAST_BOUND:g}: "
        why += f"nothing to point at (expected {FEWEST} texts or more)"
        return Evidence(np.nan, np.nan, np.nan, texts, unasked=why)
    scales = parts[..., 1].sum(0)[has.any(0)] / has.sum(0)[has.any(0)]
    least = scales.mean() - 1.645 * scales.std(ddof=1) / np.sqrt(texts)  # one-sided, 95 %
    evidence = Evidence.of_ratio(parts)
    value, low, high = (
        float(np.clip(one, -1, 1)) for one in (evidence.value, evidence.low, evidence.high)
    )
    evidence = replace(evidence, value=value, low=low, high=high, n=texts)
    if not least >= LEAST_SCALE:
        why = f"at best these weights would keep {scales.mean():.2f} of the prediction more than in an order by chance"
        return replace(
            evidence, unasked=f"{why}: they are too even, or no word moves the prediction enough"
        )
    if evidence.rare and len(parts) == 1:
        # most texts at their best and a few far from it: an interval that holds however skewed they
        # are
        influence = pseudovalues(parts, parts.sum(1), ratio_of)[0]
        # of a text's part in the ratio: a difference from −1 to 1 over the mean scale
        bounded = bernstein(influence, 2.0 / float(parts[..., 1].mean()))
        if bounded is not None:
            low, high = (float(np.clip(one, -1, 1)) for one in bounded[1:])
            return replace(
                evidence, low=min(low, evidence.value), high=max(high, evidence.value), rare=False
            )
    return evidence


def _shares(
    gain: Float[np.ndarray, "runs texts"],
    best: Float[np.ndarray, "runs texts"],
    bound: Float[np.ndarray, "runs texts"],
) -> Float[np.ndarray, "runs texts 2"]:
    """Both as shares of the bound, −1 to 1; 0 where a text has nothing to point at."""
    has = bound > LEAST_BOUND
    return np.stack(
        [np.where(has, one / np.where(has, bound, 1), 0).clip(-1, 1) for one in (gain, best)], -1
    )


def _placement(table: pd.DataFrame) -> Evidence | None:
    rows = values_of(table, *PARTS)
    if rows is None or not rows[[*PARTS]].notna().all(axis=1).any():
        return None
    placement = placement_of(*(by_run(rows, rows[name].to_numpy()) for name in PARTS))
    others = set(table["value"][table["metric"] == "swap_passes"].dropna()) - {PASSES}
    return replace(placement, record=f"{min(others):.0f} passes") if others else placement


def _reach(table: pd.DataFrame) -> Evidence | None:
    names = ("swap_gain", "swap_best", "swap_bound")
    rows = values_of(table, *names)
    if rows is None:
        return None
    gain, best, bound = (by_run(rows, rows[name].to_numpy()) for name in names)
    parts = np.where(
        np.isnan(bound)[..., None], np.nan, _shares(gain, best, bound)
    )  # texts that were not examined
    return Evidence.of_ratio(parts) if (bound > LEAST_BOUND).any() else None


def _pointing(gain: np.ndarray, scale: np.ndarray, bound: np.ndarray) -> np.ndarray:
    """1 where a text's gain is more than half of the mean scale, 0 where not, NaN where there is
    nothing to point at."""
    has = bound > LEAST_BOUND
    if not has.any():
        return np.full(len(gain), np.nan)
    own, best = (np.where(has, one / np.where(has, bound, 1), np.nan) for one in (gain, scale))
    return np.where(has, own > np.nanmean(best) / 2, np.nan)


def _barest_class(table: pd.DataFrame) -> Evidence | None:
    """Share of the texts with something to point at, in the predicted class that has the fewest of
    them."""
    rows = values_of(table, "swap_bound", "predicted_class")
    if rows is None:
        return None
    bound, decided = (
        by_run(rows, rows[name].to_numpy()) for name in ("swap_bound", "predicted_class")
    )
    has = np.where(np.isnan(bound), np.nan, bound > LEAST_BOUND).mean(0)
    shares = [Evidence.of_share(has[decided[0] == number]) for number in np.unique(decided[0])]
    return min((one for one in shares if one.n), key=lambda one: one.value, default=None)


def by_class(results: pd.DataFrame) -> pd.DataFrame:
    """Placement among the texts of each predicted class."""

    def lines(rows: pd.DataFrame) -> Iterator[dict[str, object]]:
        for number, own in rows.groupby("predicted_class"):
            one = placement_of(*(own[name].to_numpy()[None] for name in PARTS))
            value, low, high = (np.nan,) * 3 if one.unasked else (one.value, one.low, one.high)
            yield {
                "predicted class": number,
                "texts": len(own),
                "with something to point at": one.n,
                "placement": value,
                "placement, low": low,
                "placement, high": high,
            }

    return facet_table(results, "swaps", [*PARTS, "predicted_class"], lines)


SOURCE = "attnprobe: docs/results/calibration.md"
READING = Reading(
    probe="swaps",
    order=4,
    title="Swapping: is the attention on the words that decide?",
    about=(
        "Words of a text change places with those of another text that the model decides differently. The words that "
        "attention ranks first stay, and all others are the other text's; or the other way round. In an order by chance "
        "neither keeps more of the prediction. Placement says where the weight lies: what more stays with the attended "
        "words, as a share of what the same weights would keep on the words that matter most. Which these are, other random "
        "sets tell. Reach says how much of the weight: the same as a share of the best order's. Placement 1 with reach 0.3 "
        "is in the right places and nearly even. The mixed texts have real words in their places and not always grammar. The "
        "attention reacts to them as it does in use. A single text's number is noisy: the other text's words speak too."
    ),
    claims=(
        Claim(
            name="weight_is_on_deciding_words",
            criterion="erasure",
            level="word",
            speaks="for",
            source=SOURCE,
            statement="The weight is on the words that decide",
            measure=Measure((*PARTS, "swap_passes"), _placement),
            quantity=f"placement: 0 in an order by chance, 1 for the same weights on the words that matter most; up to "
            f"{SMALLEST} is no relevant difference",
            smallest=SMALLEST,
            primary=True,
        ),
        Claim(
            name="weight_reaches",
            criterion="erasure",
            level="word",
            source=SOURCE,
            threshold=0.5,
            statement="The weights gain at least half of what the best order gains",
            measure=Measure(("swap_gain", "swap_best", "swap_bound"), _reach),
            quantity="reach: the gain as a share of the best order's",
        ),
        Claim(
            name="most_texts_are_pointed_at",
            criterion="erasure",
            level="word",
            source=SOURCE,
            threshold=0.5,
            statement="In most texts the words that attention ranks first keep the prediction",
            measure=share_of(*PARTS, value=_pointing),
            quantity="share of the texts with something to point at in which the gain is more than half of the mean scale",
        ),
        Claim(
            name="every_class_has_such_words",
            criterion="erasure",
            level="word",
            source=SOURCE,
            threshold=0.5,
            statement="In every predicted class most texts have words that decide",
            measure=Measure(("swap_bound", "predicted_class"), _barest_class),
            quantity=f"share of the texts whose words together move the prediction by more than {LEAST_BOUND:g}, in the "
            "class with the fewest",
        ),
        Claim(
            name="weights_move_the_prediction",
            criterion="erasure",
            level="word",
            source=SOURCE,
            threshold=LEAST_EFFECT,
            statement="Equal weights in place of attention's move the prediction",
            measure=mean_of("equal_weights_distance", reach=1.0, ends=(0, 1)),
            quantity="TVD, 0 to 1, mean of the texts",
        ),
        Claim(
            name="top_word_is_strongest",
            criterion="erasure",
            level="word",
            source=SOURCE,
            threshold=0.5,
            statement="The most attended word is the one that moves the prediction most, in most texts",
            measure=mean_of("top_word_effect", reach=1.0, ends=(0, 1)),
            quantity="share of the texts",
        ),
    ),
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
            "Placement (0: order by chance, 1: the same weights on the words that matter most) by predicted class, "
            "with 95 % intervals over the texts that have something to point at; empty where there is nothing to point at.",
            by_class,
            (*PARTS, "predicted_class"),
        ),
    ),
)
