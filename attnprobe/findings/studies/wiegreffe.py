"""Wiegreffe & Pinter 2019, *Attention is not not Explanation*: its four tests as one study. Is
attention needed, stable, of use to another model, and can a trained adversary escape it?"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke

from attnprobe.core.errors import UserError
from attnprobe.core.sanitise import quoted
from attnprobe.core.settings import NotNegative, Seed
from attnprobe.evidence.claims import Claim
from attnprobe.evidence.evidence import FAILS, MEETS, NO_DIFFERENCE, Evidence
from attnprobe.evidence.published import NUMBERS
from attnprobe.evidence.statistics import f1_of, in_columns, interval, student
from attnprobe.findings.members import (
    CLAIM,
    Score,
    balanced_accuracy,
    difference,
    measured,
    of_pairs,
    parts_of_run,
    performance,
    stability,
    whole,
)
from attnprobe.findings.studies.base import (
    Done,
    Member,
    Study,
    StudyReading,
    without_learned_attention,
)
from attnprobe.plots.grid import NOTE_SIZE, around
from attnprobe.plots.grid import title as panel_title
from attnprobe.plots.style import (
    CLASS_COLOURS,
    FAINT,
    FOUND,
    INK,
    OPTIMUM,
    TEXT_WIDTH,
    class_names,
    new_figure,
    violin,
)
from attnprobe.results.directory import RunDirectory, table_file
from attnprobe.results.pivot import MAX_ATTENTION_BINS, max_attention_bin, named, split_by_class
from attnprobe.results.table import contents_of

TESTS = ("uniform", "seeds", "guide", "adversary")


@dataclass(frozen=True)
class Wiegreffe(Study):
    """Is attention needed (uniform), stable (seeds), carrying the label (guide), and can a model
    trained to that end escape it (adversary)? Sections 3.2, 3.3, 3.4 and 4 of the paper.

    The base is the command line's model. Every F1 is compared over the same seeds.

    Attributes:
        tests: any of uniform, seeds, guide, adversary.
        seeds: further seeds, in addition to the command line's.
        weights: λ of the trained adversaries, one model each.
        guide: the model without context that is guided; a choice of `model`.
        above: the adversary that guides is the closest (TVD) of those whose JSD is larger, on the
            validation split.
        model_class: of a whole model (`without_learned_attention`); None: one of three stages.
    """

    name: ClassVar[str] = "wiegreffe"
    tests: Sequence[Literal[TESTS]] = TESTS
    seeds: Sequence[Seed] = ()
    weights: Sequence[NotNegative] = ()
    guide: str = "average"
    above: float = 0.4
    model_class: str | None = None

    def __post_init__(self) -> None:
        if self.model_class is not None and set(self.tests) & {"guide", "adversary"}:
            raise UserError(
                "study.tests: guide and adversary train models of three stages against each other, and model=pretrained is a "
                "whole one: take study.tests=[uniform,seeds], or +experiment=audit"
            )
        if "seeds" in self.tests and not self.seeds:
            raise UserError(
                "study.seeds is empty: the test over seeds needs at least one further seed, the paper has 8"
            )
        if {"guide", "adversary"} & set(self.tests) and not self.weights:
            raise UserError(
                "study.weights is empty: expected λ of the adversaries, such as [0.0001,0.001,0.01]"
            )

    def stages(self, seed: int, model: str, done: list[Done]) -> Iterator[list[Member]]:
        """The base; all that refers to it; the guided model that refers to the best adversary."""
        tests = set(self.tests)
        further = [other for other in self.seeds if other != seed]
        every = [seed, *further]
        yield [Member("base", seed, ("probe=[adversarial]",))]
        base = f"teacher={quoted(str(done[0].directory))}"

        members = []
        if tests & {"uniform", "seeds"}:
            members += [Member("base", other, ("probe=[teacher]", base)) for other in further]
        if "uniform" in tests:
            even = (without_learned_attention(self.model_class), "probe=[]")
            members += [Member("uniform", other, even) for other in every]
        if "guide" in tests:
            members += [self.guided("uniform", other, "model/attention=uniform") for other in every]
            members += [self.guided("trained", other) for other in every]
            members += [
                self.guided("base", other, "model/attention=imposed", base) for other in every
            ]
        if tests & {
            "guide",
            "adversary",
        }:  # the base's model, trained to predict as the base and to attend to something else
            for weight in self.weights:
                name = f"model.name={model}_adversary_{weight:g}"
                weighted = f"training.recipe.objective.weight={weight}"
                settings = ("training=adversary", weighted, name, base, "probe=[teacher]")
                members.append(Member("adversary", seed, settings, weight))
        yield members

        if "guide" in tests:
            chosen = chosen_adversary(
                [one.directory for one in done if one.member.role == "adversary"], self.above
            )
            teacher = f"teacher={quoted(str(chosen))}"
            yield [
                self.guided("adversary", other, "model/attention=imposed", teacher)
                for other in every
            ]

    def guided(self, by: str, seed: int, *overrides: str) -> Member:
        name = f"model.name={self.guide}_guided_{by}"
        return Member(f"guide_{by}", seed, (f"model={self.guide}", *overrides, name, "probe=[]"))


LN2 = float(np.log(2))


def statement(
    name: str, criterion: str, text: str, section: str, quantity: str, **settings: Any
) -> Claim:
    """A claim of the paper whose number is of several runs; `settings`: further fields of it."""
    source = f"Wiegreffe & Pinter 2019, section {section}"
    return Claim(
        name, criterion, text, source, lambda rows: None, quantity, **{"speaks": "for"} | settings
    )


def told(
    evidence: Evidence, smallest: float, yes: str, no: str, otherwise: str, same: str = ""
) -> str:
    """What an interval says, in words; `same`: of no relevant difference, instead of `no`."""
    return {MEETS: yes, FAILS: no, NO_DIFFERENCE: same or no}.get(
        evidence.exceeds(0, smallest), otherwise
    )


def cite(evidence: Evidence) -> str:
    """`0.012 [0.003, 0.021]`, or the number alone where there is no interval."""
    number = f"{evidence.value:.3f}"
    return (
        number if np.isnan(evidence.low) else f"{number} [{evidence.low:.3f}, {evidence.high:.3f}]"
    )


TEACHER = ("tvd", "jsd", "teacher_max_attention", "teacher_predicted_class")
ADVERSARIAL = (
    "found_jsd",
    "found_tvd",
    "optimum_jsd",
    "optimum_tvd",
    "is_exact",
    "max_attention",
    "predicted_class",
)
"""What is read of the two probes' tables."""
MARGIN = 0.01
"""F1, or balanced accuracy, that is no difference worth speaking of, however little the seeds
vary."""


def margin_of(scores: Sequence[float]) -> float:
    """The standard deviation of the seeds' scores, at least `MARGIN`: a difference no larger is
    what another seed makes."""
    return max(MARGIN, round(float(np.std(scores, ddof=1)), 3) if len(scores) > 1 else 0.0)


@dataclass(frozen=True)
class Members:
    """The study's runs by role, and the numbers that are read from their tables."""

    directory: Path
    content: Mapping[str, Any]

    def reading(self, title: str, about: str, notes: list[str]) -> StudyReading:
        """One without findings as yet; `{data}` and `{model}` stand in the title."""
        data = str(self.content["data"])
        model = str(self.content["model"])
        runs = list(self.of("base")["path"])
        named = title.format(data=data, model=model)
        return StudyReading(named, about, data, model, self.directory, [], runs=runs, notes=notes)

    @cached_property
    def runs(self) -> pd.DataFrame:
        """`role seed parameter path f1`: F1 of class 1 on the test split (macro F1 where there are
        more classes)."""
        rows = []
        for member in self.content["members"]:
            path = self.directory / member["directory"]
            f1 = whole(path, "performance", "f1")
            f1 = f1 if len(f1) == 2 else whole(path, "performance", "f1_macro")
            rows.append(member | {"path": path, "f1": float(f1.iloc[-1])})
        return pd.DataFrame(rows)

    def of(self, role: str) -> pd.DataFrame:
        return self.runs[self.runs["role"] == role]

    def parts(self, role: str, score: Score = f1_of) -> dict[int, np.ndarray]:
        """By seed, what F1 is made of, or balanced accuracy."""
        return {
            int(seed): parts_of_run(path, score)
            for seed, path in self.of(role)[["seed", "path"]].to_numpy()
        }

    def to_base(self, role: str) -> pd.DataFrame:
        """`tvd jsd teacher_max_attention …` per `seed parameter example_id`, of the runs of a role
        (but the base itself) that are compared with the base; empty where there are none."""
        runs = self.of(role)[1 if role == "base" else 0 :].to_dict("records")
        parts = [
            measured(run["path"], "teacher", TEACHER).assign(
                seed=run["seed"], parameter=run["parameter"]
            )
            for run in runs
        ]
        there = [part for part in parts if not part.empty]
        return pd.concat(there) if there else pd.DataFrame()

    @cached_property
    def single(self) -> pd.DataFrame:
        """The base's per-example adversaries: `found_jsd found_tvd optimum_jsd optimum_tvd …` by
        example; empty where the base was not searched for them, or solved only
        (`probe.adversarial.restarts=0`)."""
        run = RunDirectory(self.of("base")["path"].iloc[0])
        searched = (
            "adversarial" in run.probes()
            and contents_of(run.file(table_file("adversarial"))).metrics
        )
        return (
            measured(run.path, "adversarial", ADVERSARIAL)
            if "found_jsd" in (searched or ())
            else pd.DataFrame()
        )

    @property
    def best(self) -> str:
        """What the farthest attentions of the base's examples are: `exact`, or known, and the share
        of them that is exact."""
        share = float((self.single["is_exact"] == 1).mean())
        return "exact" if share == 1 else f"farthest known, {100 * share:.0f} % exact"


SEEDS = CLASS_COLOURS[2]


def scored(
    members: Members, roles: Mapping[str, str], papers: Mapping[str, float], *, balanced: bool
) -> pd.DataFrame:
    """A row of F1, and of balanced accuracy, per role; the roles are called as said."""
    lines = []
    for role, name in roles.items():
        f1 = performance(members.parts(role))
        paper = papers.get(f"f1_{role}", np.nan)
        line: dict[str, Any] = {"model": name, "texts": f1.n} | in_columns(
            "F1", (f1.value, f1.low, f1.high)
        )
        line |= {"published (unverified)": paper, "difference": f1.value - paper}
        if balanced:
            found = performance(members.parts(role, balanced_accuracy), balanced_accuracy)
            line |= in_columns("balanced accuracy", (found.value, found.low, found.high))
        lines.append(line)
    return pd.DataFrame(lines).dropna(axis="columns", how="all")


def performances(
    members: Members, roles: Mapping[str, str], papers: Mapping[str, float], title: str
) -> Figure:
    """A row per role: a dot per seed, the mean with Student's interval, a cross for the published
    number."""
    figure = new_figure(TEXT_WIDTH * 0.75, 0.8 + 0.34 * len(roles))
    axes = figure.subplots()
    for at, role in enumerate(roles):
        sample = members.of(role)["f1"].to_numpy()
        axes.plot(
            sample, np.full(len(sample), at + 0.14), "o", ms=2.6, mew=0, alpha=0.55, color=OPTIMUM
        )
        mean, low, high = student(sample, low=0, high=1)
        if len(sample) > 1:
            axes.plot([low, high], [at - 0.12] * 2, "-", lw=2, color=INK, solid_capstyle="butt")
        axes.plot([mean], [at - 0.12], "o", ms=4, mfc="white", mec=INK, zorder=4)
        if f"f1_{role}" in papers:
            axes.plot([papers[f"f1_{role}"]], [at], "x", ms=5, color=FOUND, mew=1.4, zorder=5)
    axes.set_yticks(range(len(roles)), list(roles.values()))
    axes.set_ylim(len(roles) - 0.5, -0.5)
    # some air beside the outermost dots, but no axis beyond what F1 can be
    left, right = axes.get_xlim()
    axes.set_xlim(max(-0.02, left), min(1.02, right))
    axes.set_xlabel("F1 on the test split")
    panel_title(axes, title, width=3.5 * 72)
    handles = [
        Line2D([], [], ls="", marker="o", ms=2.6, color=OPTIMUM, label="one seed"),
        Line2D([], [], color=INK, lw=2, marker="o", mfc="white", label="mean, 95 % interval"),
    ]
    if any(f"f1_{role}" in papers for role in roles):
        handles.append(
            Line2D([], [], ls="", marker="x", color=FOUND, mew=1.4, label="published (unverified)")
        )
    around(figure, handles=handles)
    return figure


def spread(frame: pd.DataFrame, title: str, best: str) -> Figure:
    """Violins of `seeds`, and of `found_jsd` and `optimum_jsd` (called `best`) where they are
    known, by bins of `max_attention`, one panel per predicted class (all in one where there are
    more than two)."""
    parts = [
        (name if rows is frame else f"predicted {name}", rows)
        for name, rows in split_by_class(frame, 2)
    ]
    figure = new_figure(TEXT_WIDTH * (0.6 if len(parts) == 1 else 1), 3.1)
    panels = np.atleast_1d(figure.subplots(1, len(parts), sharex=True, sharey=True))
    known = (
        ("seeds", "median over seeds", SEEDS),
        ("found_jsd", "adversary, search", FOUND),
        ("optimum_jsd", best, OPTIMUM),
    )
    columns = [one for one in known if one[0] in frame]
    for axes, (name, rows) in zip(panels, parts, strict=True):
        bins = max_attention_bin(rows["max_attention"].to_numpy())
        for b in range(len(MAX_ATTENTION_BINS)):
            for place, (column, _, colour) in enumerate(columns):
                violin(
                    axes, rows[column].to_numpy()[bins == b], b + 0.27 - 0.27 * place, 0.25, colour
                )
            count = int((bins == b).sum())
            axes.annotate(
                f"n = {count:,}",
                (1.0, b + 0.45),
                xycoords=("axes fraction", "data"),
                fontsize=NOTE_SIZE,
                color=FAINT,
                va="center",
                ha="right",
            )
        axes.axvline(LN2, lw=0.6, ls=":", color=FAINT)
        axes.set_xlim(0, 0.8)
        axes.set_yticks(range(len(MAX_ATTENTION_BINS)), MAX_ATTENTION_BINS)
        axes.set_ylim(-0.45, len(MAX_ATTENTION_BINS) - 0.35)
        panel_title(axes, f"{title} · {name}", width=2.5 * 72)
    handles = [Patch(color=colour, alpha=0.6, label=label) for _, label, colour in columns]
    around(
        figure,
        x="JSD to the base's attention (nats)",
        y="largest attention weight of the base",
        handles=handles,
    )
    return figure


def curve(
    table: pd.DataFrame,
    seeds: pd.DataFrame,
    single: "pd.Series[float]",
    quoted: pd.DataFrame,
    title: str,
    best: str,
) -> Figure:
    """TVD against JSD: the trained adversaries along λ with intervals, the seeds, the
    single-prediction adversaries' means (`best`: what that of the solver is called), and the
    published point."""
    figure = new_figure(TEXT_WIDTH * 0.75, 3.0)
    axes = figure.subplots()
    x, y = (
        np.abs(table[[f"{one} low", f"{one} high"]].to_numpy().T - table[one].to_numpy())
        for one in ("TVD", "JSD")
    )
    look: dict[str, Any] = {
        "fmt": "o-",
        "ms": 3.5,
        "lw": 0.9,
        "color": CLASS_COLOURS[3],
        "label": "trained adversary",
    }
    axes.errorbar(table["TVD"], table["JSD"], xerr=x, yerr=y, **look)
    for label, tvd, jsd in labels(table):
        # off the bars, which are straight above and beside the point; the rim keeps it legible on
        # other points' lines
        axes.annotate(
            label,
            (tvd, jsd),
            xytext=(4, 4),
            textcoords="offset points",
            fontsize=NOTE_SIZE,
            color=INK,
            zorder=6,
            path_effects=[withStroke(linewidth=2, foreground="white")],
        )
    if not seeds.empty:
        axes.plot(
            seeds["tvd"], seeds["jsd"], "s", ms=3, color=SEEDS, label="other seeds of the base"
        )
    axes.plot(
        single["found_tvd"],
        single["found_jsd"],
        "^",
        ms=5,
        color=FOUND,
        label="single predictions, search",
    )
    solved = f"single predictions, {best}"
    axes.plot(
        single["optimum_tvd"], single["optimum_jsd"], "D", ms=4.5, color=OPTIMUM, label=solved
    )
    if not quoted.empty:
        named = "published (unverified; TVD in half units)"
        axes.plot(quoted["TVD"], quoted["JSD"], "x", ms=6, mew=1.4, color=INK, label=named)
    axes.axhline(LN2, lw=0.6, ls=":", color=FAINT)
    axes.set_ylim(0, 0.72)
    axes.set_xlim(left=0, right=axes.get_xlim()[1] * 1.15)  # room for the last point's label
    axes.set_xlabel("TVD of the predictions to the base's")
    axes.set_ylabel("JSD of the attention to the base's (nats)")
    panel_title(axes, title, width=3.5 * 72)
    around(figure, handles=axes.get_legend_handles_labels()[0])
    return figure


def labels(table: pd.DataFrame) -> list[tuple[str, float, float]]:
    """`(λ in words, TVD, JSD)` for the points of the curve; neighbours that lie on each other share
    a label.

    >>> labels(pd.DataFrame({"lambda": [0, 0.001, 0.01], "TVD": [0.05, 0.051, 0.1], "JSD": [0.03, 0.03, 0.6]}))
    [('λ = 0 to 0.001', 0.051, 0.03), ('λ = 0.01', 0.1, 0.6)]
    """
    found: list[tuple[float, float, float, float]] = []  # first and last λ, TVD and JSD of the last
    for weight, tvd, jsd in table[["lambda", "TVD", "JSD"]].to_numpy(float).tolist():
        near = bool(found) and np.hypot(tvd - found[-1][2], jsd - found[-1][3]) <= 0.02
        found.append((found.pop()[0] if near else weight, weight, tvd, jsd))
    return [
        (f"λ = {first:g}{'' if first == last else f' to {last:g}'}", tvd, jsd)
        for first, last, tvd, jsd in found
    ]


# Can an adversary trained end to end escape? (Wiegreffe & Pinter 2019, section 4, table 4 and
# figure 5)


FAR = 0.4
NEAR = 0.05
"""An adversary counts as found with a JSD above the one (the paper's table 4) and a TVD no more
than the other above that of plain distillation, λ = 0: imitating a model has a price of its own,
some 0.05."""


def chosen_adversary(adversaries: Sequence[Path], above: float) -> Path:
    """The trained adversary that stands for all: of those whose JSD to the base exceeds `above`,
    the one whose predictions are the closest; where there is none, the farthest. Goes by the
    validation split, so that the test split has no say."""
    reached = {}  # mean TVD and JSD to the base in the epoch whose weights were kept
    for run in adversaries:
        curves = pd.DataFrame(
            {one: whole(run, "training", f"validation_{one}") for one in ("loss", "tvd", "jsd")}
        )
        reached[run] = curves.sort_values("loss", kind="stable").iloc[0]
    if far := [run for run in adversaries if reached[run]["jsd"] > above]:
        return min(far, key=lambda run: float(reached[run]["tvd"]))
    return max(adversaries, key=lambda run: float(reached[run]["jsd"]))


def adversary(reading: StudyReading, members: Members, papers: Mapping[str, float]) -> None:
    """Table 4 and the curve: adversaries trained end to end."""
    compared = members.to_base("adversary")
    performance = members.of("adversary").set_index("parameter")["f1"]
    lines = []
    for weight, part in compared.groupby("parameter", sort=True):
        distances = in_columns("TVD", interval(part["tvd"])) | in_columns(
            "JSD", interval(part["jsd"])
        )
        lines.append({"lambda": weight, "F1": performance[weight]} | distances)
    table = pd.DataFrame(lines)
    paper = {
        "lambda": "adversary_lambda",
        "F1": "adversary_f1",
        "TVD": "adversary_tvd",
        "JSD": "adversary_jsd",
    }
    quoted = pd.DataFrame(
        [{name: papers.get(metric, np.nan) for name, metric in paper.items()}]
    ).dropna()
    captioned = pd.concat(
        [table.assign(source="measured"), quoted.assign(source="published, unverified")]
    )
    reading.tables["Adversaries trained end to end (the paper's table 4 and figure 5)"] = captioned
    own = (
        float(table.loc[table["lambda"] == 0, "TVD"].iloc[0])
        if (table["lambda"] == 0).any()
        else NEAR
    )
    allowed = own + NEAR
    text = f"An adversary trained end to end was found: a JSD above {FAR} nats at a TVD below {allowed:.3f}"
    claim = statement(
        "adversary_escapes",
        "exclusivity",
        text,
        "4",
        f"{allowed:.3f} (that of λ = 0 and {NEAR}) − TVD of the "
        f"adversary chosen on the validation split; JSD − {FAR} if that is not above 0",
        speaks="neither",
    )
    runs = dict(
        zip(members.of("adversary")["path"], members.of("adversary")["parameter"], strict=True)
    )
    weight = float(runs[chosen_adversary(list(runs), float(members.content["settings"]["above"]))])
    best = table[table["lambda"] == weight].iloc[0]
    far = best["JSD low"] > FAR
    values = (
        allowed - best[["TVD", "TVD high", "TVD low"]]
        if far
        else best[["JSD", "JSD low", "JSD high"]] - FAR
    )
    value, low, high = values.astype(float)
    evidence = Evidence(value, low, high, n=compared.index.nunique())
    none = "No adversary was found, which does not say that there is none"
    sentence = "An adversary was found" if evidence.exceeds(0) == MEETS else none
    jsd, tvd = (
        f"{best[one]:.3f} [{best[f'{one} low']:.3f}, {best[f'{one} high']:.3f}]"
        for one in ("JSD", "TVD")
    )
    words = (
        f"{sentence}: with λ = {weight:g}, chosen on the validation split, attention moves by a JSD of {jsd} nats while "
        f"predictions move by a TVD of {tvd}."
    )
    reading.add(claim, evidence, words)
    others = members.to_base("base")
    points = others if others.empty else others.groupby("seed")[["tvd", "jsd"]].mean()
    single: pd.Series[float] = members.single[
        ["found_tvd", "found_jsd", "optimum_tvd", "optimum_jsd"]
    ].mean()
    caption = (
        "How far attention moves (JSD) against how far predictions do (TVD): one point per λ, the other seeds of the base, "
        "and the adversaries against single predictions."
    )
    drawn = curve(table, points, single, quoted, reading.data, members.best)
    reading.figures.append(("adversary", caption, drawn))


# Is attention needed? Learned against uniform attention (Wiegreffe & Pinter 2019, section 3.2,
# table 2)


def uniform(reading: StudyReading, members: Members, papers: Mapping[str, float]) -> None:
    """Table 2: learned against uniform attention."""
    roles = {"base": "learned attention", "uniform": "uniform attention"}
    reading.tables["Uniform attention, frozen (the paper's table 2)"] = scored(
        members, roles, papers, balanced=False
    )
    base = members.parts("base")
    gain = difference(base, members.parts("uniform"))
    margin = margin_of(members.of("base")["f1"].tolist())
    claim = statement(
        "attention_is_needed",
        "necessity",
        "The model classifies better with learned weights than with equal ones",
        "3.2",
        f"difference of F1, learned − uniform; up to {margin:g}, what another seed makes, is no relevant "
        "difference",
        smallest=margin,
        primary=True,
    )
    words = told(
        gain,
        margin,
        "Learned attention is better by {}: on this data set attention is of use, and tests of it can inform.",
        "Learned attention is not better ({}): on this data set attention is not needed, and the other tests of it are not "
        "informative.",
        "The difference, {}, is not told apart from none.",
        "Learned and uniform attention differ by no more than another seed makes ({}): on this data set attention is not "
        "needed, and the other tests of it are not informative.",
    )
    reading.add(
        claim, gain, words.format(f"{cite(gain)} F1 over {len(base)} seeds and {gain.n:,} texts")
    )
    caption = "F1 with learned and with uniform attention: a dot per seed, and their mean with its interval."
    drawn = performances(members, {"base": "learned", "uniform": "uniform"}, papers, reading.data)
    reading.figures.append(("uniform", caption, drawn))


# Is attention stable? The same model from other seeds (Wiegreffe & Pinter 2019, section 3.3)


def seeds(reading: StudyReading, members: Members) -> None:
    """Whether the seeds attend to the same words; how far their attention is from the base's, and
    whether adversaries of single predictions get farther, where these were searched for."""
    others = members.to_base("base")
    single = members.single
    if others.empty:
        reading.notes.append(
            "No other seed was trained: whether attention is stable over seeds is not tested."
        )
        return
    pairs = of_pairs(list(members.of("base")["path"]))
    evidence = stability(pairs)
    jsd, shuffled, same, chance = pairs[~np.eye(len(pairs), dtype=bool)].mean((0, 1))
    no = "Seeds attend no more alike than a shuffle of their weights"
    verdict = told(
        evidence, CLAIM.smallest, "Seeds attend alike", no, "Whether seeds attend alike is open"
    )
    words = (
        f"{verdict}. Any two of {len(pairs)} are {jsd:.3f} nats of JSD apart, and {shuffled:.3f} if the one's weights are "
        f"shuffled. On a scale from 0, a shuffle, to 1, the same attention, this is {cite(evidence)}. The most attended "
        f"word is the same in {100 * same:.0f} % of the texts ({100 * chance:.0f} % by chance)."
    )
    reading.add(CLAIM, evidence, words)

    examples = others.groupby(level="example_id")
    names = {"seeds": "median over seeds"}
    frame = pd.DataFrame(
        {"seeds": examples["jsd"].median(), "farthest seed": examples["jsd"].max()}
    )
    if single.empty:  # what the other seeds' tables say of the base
        of_base = {
            "max_attention": "teacher_max_attention",
            "predicted_class": "teacher_predicted_class",
        }
        frame = frame.assign(**{name: examples[column].first() for name, column in of_base.items()})
    else:
        frame = frame.join(single[["found_jsd", "optimum_jsd", "max_attention", "predicted_class"]])
        names |= {"found_jsd": "adversary (search)", "optimum_jsd": f"adversary ({members.best})"}
    frame = named(frame, [class_names(Path(members.of("base")["path"].iloc[0]))])
    lines = []
    bins = max_attention_bin(frame["max_attention"].to_numpy())
    for label, part in [
        ("all", frame),
        *((MAX_ATTENTION_BINS[b], frame[bins == b]) for b in range(4)),
    ]:
        line: dict[str, Any] = {"largest attention weight": label, "examples": len(part)}
        for column, name in names.items():
            line |= in_columns(f"JSD, {name}", interval(part[column]))
        lines.append(line)
    beside = "" if single.empty else ", and adversaries against single predictions"
    reading.tables[f"JSD of attention to the base's: other seeds{beside}"] = pd.DataFrame(lines)

    count = others["seed"].nunique()
    words = (
        f"Over {count} further seed{'' if count == 1 else 's'} attention moves by a median JSD of "
        f"{cite(Evidence.of(frame['seeds'].to_numpy()))} nats (predictions by a TVD of "
        f"{examples['tvd'].median().mean():.3f})."
    )
    caption = "How far is attention from the base's, by the base's largest weight? JSD, the median over seeds per text"
    if single.empty:
        words += " Whether an adversary gets farther is not tested: it needs the probe adversarial."
        reading.notes.append(words)
        reading.figures.append(("seeds", f"{caption}.", spread(frame, reading.data, "")))
        return
    beyond = Evidence.of((frame["found_jsd"] - frame["seeds"]).to_numpy(), reach=2 * LN2)
    claim = statement(
        "seeds_are_nearer_than_adversaries",
        "stability",
        "The attention of other seeds is nearer to the base's than an adversary's for one text",
        "3.3",
        "difference of JSD in nats, adversary found by search − median over seeds",
        smallest=0.01,
    )
    outside = float((frame["optimum_jsd"] > frame["farthest seed"]).mean())
    is_open = "Whether the adversary is farther out is open ({})."
    verdict = told(
        beyond,
        0.01,
        "The adversary is farther out, by {}: seeds do not explain what it finds.",
        "The adversary is no farther out ({}): what it finds is within the spread of seeds.",
        is_open,
        same=is_open,
    )
    words += (
        f" {verdict.format(cite(beyond) + ' nats')} The farthest attention known ({members.best}) is beyond the farthest "
        f"seed in {100 * outside:.0f} % of the examples."
    )
    reading.add(claim, beyond, words)
    caption += f". Beside it the adversaries of single predictions (search, and {members.best})."
    reading.figures.append(
        ("seeds", caption, spread(frame, reading.data, f"adversary, {members.best}"))
    )


# Do the weights carry the label, so that they guide another model? (Wiegreffe & Pinter 2019,
# section 3.4, table 3)


GUIDES = {
    "guide_uniform": "uniform attention",
    "guide_trained": "attention trained with it",
    "guide_base": "attention of the base",
    "guide_adversary": "attention of the trained adversary",
}


def guide(reading: StudyReading, members: Members, papers: Mapping[str, float]) -> None:
    """Table 3: a model without context under four attentions."""
    caption = "A model without context, guided by attention (the paper's table 3)"
    reading.tables[caption] = scored(members, GUIDES, papers, balanced=True)
    balanced = {role: members.parts(role, balanced_accuracy) for role in ("base", *GUIDES)}
    margin = margin_of([float(balanced_accuracy(one.sum(0))) for one in balanced["base"].values()])
    guided = balanced["guide_base"]
    own = difference(guided, balanced["guide_trained"], balanced_accuracy)
    for name, text, than, other, says, words in (
        (
            "attention_guides",
            "The base's attention tells a model without context more of the label than equal weights",
            "uniform",
            "uniform",
            (
                "It helps",
                "It does not help by more than another seed makes",
                "Whether it helps is open",
            ),
            "{}: guided by the base the model without context gains {} balanced accuracy over uniform attention, and "
            f"{cite(own)} over attention of its own, over {len(guided)} seeds.",
        ),
        (
            "adversary_guides_worse",
            "The trained adversary's attention guides worse than the base's",
            "by the adversary",
            "adversary",
            (
                "is worse",
                "is no worse",
                "is not told apart",
                "is no worse by more than another seed makes",
            ),
            "Guidance by the adversary {}: the base's is ahead by {} balanced accuracy.",
        ),
    ):
        gain = difference(guided, balanced[f"guide_{other}"], balanced_accuracy)
        quantity = f"balanced accuracy, guided by the base − {than}; up to {margin:g} is no relevant difference"
        claim = statement(
            name, "leak", text, "3.4", quantity, smallest=margin, primary=other == "uniform"
        )
        reading.add(claim, gain, words.format(told(gain, margin, *says), cite(gain)))
    caption = "F1 of the model without context by the attention it is given: a dot per seed, their mean with its interval."
    reading.figures.append(("guide", caption, performances(members, GUIDES, papers, reading.data)))


def read(directory: Path, content: dict[str, Any]) -> StudyReading:
    """The four tests, as far as the study made them."""
    members = Members(directory, content)
    reading = members.reading(
        "{data}, {model}: is attention needed, stable, does it carry the label, and can it be escaped?",
        "Wiegreffe & Pinter's four tests. F1 is of class 1 on the test split (macro F1 with more than two classes). "
        "Guidance is judged by balanced accuracy, as F1 of one class rewards a model that always says this class. "
        "Intervals of F1 are over texts and seeds together, paired where two models are compared. Those of distances are "
        "over texts. JSD is in nats, 0 to 0.693; TVD is 0 to 1. Published values are quoted from memory and not "
        "verified; they are of models with pretrained word vectors.",
        [
            "The released code chooses the best epoch on the test split. Here the validation split alone chooses, also for "
            "the guiding adversary.",
            "The published TVD of table 4 is in the released code's unit, which is half of this one for two classes.",
        ],
    )
    published = pd.read_csv(NUMBERS / "wiegreffe_pinter.csv", comment="#").set_index("data")
    papers = dict(
        published.loc[published.index == reading.data, ["metric", "value"]].to_numpy().tolist()
    )
    tests = set(content["settings"].get("tests", ()))
    if "uniform" in tests:
        uniform(reading, members, papers)
    if "seeds" in tests:
        seeds(reading, members)
    if "guide" in tests:
        guide(reading, members, papers)
    if tests & {"guide", "adversary"}:
        adversary(reading, members, papers)
    return reading
