"""What "the attention is on the words that decide" means: measure, gates, guards and wording.

This module is the only place that defines it. Its test is `tests/evidence/test_deciding_words.py`,
its page the section on erasure in `docs/concepts.md`.

The definition, from a text to the sentence on the page:

1. **Per text.** The probe `attnprobe.probes.swaps` exchanges sets of words with another text and
   stores four probabilities: what the words gain that attention ranks first (*gain*), what the same
   weights gain on the words that matter most (*scale*), what the best order gains (*best*), and
   what all words together do (*bound*).
2. **Over texts.** `placement_of` makes one number of them, the *placement*: 0 where attention ranks
   words by chance, 1 where the same weights lie on the words that matter most.
3. **Gates.** Too few texts with anything to point at (`LEAST_BOUND`, `FEWEST_TEXTS`), or weights
   too even to be in the wrong place (`LEAST_SCALE`): the question cannot be asked.
4. **Yes** where the whole interval lies above `LEAST_PLACEMENT`.
5. **Guards.** Details that weaken a yes (`GUARDS`), such as a small *reach*.
6. **Wording.** The sentences that say so, below.

To replace the measure by another one:

- write a probe that stores the new numbers, one per text, and give its `Reading` these `CLAIMS`;
- list its metrics in `PLACEMENT_METRICS`, and make one number with an interval of them in
  `placement_of`, whose `unasked` says when the question cannot be asked;
- set the thresholds, and keep, drop or replace the guards;
- word the sentences, and name the setting that runs the test (`TESTED_BY`);
- measure anew how often the verdict is right (`research.words`): the track record is of this very
  measure.
"""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from jaxtyping import Float

from attnprobe.evidence.claims import Claim
from attnprobe.evidence.evidence import Evidence, Measure, by_run, mean_of, share_of, values_of
from attnprobe.evidence.statistics import bernstein, pseudovalues, ratio_of

# Thresholds.

LEAST_PLACEMENT = 0.4
"""Placement above which attention is said to be on the words that decide
(docs/results/calibration.md)."""
LEAST_BOUND = 0.1
"""Probability by which all words together have to move the prediction for a text to have something
to point at."""
LEAST_SCALE = 0.05
"""Gain of the same weights on the words that matter most, as a share of the bound, below which
placement is not asked for."""
FEWEST_TEXTS = 20
"""Texts with something to point at below which placement is not asked for."""
LEAST_EFFECT = 0.01
"""Total variation distance from the prediction under equal weights below which the weights make no
difference."""
MOSTLY = 0.5
"""Reach, and share of the texts, from which attention is said to be *mostly* on the words."""
RECORD_PASSES = 400
"""Passes per text behind the default track record."""

# What the probe stores of each text.

PLACEMENT_METRICS = ("swap_gain", "swap_scale", "swap_bound")
REACH_METRICS = ("swap_gain", "swap_best", "swap_bound")
PASSES_METRIC = "swap_passes"

# The numbers.


def placement_of(
    gain: Float[np.ndarray, "runs texts"],
    scale: Float[np.ndarray, "runs texts"],
    bound: Float[np.ndarray, "runs texts"],
) -> Evidence:
    """Where the weight lies: Σ gain / Σ scale over the texts that have something to point at.

    Each text's gain and scale are divided by its bound, so that all of these texts weigh about
    alike. The scale is itself a mean over random sets and may fall short of the best that the
    weights could do, so that the ratio can exceed 1; it is cut there.

    Args:
        gain: probability that the attended words keep beyond the others, −1 to 1; NaN where a text
            was not examined.
        scale: the same for the same weights on the words that matter most.
        bound: probability by which all words together move the prediction.

    Returns:
        The placement, −1 to 1, with its interval over texts and runs; `n` counts the texts with
        something to point at. `unasked` says why the question cannot be asked, where it cannot.
    """
    is_examined = ~np.isnan(np.stack([gain, scale, bound])).any((0, 1))
    gain = gain[:, is_examined]
    scale = scale[:, is_examined]
    bound = bound[:, is_examined]

    movable = bound > LEAST_BOUND
    texts = int(movable.any(0).sum())
    if texts < FEWEST_TEXTS:
        reason = (
            f"in {texts} of {is_examined.sum()} texts the words together move the prediction by "
            f"more than {LEAST_BOUND:g}: nothing to point at (expected {FEWEST_TEXTS} texts or "
            "more)"
        )
        return Evidence(np.nan, np.nan, np.nan, texts, unasked=reason)

    shares = shares_of_bound(gain, scale, bound)
    ratio = Evidence.of_ratio(shares)
    placement = replace(
        ratio,
        value=_clipped(ratio.value),
        low=_clipped(ratio.low),
        high=_clipped(ratio.high),
        n=texts,
    )
    reason = _why_too_even(shares[..., 1], movable)
    if reason:
        return replace(placement, unasked=reason)
    if placement.rare and len(shares) == 1:
        return _with_bernstein_interval(placement, shares)
    return placement


def shares_of_bound(
    gain: Float[np.ndarray, "runs texts"],
    reference: Float[np.ndarray, "runs texts"],
    bound: Float[np.ndarray, "runs texts"],
) -> Float[np.ndarray, "runs texts 2"]:
    """Gain and reference as shares of the bound, −1 to 1; 0 where there is nothing to point at."""
    movable = bound > LEAST_BOUND
    divisor = np.where(movable, bound, 1)
    shares = np.stack([gain / divisor, reference / divisor], -1)
    return np.where(movable[..., None], shares, 0).clip(-1, 1)


def _why_too_even(
    scale_shares: Float[np.ndarray, "runs texts"], movable: Float[np.ndarray, "runs texts"]
) -> str:
    """Why placement cannot be asked for: the weights could gain too little even at their best."""
    has_movable_run = movable.any(0)
    runs_per_text = movable.sum(0)[has_movable_run]
    scales = scale_shares.sum(0)[has_movable_run] / runs_per_text
    lower_end = scales.mean() - 1.645 * scales.std(ddof=1) / np.sqrt(len(scales))  # one-sided, 95 %
    if lower_end >= LEAST_SCALE:
        return ""
    return (
        f"at best these weights would keep {scales.mean():.2f} of the prediction more than in an "
        "order by chance: they are too even, or no word moves the prediction enough"
    )


def _with_bernstein_interval(
    placement: Evidence, shares: Float[np.ndarray, "one_run texts 2"]
) -> Evidence:
    """An interval that holds however skewed the texts are.

    It is needed where most texts are at their best and a few far from it. A text moves the ratio by
    at most the range of a gain, −1 to 1, divided by the mean scale.
    """
    influence = pseudovalues(shares, shares.sum(1), ratio_of)[0]
    interval = bernstein(influence, 2.0 / float(shares[..., 1].mean()))
    if interval is None:
        return placement
    _, low, high = interval
    return replace(
        placement,
        low=min(_clipped(low), placement.value),
        high=max(_clipped(high), placement.value),
        rare=False,
    )


def _clipped(number: float) -> float:
    return float(np.clip(number, -1, 1))


def _placement(table: pd.DataFrame) -> Evidence | None:
    """The placement in a table of the probe; None where the table does not have its numbers."""
    rows = values_of(table, *PLACEMENT_METRICS)
    if rows is None or not rows[list(PLACEMENT_METRICS)].notna().all(axis=1).any():
        return None
    gain, scale, bound = (by_run(rows, rows[name].to_numpy()) for name in PLACEMENT_METRICS)
    placement = placement_of(gain, scale, bound)

    # the track record is of one number of passes: another one has, or lacks, a record of its own
    passes = set(table["value"][table["metric"] == PASSES_METRIC].dropna())
    unusual_passes = passes - {RECORD_PASSES}
    if not unusual_passes:
        return placement
    return replace(placement, record=f"{min(unusual_passes):.0f} passes")


def _reach(table: pd.DataFrame) -> Evidence | None:
    """How much of the weight is in the right places: Σ gain / Σ gain of the best order."""
    rows = values_of(table, *REACH_METRICS)
    if rows is None:
        return None
    gain, best, bound = (by_run(rows, rows[name].to_numpy()) for name in REACH_METRICS)
    if not (bound > LEAST_BOUND).any():
        return None

    shares = shares_of_bound(gain, best, bound)
    shares[np.isnan(bound)] = np.nan  # texts that were not examined
    return Evidence.of_ratio(shares)


def _is_pointed_at(
    gain: Float[np.ndarray, " texts"],
    scale: Float[np.ndarray, " texts"],
    bound: Float[np.ndarray, " texts"],
) -> Float[np.ndarray, " texts"]:
    """1 where a text gains more than half of the mean scale, else 0.

    NaN where a text has nothing to point at. Gain and scale are shares of the bound.
    """
    movable = bound > LEAST_BOUND
    if not movable.any():
        return np.full(len(gain), np.nan)
    divisor = np.where(movable, bound, 1)
    mean_scale = np.nanmean(np.where(movable, scale / divisor, np.nan))
    return np.where(movable, gain / divisor > mean_scale / 2, np.nan)


def _least_share_of_a_class(table: pd.DataFrame) -> Evidence | None:
    """The share of texts with something to point at, in the predicted class where it is lowest."""
    rows = values_of(table, "swap_bound", "predicted_class")
    if rows is None:
        return None
    bound = by_run(rows, rows["swap_bound"].to_numpy())
    predicted_class = by_run(rows, rows["predicted_class"].to_numpy())[0]
    movable = np.where(np.isnan(bound), np.nan, bound > LEAST_BOUND).mean(0)
    shares = [
        Evidence.of_share(movable[predicted_class == number])
        for number in np.unique(predicted_class)
    ]
    known_shares = [share for share in shares if share.n]
    return min(known_shares, key=lambda share: share.value, default=None)


# The claims.

LINE = ("erasure", "word")
"""Criterion and level of the claims: the line of the card that the answer goes by."""
SOURCE = "attnprobe: docs/results/calibration.md"

PLACEMENT_CLAIM = Claim(
    name="weight_is_on_deciding_words",
    criterion="erasure",
    level="word",
    speaks="for",
    source=SOURCE,
    statement="The weight is on the words that decide",
    measure=Measure((*PLACEMENT_METRICS, PASSES_METRIC), _placement),
    quantity="placement: 0 in an order by chance, 1 for the same weights on the words that matter "
    f"most; up to {LEAST_PLACEMENT} is no relevant difference",
    smallest=LEAST_PLACEMENT,
    primary=True,
)
REACH_CLAIM = Claim(
    name="weight_reaches",
    criterion="erasure",
    level="word",
    source=SOURCE,
    threshold=MOSTLY,
    statement="The weights gain at least half of what the best order gains",
    measure=Measure(REACH_METRICS, _reach),
    quantity="reach: the gain as a share of the best order's",
)
MOST_TEXTS_CLAIM = Claim(
    name="most_texts_are_pointed_at",
    criterion="erasure",
    level="word",
    source=SOURCE,
    threshold=MOSTLY,
    statement="In most texts the words that attention ranks first keep the prediction",
    measure=share_of(*PLACEMENT_METRICS, value=_is_pointed_at),
    quantity="share of the texts with something to point at in which the gain is more than half of "
    "the mean scale",
)
EVERY_CLASS_CLAIM = Claim(
    name="every_class_has_such_words",
    criterion="erasure",
    level="word",
    source=SOURCE,
    threshold=MOSTLY,
    statement="In every predicted class most texts have words that decide",
    measure=Measure(("swap_bound", "predicted_class"), _least_share_of_a_class),
    quantity="share of the texts whose words together move the prediction by more than "
    f"{LEAST_BOUND:g}, in the class with the fewest",
)
WEIGHTS_MATTER_CLAIM = Claim(
    name="weights_move_the_prediction",
    criterion="erasure",
    level="word",
    source=SOURCE,
    threshold=LEAST_EFFECT,
    statement="Equal weights in place of attention's move the prediction",
    measure=mean_of("equal_weights_distance", reach=1.0, ends=(0, 1)),
    quantity="TVD, 0 to 1, mean of the texts",
)
TOP_WORD_CLAIM = Claim(
    name="top_word_is_strongest",
    criterion="erasure",
    level="word",
    source=SOURCE,
    threshold=0.5,
    statement="The most attended word is the one that moves the prediction most, in most texts",
    measure=mean_of("top_word_effect", reach=1.0, ends=(0, 1)),
    quantity="share of the texts",
)
CLAIMS = (
    PLACEMENT_CLAIM,
    REACH_CLAIM,
    MOST_TEXTS_CLAIM,
    EVERY_CLASS_CLAIM,
    WEIGHTS_MATTER_CLAIM,
    TOP_WORD_CLAIM,
)

# The guards of a yes.


@dataclass(frozen=True)
class Guard:
    """A detail that weakens a yes where its number is smaller than `least`.

    Attributes:
        claim: the claim whose number it is; a yes without that number is an error.
        least: the smallest number that does not weaken the yes.
        doubt: what the sentence adds; empty: the attention *only leans towards* the words.
    """

    claim: Claim
    least: float
    doubt: str = ""


GUARDS = (
    Guard(REACH_CLAIM, least=MOSTLY),
    Guard(MOST_TEXTS_CLAIM, least=MOSTLY),
    Guard(WEIGHTS_MATTER_CLAIM, LEAST_EFFECT, doubt="but equal weights would predict the same"),
    Guard(EVERY_CLASS_CLAIM, least=MOSTLY, doubt="but one class goes by no words"),
)
"""The gravest doubt comes first; `attnprobe.findings.chip` applies them."""

# Wording.

TESTED_BY = "probe=[swaps]"
"""The setting that adds the test."""
ON_CARD = "on the words that decide"
"""What a yes says, on the line of the card."""
YES_MEANS = (
    "more of the prediction stays with the words that it ranks first than with the others, when "
    "they change places with another text's"
)
YES_DOES_NOT_MEAN = "that it says how much each word decides"

# sentences; `attention` stands for "this attention" or more
WHETHER = "whether {attention} points at the words that decide"
NO = "{attention} does not point at the words that decide"
NO_BUT_STATES = "{attention} points at states that decide, but not at words"
YES_MOSTLY = "{attention} is mostly on the words that decide"
YES_LEANS = "{attention} only leans towards the words that decide"
