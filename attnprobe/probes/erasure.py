"""How many items must go before the decision flips, in which order? (Serrano & Smith 2019, section 5)"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from attnprobe.erasure import erase_in_order, smallest_winning_set
from attnprobe.erasure.single import decision
from attnprobe.errors import UserError
from attnprobe.exact import smallest_flipping_set, smallest_overtaking_sets
from attnprobe.exact.ties import LEAST_MASS
from attnprobe.probes.base import DESCRIPTION, LINEAR, Measurement, Note, RankingProbe, Subject, description, positions
from attnprobe.randomness import Draws
from attnprobe.readout import Readout
from attnprobe.results.metrics import ITEMS, SHARE, TRUTH, WEIGHT, Metric, Scale

FILED = {"attention_gradient": "gradient", "gradient": "input_gradient"}
"""The published tests' gradient is by the weight; that by the word vectors is another one."""
NEVER_FLIPS, FLIPS_BY_BIAS, FLIPS = 0, 1, 2
"""Values of `status_…`."""
PAIRS = (
    ("gradient", "attention"),
    ("gradient_attention", "attention"),
    ("gradient_attention", "gradient"),
    ("contribution", "gradient_attention"),
    ("attention", "random"),
)
"""Rankings that are compared example by example (the first against the second)."""


SOURCE = "Serrano & Smith 2019, section 5"
WINS = "only with `probe.erasure.wins=true`"
OPTIMAL = "the smallest set of all"
STATUS = Scale("code", 0, 2)
METRICS = (
    Metric("removed_count_{ranking}", ITEMS, "erased until the decision flips; NaN where it does not",
           higher_is_better=False, source=SOURCE),
    Metric("removed_count_optimal", ITEMS, OPTIMAL, only=LINEAR),
    Metric("removed_fraction_{ranking}", SHARE, "the same as a share of the content", higher_is_better=False,
           source=SOURCE),
    Metric("removed_fraction_optimal", SHARE, OPTIMAL, only=LINEAR),
    Metric("removed_mass_{ranking}", WEIGHT, "attention that was on them"),
    Metric("removed_mass_optimal", WEIGHT, OPTIMAL, only=LINEAR),
    Metric("status_{ranking}", STATUS,
           "2 flips; 1 only the decoder's bias does, with everything erased; 0 never"),
    Metric("status_optimal", STATUS, OPTIMAL, only=LINEAR),
    Metric("regret_{ranking}", Scale("items", 0), "count − count of `optimal`", higher_is_better=False, only=LINEAR),
    Metric("never_flips", TRUTH, "proved, up to rounding: no set of items flips the decision", only=LINEAR),
    Metric("smallest_set", TRUTH, "belongs to the smallest set; no rows where no set flips", step="position", only=LINEAR),
    Metric("flip_by_bias", TRUTH, "the bias alone decides otherwise"),
    Metric("removed_fraction_random_mean", SHARE, "over the random orders that flip"),
    Metric("flip_share_random", SHARE, "random orders that flip"),
    Metric("fewer_{ranking}_than_{other}", TRUTH, "the first flips with fewer items; ties are 0"),
    Metric("overtake_size", ITEMS, "fewest after which this class is ahead of the decision; NaN never", step="class",
           only=LINEAR),
    Metric("wins_size", ITEMS, "after which it is ahead of every class", step="class", only=WINS),
    Metric("wins_bound", ITEMS, "certainly needed", step="class", only=WINS),
    Metric("wins_exact", TRUTH, "the two are proved to be the same", step="class", only=WINS),
    *DESCRIPTION,
)  # fmt: skip
"""See `Erasure`."""


@dataclass
class Erasure(RankingProbe):
    """Erase items in the order of a ranking, renormalising, until the decision flips; and the fewest that do it.

    Rankings R, the first item first: the importances, highest score first; `random` (one random order); and with a linear
    decoder `optimal` (the smallest flipping set, not a ranking). Published: `attention` (highest weight), `ascending` (lowest
    weight: a control), `gradient` (∂ probability of the predicted class / ∂ weight, signed: the importance
    `attention_gradient`), `gradient_attention` (their product), `value_norm` (α‖h‖), and with a linear decoder
    `contribution` (α_t times the lead of the decision over the runner-up in z_t). The importance `gradient`, of the word
    vectors, is filed as `input_gradient`.

    Yields per example and R: `removed_count_R` items, `removed_fraction_R` of the content (0 to 1), `removed_mass_R`
    attention (0 to 1), all NaN where the order does not flip the decision before everything is erased; `status_R`: 2
    it does, 1 only the decoder's bias does, when everything is erased (the published code counts that as a flip at
    fraction 1), 0 never; `regret_R`: removed_count_R − removed_count_optimal.

    Per example: `smallest_set` per position (1: a member of the smallest flipping set; no rows where there is none),
    `never_flips` (1: proved, up to rounding, that no set of items does it), `flip_by_bias` (1: with everything erased the
    bias decides otherwise); over all random orders `removed_fraction_random_mean` (of those that flip) and
    `flip_share_random`; `fewer_A_than_B` for pairs of rankings (`PAIRS`): 1 where A flips with fewer items, an order
    that does not flip needing more than any, else 0 (ties as well); `max_attention`, `predicted_class`,
    `content_length`.

    Per other class (step): `overtake_size`, the fewest items after which it is ahead of the decision, NaN if never; and
    with `wins` `wins_size`, after which it is ahead of every class, `wins_bound`, the number that certainly is needed,
    and `wins_exact`, whether the two are proved to be the same (both NaN: proved that it never is).

    Where the decoder is not linear (question answering) nothing is exact: what needs position logits is left out; and what
    would be decided with everything erased, where that is not defined (`Readout.unattended`).

    Attributes:
        importances: see `RankingProbe`.
        random_orders: how many random orders, 1 or more (paper: 5).
        wins: also find the smallest set after which each other class wins outright.
        nodes: branch-and-bound nodes per class and example before bounds are given instead.
    """

    name: ClassVar[str] = "erasure"
    metrics = METRICS
    one_decision = True
    published = ("attention", "ascending", "attention_gradient", "gradient_attention", "value_norm", "contribution")
    filed: ClassVar[Mapping[str, str]] = FILED
    random_orders: int = 5
    wins: bool = False
    nodes: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.random_orders < 1:
            raise UserError(f"probe.erasure.random_orders={self.random_orders}: expected 1 or more random orders")
        if self.nodes < 0:
            raise UserError(f"probe.erasure.nodes={self.nodes}: expected 0 (no search) or more branch-and-bound nodes")

    @property
    def copies(self) -> int:
        """Of every random order: the noise, and its copy among the rankings."""
        return 20 + 2 * self.random_orders

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield the measurements of one batch."""
        readout = subject.readout
        noise = draws.uniform(self.random_orders, readout.content, readout.example_id)
        # whether the decoder's bias alone, with everything erased, decides otherwise than the model
        nothing = readout.unattended
        by_bias = torch.zeros_like(readout.content[:, 0])
        if nothing is not None:
            by_bias = nothing.argmax(-1) != decision(readout)
        linear = readout.position_logits is not None
        optimal = None
        counts: dict[str, Tensor] = {}
        if linear:
            optimal, members = smallest_sets(readout)
            counts["optimal"] = optimal
            mass = torch.where(members, readout.attention, 0).sum(-1)
            yield from removed("optimal", optimal, mass, by_bias, readout)
            yield Measurement("never_flips", optimal < 0)
            there = readout.content & (optimal > 0).unsqueeze(-1)
            yield Measurement("smallest_set", members.double(), positions(there))
        # the random orders are this probe's own
        scores = {self.label(name): values for name, values in self.scores(subject).items() if name != "random"}
        unknown = {name: (values.isnan() & readout.content).any(-1) for name, values in scores.items()}
        erased = erase_in_order(
            readout, torch.cat([*(values.nan_to_num(nan=0)[None] for values in scores.values()), noise])
        )
        orders = erased.count[len(scores) :]
        for number, name in enumerate([*scores, "random"]):
            counts[name] = erased.count[number]
            undefined = unknown.get(name)
            yield from removed(name, counts[name], erased.mass[number], by_bias, readout, undefined)
            if optimal is not None:
                regret = (counts[name] - optimal).double()
                known = counts[name] > 0 if undefined is None else (counts[name] > 0) & ~undefined
                yield Measurement(f"regret_{name}", torch.where(known, regret, torch.nan))
        yield from over_orders(orders, readout.content)
        if nothing is not None:
            yield Measurement("flip_by_bias", by_bias)
        for first, second in PAIRS:
            if first in counts and second in counts:
                yield Measurement(f"fewer_{first}_than_{second}", fewer(counts[first], counts[second]))
        if linear:
            yield from towards_each_class(readout, self.nodes if self.wins else None)
        yield from description(readout)
        yield from self.notes(subject)


def smallest_sets(readout: Readout) -> tuple[Tensor, Bool[Tensor, "batch seq"]]:
    """Size of the smallest flipping set, −1 where there is none, and its members."""
    assert readout.position_logits is not None
    smallest = smallest_flipping_set(readout.attention, readout.position_logits, readout.content)
    return smallest.size, smallest.members


def removed(
    name: str,
    count: Tensor,
    mass: Tensor,
    by_bias: Tensor,
    readout: Readout,
    undefined: Bool[Tensor, "batch"] | None = None,
) -> Iterator[Measurement]:
    """What was erased in one order until the decision flipped; all NaN where the order is `undefined`."""
    flips = count > 0 if undefined is None else (count > 0) & ~undefined
    number = torch.where(flips, count.double(), torch.nan)
    yield Measurement(f"removed_count_{name}", number)
    yield Measurement(f"removed_fraction_{name}", number / readout.content.sum(-1))
    yield Measurement(f"removed_mass_{name}", torch.where(flips, mass, torch.nan))
    without_flip = torch.where(by_bias, FLIPS_BY_BIAS, NEVER_FLIPS)
    status = torch.where(flips, FLIPS, without_flip)
    if undefined is not None:
        status = torch.where(undefined, torch.nan, status.double())
    yield Measurement(f"status_{name}", status)


def fewer(first: Tensor, second: Tensor) -> Bool[Tensor, "batch"]:
    """Where the first order flips with fewer items than the second; one that never flips needs more than any."""
    return (first > 0) & ((second < 0) | (first < second))


def over_orders(counts: Tensor, content: Bool[Tensor, "batch seq"]) -> Iterator[Measurement]:
    """Means over random orders, `counts [orders, batch]`."""
    flips = counts > 0
    times = flips.sum(0)
    total = torch.where(flips, counts, 0).sum(0).double() / content.sum(-1)
    yield Measurement("removed_fraction_random_mean", total / torch.where(times > 0, times, torch.nan))
    yield Measurement("flip_share_random", times.double() / len(counts))


def towards_each_class(readout: Readout, nodes: int | None) -> Iterator[Measurement]:
    """The fewest items after which each other class is ahead of the decision and, given `nodes`, of every class."""
    logits, attention = readout.position_logits, readout.attention
    assert logits is not None
    sets = smallest_overtaking_sets(attention, logits, readout.content)
    classes = torch.arange(logits.shape[-1], device=logits.device)
    step = torch.where(classes == sets.decision.unsqueeze(-1), torch.nan, classes.double())
    yield Measurement("overtake_size", torch.where(sets.size > 0, sets.size.double(), torch.nan), step)
    if nodes is None:
        return
    shape = sets.size.shape
    size, bound, exact = (torch.full(shape, torch.nan, dtype=torch.float64, device=logits.device) for _ in range(3))
    weighted, plain = (attention.unsqueeze(-1) * logits).cpu().numpy(), logits.cpu().numpy()
    content = readout.content.cpu().numpy()
    for row, chosen in enumerate(sets.decision.tolist()):
        items, scores = weighted[row][content[row]].T, plain[row][content[row]].T
        for rival in range(len(items)):
            if rival == chosen:
                continue
            others = [other for other in range(len(items)) if other != rival]
            least = LEAST_MASS * np.abs(scores[rival] - scores[others]).max(1)
            smallest = smallest_winning_set(items[rival] - items[others], least=least, nodes=nodes)
            size[row, rival] = smallest.size if smallest.size >= 0 else torch.nan
            bound[row, rival] = smallest.bound if smallest.bound >= 0 else torch.nan
            exact[row, rival] = smallest.exact
    yield Measurement("wins_size", size, step)
    yield Measurement("wins_bound", bound, step)
    yield Measurement("wins_exact", exact, step)
