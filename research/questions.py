"""The four open questions of the literature as one study over a grid
(docs/results/open_questions.md)."""

import warnings
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.figure import Figure

from attnprobe.core.errors import UserError
from attnprobe.core.sanitise import quoted
from attnprobe.evidence.statistics import RESAMPLES, holm, in_columns, p_value, wilson
from attnprobe.findings.members import measured
from attnprobe.findings.studies.base import (
    Compose,
    Done,
    Member,
    Plan,
    Study,
    StudyFigure,
    StudyReading,
)
from attnprobe.plots.grid import around, grid, title
from attnprobe.report.studies import drawing

LEARNED = "learned"
UNIFORM = "uniform"
ATTENTIONS = {
    LEARNED: (),
    "adversary": (),
    UNIFORM: ("model/attention=uniform",),
}  # others: columns of the data
CENTRE = {
    "widths": [32],
    "texts": [1000],
    "lengths": [1],
    "attentions": [LEARNED, UNIFORM],
}  # of a block
BOUNDS = {"recall2": 0.750, "recall4": 0.604}
"""The best accuracy of equal weights and an additive decoder: E[longest increasing subsequence] / m
of a permutation."""
MARGINS = {
    "Q1a": 0.02,
    "Q1b": 0.15,
    "Q1b bound": 0.02,
    "Q1c": 0.03,
    "Q2a": 0.1,
    "Q2b": 0.1,
    "Q3 leak": 0.1,
    "Q3 none": 0.02,
    "Q4a length": 0.03,
    "Q4a width": 0.02,
    "Q4b": 0.01,
}
BEST = "state_change_best"
ALL_KNOW = 0.1
SOLVED = 0.95
FAR = 0.4
"""Of the most that a state knows, the share by which it has to be ahead of a state at random for
states to be asked about; the accuracy from which a task counts as solved; and nats of JSD that an
adversary moves at least, in the mean."""
Cell = namedtuple("Cell", ["family", "encoder", "width", "texts", "length"])
"""One cell of the grid; `length` is by how much the texts are longer than they are drawn."""


@dataclass(frozen=True)
class Questions(Study):
    """Trains every cell of a grid with learned and with equal weights, once per draw of the data
    and seed; then adversaries of some. Replicates come one after the other, each with all cells: a
    study that is cut short is even at any time. `families` and `encoders` are described as on the
    command line, `{width}`, `{half}`, `{quarter}` being the cell's; `blocks` are crossed products
    of them, with what differs from `CENTRE`, and `adversaries` those that are imitated, with
    `weights` (λ); `single` are the families of encoders `without_context`; `margins` are tightened,
    never loosened."""

    name: ClassVar[str] = "questions"
    families: Mapping[str, Sequence[str]]
    encoders: Mapping[str, Sequence[str]]
    blocks: Sequence[Mapping[str, Any]]
    adversaries: Sequence[Mapping[str, Any]] = ()
    without_context: Sequence[str] = ()
    single: Sequence[str] = ()
    draws: Sequence[int] = (0,)
    seeds: Sequence[int] = (0,)
    margins: Mapping[str, float] = None  # type: ignore[assignment]
    settings: Sequence[str] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "margins", {**MARGINS, **(self.margins or {})})
        for block, setting in product((*self.blocks, *self.adversaries), ("families", "encoders")):
            names = block.get(setting)
            known = getattr(self, setting)
            if not names or not set(names) <= set(known):
                raise UserError(
                    f"study.blocks: {setting}={names}: expected some of {', '.join(known)}"
                )
        if not self.draws or not self.seeds:
            raise UserError(
                "study.draws or study.seeds is empty: expected seeds of the data and of trainings, as [0,1]"
            )
        for name, margin in self.margins.items():
            least = MARGINS.get(name, np.inf)
            most = MARGINS.get(name, -np.inf)
            if (
                margin < least
                if name in ("Q1b", "Q1c", "Q2a", "Q3 leak", "Q4a length", "Q4b")
                else margin > most
            ):
                known = f"expected one of {', '.join(MARGINS)}, at least as strict as {MARGINS.get(name, 'these')}"
                raise UserError(f"study.margins: {name}={margin}: {known}")

    def plan(self, compose: Compose, measure: Callable[..., Any]) -> Plan:
        """The contrasts and margins, written before the first run."""
        runs = (
            (len(self.cells(self.blocks)) + len(self.cells(self.adversaries)))
            * len(self.draws)
            * len(self.seeds)
        )
        stated = " ".join(
            f"{name}: {says} (refuted if {falsifier})."
            for name, (says, falsifier) in STATED.items()
        )
        margins = ", ".join(f"{name} {margin:g}" for name, margin in self.margins.items())
        first = f"{runs} runs; draws {list(self.draws)}, seeds {list(self.seeds)}; sealed before the first"
        return Plan(words=f"{first}: {stated} Margins: {margins}.")

    def cells(self, blocks: Sequence[Mapping[str, Any]]) -> list[tuple[Cell, str | float]]:
        """Every cell of these blocks once, in order, with its attention or weight λ."""
        found: dict[tuple[Cell, str | float], None] = {}
        for block in blocks:
            own = {**CENTRE, **block}
            own["attentions"] = own.get("weights", own["attentions"])
            names = ("families", "encoders", "widths", "texts", "lengths", "attentions")
            for *cell, attention in product(*(own[name] for name in names)):
                if cell[1] not in self.without_context or cell[0] in self.single:
                    found[Cell(*cell), attention] = None
        return list(found)

    def stages(self, seed: int, model: str, done: list[Done]) -> Iterator[list[Member]]:
        """All trainings, then the adversaries of some. The command line's own seed and model play
        no part."""
        replicates = list(product(self.draws, self.seeds))
        cells = self.cells(self.blocks)
        yield [
            self.member(cell, str(attention), *one)
            for one in replicates
            for cell, attention in cells
        ]
        teachers = {(one.member.role, one.member.seed): one.directory for one in done}
        imitated = []
        for (draw, one), (cell, weight) in product(replicates, self.cells(self.adversaries)):
            teacher = teachers.get((self.member(cell, LEARNED, draw, one).role, one))
            if teacher is None:
                raise UserError(
                    f"study.adversaries: {cell} is in no block: there is no learned model to imitate"
                )
            member = self.member(cell, "adversary", draw, one)
            changes = (
                "training=adversary",
                f"training.recipe.objective.weight={weight}",
                f"teacher={quoted(str(teacher))}",
                f"model.name={cell.encoder}_adversary_{weight:g}",
                "probe=[teacher]",
            )
            kept = (
                setting for setting in member.overrides if not setting.startswith("probe")
            )  # of other probes
            imitated.append(Member(member.role, one, (*kept, *changes), float(weight)))
        if imitated:
            yield imitated

    def member(self, cell: Cell, attention: str, draw: int, seed: int) -> Member:
        """One training; its role is such as `token-lstm-32-1000-1-learned-0`."""
        sizes = {"width": cell.width, "half": cell.width // 2, "quarter": cell.width // 4}
        imposed = ("model/attention=column", f"model.attention.column={attention}")
        return Member(
            "-".join(map(str, (*cell, attention, draw))),
            seed,
            (
                *self.settings,
                *(one.format(**sizes) for one in self.encoders[cell.encoder]),
                *self.families[cell.family],
                f"data.source.train_size={cell.texts}",
                f"data.source.longer={cell.length}",
                f"data.source.seed={draw}",
                f"data.name={cell.family}",
                f"model.name={cell.encoder}_{attention}",
                *ATTENTIONS.get(attention, imposed),
            ),
        )


STATED = {
    "Q1a": (
        "without a question attention is not needed, given texts",
        "learned minus equal weights is beyond the margin",
    ),
    "Q1b": (
        "for recall from a question it is",
        "the gain is below the margin, or equal weights are above their bound",
    ),
    "Q1c": (
        "it saves texts where evidence is rare",
        "the gain falls by no more than the margin as texts are added",
    ),
    "Q2a": (
        "context moves attention off the word",
        "rightness about words without context is not ahead by the margin",
    ),
    "Q2b": (
        "but not off the states that know",
        "rightness about states differs by the margin between encoders",
    ),
    "Q3": (
        "transfer follows what weights leak of the label, not rightness",
        "a leaking attention does not gain, or another does",
    ),
    "Q4a": (
        "with frozen states length eases adversaries and width does not",
        "the slopes are not so",
    ),
    "Q4b": (
        "with training width eases them",
        "the smallest change of the prediction falls by no more than the margin",
    ),
}
"""Hypothesis → what it says, and what refutes it."""
QUANTITIES: dict[str, tuple[str, Sequence[str], Callable[..., tuple[Any, Any]]]] = {
    "accuracy": ("known_answer", ["correct"], lambda one: (one, 1.0)),
    "word": (
        "known_answer",
        ["mass_on_rationale", "chance"],
        lambda mass, chance: (mass, 1 - chance),
    ),
    "state": (
        "known_answer",
        ["state_change_own", "state_change_null", BEST],
        lambda own, null, best: (own - null, best - null),
    ),
    "jsd": ("adversarial", ["optimum_jsd"], lambda one: (one, 1.0)),
    "gain": (
        "readouts",
        ["readout_words_attention", "readout_words_equal", "readout_weight"],
        lambda own, equal, weight: (weight * (own - equal), 1.0),
    ),
    "far": ("teacher", ["jsd"], lambda one: (one, 1.0)),
    "tvd": ("teacher", ["tvd"], lambda one: (one, 1.0)),
}
"""One number per model and text → its probe and metrics, and its numerator and denominator; a
number of a cell is the ratio of their sums."""


def of_run(run: Path) -> dict[str, Float[np.ndarray, "texts 2"]]:
    """Quantity → its summands in one run, by text; what the run was not asked is left out."""
    found = {}
    tables = {
        probe: measured(run, probe)
        for probe in ("known_answer", "adversarial", "readouts", "teacher")
    }
    for name, (probe, metrics, parts) in QUANTITIES.items():
        if len(wide := tables[probe]) and set(metrics) <= set(
            wide
        ):  # else this kind of model has no such number
            above, below = parts(*(wide[one] for one in metrics))
            own = pd.DataFrame({"above": above, "below": below}).where(above.notna(), 0.0)
            if name != "state" or own["below"].sum() >= ALL_KNOW * wide[BEST].sum():
                found[name] = own.to_numpy(
                    np.float64
                )  # where all states know, none is the wrong one to attend to
    return found


def resampling(
    draws: int, seeds: int, texts: int
) -> Float[np.ndarray, "resamples draws seeds texts"]:
    """How often each text counts in each resample of draws, of seeds and of texts within each draw;
    first all once."""
    random = np.random.default_rng(0)
    weights = np.zeros((RESAMPLES + 1, draws, seeds, texts), np.float32)
    weights[0] = 1
    for row in weights[1:]:
        for draw in random.integers(0, draws, draws):
            of_seeds = np.bincount(random.integers(0, seeds, seeds), minlength=seeds)
            row[draw] += np.outer(
                of_seeds, np.bincount(random.integers(0, texts, texts), minlength=texts)
            )
    return weights


Resampled = Float[np.ndarray, " resamples"]  # a number, and after it what it is in each resample


class Grid:
    """The numbers of all members of a study, by quantity, cell and attention (or λ), resampled
    together."""

    def __init__(self, directory: Path, content: Mapping[str, Any]) -> None:
        draws = list(content["settings"]["draws"])
        seeds = list(content["settings"]["seeds"])
        self.found: dict[tuple[str, Cell, str], Float[np.ndarray, "draws seeds texts 2"]] = {}
        texts = 0
        for one in content["members"]:
            family, encoder, *numbers, attention, draw = one["role"].split("-")
            cell = Cell(family, encoder, *map(int, numbers))
            kind = attention if one["parameter"] is None else f"{one['parameter']:g}"
            place = draws.index(int(draw)), seeds.index(one["seed"])
            for name, parts in of_run(directory / one["directory"]).items():
                texts = max(texts, len(parts))
                empty = np.zeros((len(draws), len(seeds), texts, 2))
                self.found.setdefault((name, cell, kind), empty)[(*place, slice(len(parts)))] = (
                    parts
                )
        self.weights = resampling(len(draws), len(seeds), texts)
        self.solved = {
            cell: parts[..., 0].sum(-1) >= SOLVED * parts[..., 1].sum(-1)
            for (name, cell, kind), parts in self.found.items()
            if (name, kind) == ("accuracy", LEARNED)
        }

    def of(
        self, name: str, cell: Cell, kind: str = LEARNED, *, solved_only: bool = False
    ) -> Resampled:
        """One quantity of a cell; `solved_only`: models that did not solve their task are left
        out."""
        if (parts := self.found.get((name, cell, kind))) is None:
            return np.full(len(self.weights), np.nan)
        if solved_only and cell in self.solved:
            parts = parts * self.solved[cell][:, :, None, None]
        sums = np.einsum("rdst,dstk->rk", self.weights[..., : parts.shape[2]], parts)
        with np.errstate(invalid="ignore", divide="ignore"):
            return sums[:, 0] / np.where(sums[:, 1] == 0, np.nan, sums[:, 1])

    def cells(self, name: str, **fixed: Any) -> list[Cell]:
        """The cells with a learned model that has this quantity and these knobs (one value, or
        several)."""
        wanted = {knob: one if isinstance(one, tuple) else (one,) for knob, one in fixed.items()}
        learned = [
            cell for quantity, cell, kind in self.found if (quantity, kind) == (name, LEARNED)
        ]
        return [
            cell
            for cell in learned
            if all(getattr(cell, knob) in several for knob, several in wanted.items())
        ]


class Contrast(NamedTuple):
    """One number against its margin: it should be `above`, `below`, or `within` it on both sides;
    of so many texts."""

    label: str
    number: Resampled
    side: str
    margin: float
    texts: int = 0

    def judged(self) -> tuple[str, float, float, float, float]:
        """(holds, refuted or open; number, low, high; p of the decision)."""
        value = float(self.number[0])
        margin = self.margin
        known = self.number[1:][np.isfinite(self.number[1:])]
        low, high = np.quantile(known, [0.025, 0.975]) if len(known) else (np.nan, np.nan)
        if (
            self.texts and np.ptp(self.number) < 1e-9
        ):  # no text differs: as many may as 0 of so many still allow
            none = 1 - 0.025 ** (1 / self.texts)
            low = value - none
            high = value + none
        if np.isnan(value) or np.isnan(low):
            return "open", value, np.nan, np.nan, np.nan
        above, below = (p_value(value, low, high, one) for one in (margin, -margin))
        good = low > margin
        bad = high <= margin
        p = above
        if self.side == "below":
            good, bad = bad, good
        elif self.side == "within":
            bad = good or high < -margin
            good = -margin < low and high < margin
            p = max(above, below) if good else min(above, below)
        return "holds" if good else "refuted" if bad else "open", value, low, high, p


def contrasts(
    found: Grid, margins: Mapping[str, float], solved_only: bool = False
) -> dict[str, list[Contrast]]:
    """Hypothesis → its contrasts, as far as their cells were run."""
    made: dict[str, list[Contrast]] = {name: [] for name in STATED}

    def of(name: str, cell: Cell, kind: str = LEARNED) -> Resampled:
        return found.of(name, cell, kind, solved_only=solved_only)

    def add(name: str, label: str, number: Resampled, side: str, margin: str = "") -> None:
        if np.isfinite(number[0]):
            texts = found.weights.shape[1] * found.weights.shape[3]
            made[name].append(Contrast(label, number, side, margins[margin or name], texts))

    def advantage(cell: Cell) -> Resampled:
        return of("accuracy", cell) - of("accuracy", cell, UNIFORM)

    def smallest_change(cell: Cell) -> Resampled:  # of the adversaries whose mean JSD is far
        kinds = [
            kind
            for (name, own, kind), parts in found.found.items()
            if (name, own) == ("far", cell) and parts[..., 0].sum() >= FAR * parts[..., 1].sum()
        ]
        changes = [found.of("tvd", cell, kind) for kind in kinds]
        return min(changes, key=lambda one: float(one[0]), default=np.full(1, np.nan))

    def averaged(numbers: list[Resampled]) -> Resampled:
        known = [number for number in numbers if np.isfinite(number[0])]
        with warnings.catch_warnings(
            action="ignore", category=RuntimeWarning
        ):  # of resamples that have none
            return np.nanmean(known, 0) if known else np.full(1, np.nan)

    def apart(
        name: str, one: Mapping[str, Any], other: Mapping[str, Any], **fixed: Any
    ) -> Resampled:
        pairs = [(cell, cell._replace(**other)) for cell in found.cells(name, **one, **fixed)]
        return averaged([of(name, second) - of(name, first) for first, second in pairs])

    for cell in found.cells("accuracy", texts=4000):
        if cell.family not in BOUNDS:
            add("Q1a", " ".join(map(str, cell)), advantage(cell), "within")
    for cell in found.cells("accuracy", family=tuple(BOUNDS), width=32, texts=1000, length=1):
        add("Q1b", f"{cell.family} {cell.encoder}", advantage(cell), "above")
        over = of("accuracy", cell, UNIFORM) - BOUNDS[cell.family]
        add(
            "Q1b",
            f"{cell.family} {cell.encoder}, equal weights over their bound",
            over,
            "below",
            "Q1b bound",
        )
    for cell in found.cells("accuracy", family="token", texts=250, length=4):
        add("Q1c", cell.encoder, advantage(cell) - advantage(cell._replace(texts=4000)), "above")
    plain = {"family": ("token", "twins", "majority5"), "width": 32, "texts": 1000, "length": 1}
    without, context = (
        averaged([of("word", cell) for cell in found.cells("word", encoder=encoders, **plain)])
        for encoders in ("average", ("lstm", "transformer2"))
    )
    add("Q2a", "words, average minus LSTM and transformer", without - context, "above")
    for encoder in dict.fromkeys(
        cell.encoder for cell in found.cells("state", **plain) if cell.encoder != "average"
    ):
        lost = apart("state", {"encoder": "average"}, {"encoder": encoder}, **plain)
        add("Q2b", f"states, {encoder} minus average", lost, "within")
    for name, cell, kind in found.found:
        if name == "gain" and kind.endswith(("_leak", "_none")):
            side, margin = ("above", "Q3 leak") if kind.endswith("_leak") else ("below", "Q3 none")
            label = f"{kind.replace('_', ', ').replace('none', 'no leak')}: {cell.encoder}"
            add("Q3", label, of(name, cell, kind), side, margin)
    add(
        "Q4a",
        "nats per doubling of length",
        apart("jsd", {"length": 1}, {"length": 4}) / 2,
        "above",
        "Q4a length",
    )
    add(
        "Q4a",
        "nats per doubling of width",
        apart("jsd", {"width": 8}, {"width": 128}) / 4,
        "within",
        "Q4a width",
    )
    for cell in found.solved:
        if cell.width == 8:
            apart_by = smallest_change(cell) - smallest_change(cell._replace(width=128))
            add("Q4b", f"{cell.family} {cell.encoder}, width 8 minus 128", apart_by, "above")
    return made


def verdicts(made: Mapping[str, list[Contrast]]) -> pd.DataFrame:
    """A row per hypothesis: its verdict, and its weakest contrast. All contrasts have to hold (an
    intersection-union test, whose p is the largest), one that is refuted refutes; p by Holm over
    the hypotheses, from 0.05 on the verdict is open."""
    rows = []
    for name, several in made.items():
        row: dict[str, Any] = dict(
            zip(("", "hypothesis", "refuted if"), (name, *STATED[name]), strict=True)
        )
        judged = [(one, *one.judged()) for one in several]
        refuted = [one for one in judged if one[1] == "refuted"]
        # the one that decides: refuted most surely (of so many that were looked at), else held
        # least surely
        chosen = min(refuted, key=lambda one: one[5], default=None) or max(
            judged, key=lambda one: np.nan_to_num(one[5], nan=2.0), default=None
        )
        rows.append(row | {"contrasts": len(several), "verdict": "not run"})
        if chosen is not None:
            contrast, _, value, low, high, p = chosen
            said = (
                "refuted"
                if refuted
                else "holds"
                if all(one[1] == "holds" for one in judged)
                else "open"
            )
            sign = {"above": ">", "below": "≤", "within": "±"}[contrast.side]
            rows[-1] |= {
                "verdict": said,
                "p": min(1.0, p * len(judged)) if refuted else p,
                "decided by": contrast.label,
                "asked": f"{sign} {contrast.margin:g}",
                "number": value,
                "low": low,
                "high": high,
            }
    table = pd.DataFrame(rows)
    if "p" in table:
        table["p"] = holm(table["p"].tolist())
        table.loc[~(table["p"] < 0.05) & table["verdict"].isin(["holds", "refuted"]), "verdict"] = (
            "open"
        )
    return table


def read(directory: Path, content: dict[str, Any]) -> StudyReading:
    """Eight verdicts, four figures, and the share of models that solved their task."""
    found = Grid(directory, content)
    settings = content["settings"]
    first = content["members"][0]
    table, strict = (
        verdicts(contrasts(found, {**MARGINS, **settings["margins"]}, one)) for one in (False, True)
    )
    table["solved models only"] = strict["verdict"]
    solved = []
    for cell, one in found.solved.items():
        row = cell._asdict() | {"models": one.size, "solved": int(one.sum())}
        row |= in_columns("share", wilson(int(one.sum()), one.size))
        row |= {
            "accuracy": found.of("accuracy", cell)[0],
            "equal weights": found.of("accuracy", cell, UNIFORM)[0],
        }
        solved.append(row | {name: found.of(name, cell)[0] for name in ("word", "state")})
    family, encoder, *_ = first["role"].split("-")
    kinds = [f"{right}_{leak}" for right in ("right", "wrong") for leak in ("leak", "none")]
    rightness = [
        (cell, found.of("state", cell)[0], found.of("word", cell)) for cell in found.cells("state")
    ]
    gains = [
        (cell, kinds.index(kind), found.of(name, cell, kind))
        for name, cell, kind in found.found
        if name == "gain" and kind in kinds
    ]
    farthest = [(cell, np.log2(cell.width), found.of("jsd", cell)) for cell in found.cells("jsd")]
    ticks = [kind.replace("_", ",\n").replace("none", "no leak") for kind in kinds]
    figures = [
        Advantages(
            "questions_gain",
            "Accuracy of learned minus equal weights by the number of training texts, a panel per encoder.",
            found,
        ),
        Dots(
            "questions_states",
            "Rightness about words against rightness about states, a dot per cell.",
            x="rightness about states",
            y="rightness about words",
            points=rightness,
        ),
        Dots(
            "questions_transfer",
            "What a model without context gains by the weights of four built attentions.",
            x="built attention",
            y="gain of the guide",
            points=gains,
            ticks=ticks,
        ),
        Dots(
            "questions_distance",
            "The farthest attention with the same prediction (nats), by length and width.",
            x="log₂ width (squares: texts four times as long)",
            y="farthest attention (nats)",
            points=farthest,
        ),
    ]
    said = ", ".join(
        f"{count} {verdict}" for verdict, count in table["verdict"].value_counts().items()
    )
    return StudyReading(
        "Four open questions: is attention needed, what is its meaning, does it transfer, what eases adversaries?",
        f"{len(content['members'])} small models on texts whose rule is known: {len(settings['draws'])} draws of the data × "
        f"{len(settings['seeds'])} seeds. Intervals resample draws, seeds and texts; p by Holm over the hypotheses. "
        f"{content['plan']}",
        family,
        encoder,
        directory,
        figures=figures,
        runs=[directory / first["directory"]],
        tables={
            "Hypotheses, each with the contrast that decides it and its 95 % interval": table,
            "Models that solved their task (accuracy of 0.95), by cell": pd.DataFrame(solved),
        },
        answer=f"Of eight hypotheses {said}.",
    )


@dataclass(frozen=True)
class Advantages(StudyFigure):
    """The accuracies of all cells."""

    found: Grid


@drawing.draw.register
def draw_advantages(figure: Advantages) -> Figure:
    """Learned minus equal weights against the number of texts."""
    return advantages(figure.found)


@dataclass(frozen=True)
class Dots(StudyFigure):
    """Cells, each with its x and its y with resamples; `x`, `y`: labels of the axes."""

    x: str
    y: str
    points: Sequence[tuple[Cell, float, Resampled]]
    ticks: Sequence[str] = ()


@drawing.draw.register
def draw_dots(figure: Dots) -> Figure:
    """Each cell with its interval."""
    return dots(figure.x, figure.y, figure.points, figure.ticks)


def advantages(found: Grid) -> Figure:
    """Learned minus equal weights against the number of texts."""
    learned = found.cells("accuracy", width=32, length=1)
    cells = sorted(cell for cell in learned if ("accuracy", cell, UNIFORM) in found.found)
    encoders, families, sizes = (sorted({cell[knob] for cell in cells}) for knob in (1, 0, 3))
    figure, axes = grid(max(1, len(encoders)), panel_height=1.4)
    handles = {}
    for cell in cells:
        panel = axes[encoders.index(cell.encoder)]
        others = [one for one in cells if one[:2] == cell[:2]]
        own = [
            found.of("accuracy", one)[0] - found.of("accuracy", one, UNIFORM)[0] for one in others
        ]
        look: dict[str, Any] = {"color": f"C{families.index(cell.family)}", "label": cell.family}
        (handles[cell.family],) = panel.plot(
            [sizes.index(one.texts) for one in others], own, "o-", ms=3, lw=1, **look
        )
        panel.set_xticks(range(len(sizes)), list(map(str, sizes)))
        title(panel, cell.encoder)
    around(figure, x="training texts", y="learned − equal weights", handles=list(handles.values()))
    return figure


def dots(
    x: str, y: str, several: Sequence[tuple[Cell, float, Resampled]], ticks: Sequence[str] = ()
) -> Figure:
    """One panel of cells, each with its x and its y with an interval, a colour per encoder; longer
    texts are squares."""
    figure, axes = grid(1, panel_height=2.2)
    encoders = list(dict.fromkeys(cell.encoder for cell, _, _ in several))
    handles: dict[str, Any] = {}
    for cell, place, number in several:
        if np.isfinite(number[0]):
            colour = f"C{encoders.index(cell.encoder)}"
            shape = "s" if cell.length > 1 else "o"
            axes[0].plot(
                [place, place],
                np.nanquantile(number, [0.025, 0.975]),
                "-",
                color=colour,
                lw=0.8,
                alpha=0.5,
            )
            (mark,) = axes[0].plot(
                place, number[0], shape, ms=3.5, color=colour, label=cell.encoder
            )
            handles.setdefault(cell.encoder, mark)
    if ticks:
        axes[0].set_xticks(range(len(ticks)), ticks)
    around(figure, x=x, y=y, handles=list(handles.values()))
    return figure
