"""Is attention needed, stable, of use to another model, and can a trained adversary escape it? (Wiegreffe & Pinter 2019)"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attnprobe.report import published
from attnprobe.report.claims import Claim, Finding
from attnprobe.report.evidence import FAILS, HOLDS, NEGLIGIBLE, Evidence
from attnprobe.report.figures.draw import class_names
from attnprobe.report.figures.studies import curve, performances, spread
from attnprobe.report.joint import confusion, difference, performance
from attnprobe.report.stability import CLAIM, of_pairs, stability
from attnprobe.report.studies import StudyReading
from attnprobe.report.wide import MAX_ATTENTION_BINS, max_attention_bin, named
from attnprobe.results.statistics import interval
from attnprobe.results.table import read_results

LN2 = float(np.log(2))
PAPER = "Wiegreffe & Pinter 2019"
FAR, NEAR = 0.4, 0.05
"""An adversary counts as found with a JSD above the one (the paper's table 4) and a TVD no more than the other above that of
plain distillation, λ = 0: imitating a model has a price of its own, some 0.05."""
MARGIN = 0.01
"""F1 that is no difference worth speaking of, however little the seeds vary."""


@dataclass(frozen=True)
class Members:
    """The study's runs by role, and the numbers that are read from their tables."""

    directory: Path
    content: Mapping[str, Any]

    @cached_property
    def runs(self) -> pd.DataFrame:
        """`role seed parameter path f1`: F1 of class 1 on the test split (macro F1 where there are more classes)."""
        rows = []
        for member in self.content["members"]:
            path = self.directory / member["directory"]
            rows.append({name: member[name] for name in ("role", "seed", "parameter")} | {"path": path, "f1": f1(path)})
        return pd.DataFrame(rows)

    def of(self, role: str) -> pd.DataFrame:
        """The runs of one role, in the order of the study."""
        return self.runs[self.runs["role"] == role]

    def confusions(self, role: str) -> dict[int, np.ndarray]:
        """By seed, what F1 is made of (`attnprobe.report.joint`)."""
        return {int(seed): confusion(path) for seed, path in self.of(role)[["seed", "path"]].to_numpy()}

    def by_seed(self, role: str) -> "pd.Series[float]":
        """F1 by seed."""
        return self.of(role).set_index("seed")["f1"]

    @property
    def base_seed(self) -> int:
        """The seed of the run that the others refer to."""
        return int(self.of("base")["seed"].iloc[0])

    @cached_property
    def to_base(self) -> pd.DataFrame:
        """`tvd jsd teacher_max_attention …` per `role seed parameter example_id`, of all runs compared with the base."""
        parts = []
        for run in self.runs[self.runs["role"].isin(["base", "adversary"])].to_dict("records"):
            if run["role"] == "base" and run["seed"] == self.base_seed:
                continue
            wide = per_example(run["path"], "teacher")
            parts.append(wide.assign(role=run["role"], seed=run["seed"], parameter=run["parameter"]))
        return pd.concat([part for part in parts if not part.empty]) if parts else pd.DataFrame()

    @property
    def others(self) -> pd.DataFrame:
        """The rows of `to_base` of the base's other seeds; empty where there are none."""
        return self.to_base if self.to_base.empty else self.to_base[self.to_base["role"] == "base"]

    @cached_property
    def single(self) -> pd.DataFrame:
        """The base's per-example adversaries: `found_jsd found_tvd optimum_jsd optimum_tvd …` by example; empty where the
        base was not searched for them."""
        return per_example(Path(self.of("base")["path"].iloc[0]), "adversarial")

    @property
    def best(self) -> str:
        """What the farthest attentions of the base's examples are: `exact`, or known with so many of them exact."""
        share = float((self.single["is_exact"] == 1).mean())
        return "exact" if share == 1 else f"farthest known, {100 * share:.0f} % exact"

    @property
    def classes(self) -> list[str]:
        """The names of the base's classes."""
        return class_names(Path(self.of("base")["path"].iloc[0]))

    def has(self, test: str) -> bool:
        """Whether the study made this test."""
        return test in self.content["settings"]["tests"]


def f1(run: Path) -> float:
    """F1 of class 1 of one run on the test split; macro F1 where the classes are not two."""
    rows = read_results(run, probe="performance")
    classes = rows[rows["metric"] == "f1"].set_index("step")["value"]
    if len(classes) == 2:
        return float(classes[1.0])
    return float(rows.loc[rows["metric"] == "f1_macro", "value"].iloc[0])


def per_example(run: Path, probe: str) -> pd.DataFrame:
    """One row per example, one column per metric without steps."""
    rows = read_results(run, probe=probe)
    rows = rows[rows["step"].isna() & (rows["example_id"] >= 0)]
    wide = rows.assign(metric=rows["metric"].astype(str)).pivot(index="example_id", columns="metric", values="value")
    return wide.rename_axis(columns=None)


def validation(run: Path) -> dict[str, float]:
    """Mean `tvd` and `jsd` to the teacher on the validation split, in the epoch whose weights were kept."""
    rows = read_results(run, probe="training")
    curves = {str(metric): part.sort_values("step")["value"] for metric, part in rows.groupby("metric", observed=True)}
    kept = int(np.argmin(curves["validation_loss"].to_numpy()))
    return {name: float(curves[f"validation_{name}"].to_numpy()[kept]) for name in ("tvd", "jsd")}


def choose(adversaries: Sequence[Path], above: float) -> Path:
    """The trained adversary that stands for all: of those whose JSD to the base exceeds `above`, the one whose predictions
    are the closest; where there is none, the farthest. Goes by the validation split, so that the test split has no say."""
    reached = {run: validation(run) for run in adversaries}
    if far := [run for run in adversaries if reached[run]["jsd"] > above]:
        return min(far, key=lambda run: reached[run]["tvd"])
    return max(adversaries, key=lambda run: reached[run]["jsd"])


def seeds_vary(members: Members) -> float:
    """Standard deviation of the base's F1 over its seeds, at least `MARGIN`: a difference no larger is what another seed
    makes as well."""
    spread = members.by_seed("base").std(ddof=1)
    return max(MARGIN, 0.0 if np.isnan(spread) else round(float(spread), 3))


def read(directory: Path, content: dict[str, Any]) -> StudyReading:
    """The four tests, as far as the study made them."""
    members = Members(directory, content)
    data, model = str(content["data"]), str(content["model"])
    reading = StudyReading(
        title=f"{data}, {model}: is attention needed, stable, transferable, and can it be escaped?",
        about=(
            "Wiegreffe & Pinter's four tests. F1 is of class 1 on the test split (macro F1 with more than two classes), "
            "intervals of F1 are over texts and seeds together, paired where two models are compared; intervals of "
            "distances are bootstrapped over examples. JSD in nats, 0 to 0.693; TVD 0 to 1. Published values are quoted from "
            "memory and not verified; they are of models with pretrained word vectors."
        ),
        data=data,
        model=model,
        directory=directory,
        findings=[],
        runs=list(members.of("base")["path"]),
        notes=[
            "The released code chooses the best epoch on the test split; here the validation split alone chooses, the "
            "guiding adversary included.",
            "The published TVD of table 4 is in the released code's unit, which is half of this one for two classes.",
        ],
    )
    papers = published.of_study("wiegreffe_pinter.csv", data)
    if members.has("uniform"):
        uniform(reading, members, papers)
    if members.has("seeds"):
        seeds(reading, members)
    if members.has("guide"):
        guide(reading, members, papers)
    if members.has("guide") or members.has("adversary"):
        adversary(reading, members, papers)
    return reading


def add(reading: StudyReading, claim: Claim, evidence: Evidence, words: str) -> Finding:
    """File a finding and its words."""
    finding = Finding(claim, evidence, reading.data, reading.model)
    reading.findings.append(finding)
    reading.readings[claim.name] = words
    return finding


def statement(name: str, criterion: str, text: str, section: str, quantity: str, speaks: str, **settings: Any) -> Claim:
    """A claim whose number was computed from several runs and not from one table; `settings`: further fields of it."""
    return Claim(name, criterion, text, f"{PAPER}, {section}", lambda rows: None, quantity, speaks=speaks, **settings)


def shown(evidence: Evidence, digits: int = 3) -> str:
    """`0.012 [0.003, 0.021]`, or the number alone where there is no interval."""
    number = f"{evidence.value:.{digits}f}"
    return number if np.isnan(evidence.low) else f"{number} [{evidence.low:.{digits}f}, {evidence.high:.{digits}f}]"


def row(name: str, evidence: Evidence, paper: float) -> dict[str, Any]:
    """A line of a table of F1 values."""
    return {
        "model": name, "texts": evidence.n, "F1": evidence.value, "F1 low": evidence.low, "F1 high": evidence.high,
        "published (unverified)": paper, "difference": evidence.value - paper,
    }  # fmt: skip


def uniform(reading: StudyReading, members: Members, papers: Mapping[str, float]) -> None:
    """Table 2: learned against uniform attention."""
    base, even = members.by_seed("base"), members.by_seed("uniform")
    table = pd.DataFrame(
        [
            row("learned attention", performance(members.confusions("base")), papers.get("f1_base", np.nan)),
            row("uniform attention", performance(members.confusions("uniform")), papers.get("f1_uniform", np.nan)),
        ]
    )
    reading.tables["Uniform attention, frozen (the paper's table 2)"] = table.dropna(axis="columns", how="all")
    gain, margin = difference(members.confusions("base"), members.confusions("uniform")), seeds_vary(members)
    claim = statement(
        "attention_is_needed", "necessity", "Learned attention classifies better than uniform attention",
        "section 3.2", f"difference of F1, learned − uniform; up to {margin:g}, what another seed makes, is no relevant "
        "difference", "for", smallest=margin, primary=True,
    )  # fmt: skip
    words = {
        HOLDS: "Learned attention is better by {}: on this data set attention is of use, and tests of it can inform.",
        FAILS: "Learned attention is not better ({}): on this data set attention is not needed, and the other tests of it "
        "are not informative.",
        NEGLIGIBLE: "Learned and uniform attention differ by no more than another seed makes ({}): on this data set "
        "attention is not needed, and the other tests of it are not informative.",
    }.get(gain.exceeds(0, margin), "The difference, {}, is not told apart from none.")
    add(reading, claim, gain, words.format(f"{shown(gain)} F1 over {len(base)} seeds and {gain.n:,} texts"))
    groups = {"learned": base, "uniform": even}
    marks = {"learned": papers.get("f1_base", np.nan), "uniform": papers.get("f1_uniform", np.nan)}
    caption = (
        "F1 with learned and with uniform attention: a dot per seed, mean with interval, cross: published (unverified)."
    )
    reading.figures.append(("uniform", caption, performances(groups, marks, reading.data)))


def seeds(reading: StudyReading, members: Members) -> None:
    """How far the attention of other seeds is from the base's, and how far adversaries get, where these were searched for."""
    others = members.others
    if others.empty:
        reading.notes.append("No other seed was trained: whether attention is stable over seeds is not tested.")
        return
    alike(reading, members)
    frame = named(by_seeds(members), [members.classes])
    searched = not members.single.empty
    names = {"seeds": "median over seeds"}
    if searched:
        names |= {"found_jsd": "adversary (search)", "optimum_jsd": f"adversary ({members.best})"}
    lines = []
    bins = max_attention_bin(frame["max_attention"].to_numpy())
    for label, part in [("all", frame), *((MAX_ATTENTION_BINS[b], frame[bins == b]) for b in range(4))]:
        line: dict[str, Any] = {"largest attention weight": label, "examples": len(part)}
        for column, name in names.items():
            mean, low, high = interval(part[column])
            line |= {f"JSD, {name}": mean, f"JSD, {name} low": low, f"JSD, {name} high": high}
        lines.append(line)
    beside = ", and adversaries against single predictions" if searched else ""
    reading.tables[f"JSD of attention to the base's: other seeds{beside}"] = pd.DataFrame(lines)
    count = others["seed"].nunique()
    spread_of_seeds = Evidence.of(frame["seeds"].to_numpy())
    words = (
        f"Over {count} further seed{'' if count == 1 else 's'} attention moves by a median JSD of {shown(spread_of_seeds)} "
        f"nats (predictions by a TVD of {others.groupby(level='example_id')['tvd'].median().mean():.3f})."
    )
    if searched:
        beyond_seeds(reading, frame, words, members.best)
    else:
        reading.notes.append(
            f"{words} Whether an adversary gets farther is not tested: it needs the probe adversarial."
        )
    caption = "JSD to the base's attention by the base's largest weight: median over seeds per example"
    caption += f", and the adversaries against single predictions (search, and {members.best})." if searched else "."
    best = f"adversary, {members.best}" if searched else ""
    reading.figures.append(("seeds", caption, spread(frame, reading.data, best)))


def alike(reading: StudyReading, members: Members) -> None:
    """The finding that the seeds attend to the same words, or do not."""
    pairs = of_pairs(list(members.of("base")["path"]))
    evidence = stability(pairs)
    jsd, shuffled, same, chance = pairs[~np.eye(len(pairs), dtype=bool)].mean((0, 1))
    verdict = {
        HOLDS: "Seeds attend alike", FAILS: "Seeds attend no more alike than a shuffle of their weights",
        NEGLIGIBLE: "Seeds attend no more alike than a shuffle of their weights",
    }.get(evidence.exceeds(0, CLAIM.smallest), "Whether seeds attend alike is open")  # fmt: skip
    words = (
        f"{verdict}: any two of {len(pairs)} are {jsd:.3f} nats of JSD apart, and {shuffled:.3f} if the one's weights are "
        f"shuffled; on a scale from 0, a shuffle, to 1, the same attention, this is {shown(evidence)}. The most attended "
        f"word is the same in {100 * same:.0f} % of the texts ({100 * chance:.0f} % by chance)."
    )
    add(reading, CLAIM, evidence, words)


def by_seeds(members: Members) -> pd.DataFrame:
    """The base's examples: `seeds` and `farthest seed`, the median and the largest JSD of other seeds' attention to the
    base's; `max_attention`, `predicted_class`; and `found_jsd`, `optimum_jsd` where the base was searched."""
    examples = members.others.groupby(level="example_id")
    frame = pd.DataFrame({"seeds": examples["jsd"].median(), "farthest seed": examples["jsd"].max()})
    if not members.single.empty:
        return frame.join(members.single[["found_jsd", "optimum_jsd", "max_attention", "predicted_class"]])
    # what the other seeds' tables say of the base
    of_base = {"max_attention": "teacher_max_attention", "predicted_class": "teacher_predicted_class"}
    return frame.assign(**{name: examples[column].first() for name, column in of_base.items()})


def beyond_seeds(reading: StudyReading, frame: pd.DataFrame, words: str, best: str) -> None:
    """The finding that adversaries of single predictions are farther out than other seeds, or are not."""
    beyond = Evidence.of((frame["found_jsd"] - frame["seeds"]).to_numpy(), reach=2 * LN2)
    claim = statement(
        "seeds_are_nearer_than_adversaries", "stability",
        "Other seeds' attention is nearer to the base's than a single-prediction adversary's",
        "section 3.3", "difference of JSD in nats, adversary found by search − median over seeds", "for",
        smallest=0.01,
    )  # fmt: skip
    outside = float((frame["optimum_jsd"] > frame["farthest seed"]).mean())
    verdict = {
        HOLDS: "The adversary is farther out, by {}: seeds do not explain what it finds.",
        FAILS: "The adversary is no farther out ({}): what it finds is within the spread of seeds.",
    }.get(beyond.exceeds(0, 0.01), "Whether the adversary is farther out is open ({}).")
    words += (
        f" {verdict.format(shown(beyond) + ' nats')} The farthest attention known ({best}) is beyond the farthest seed "
        f"in {100 * outside:.0f} % of the examples."
    )
    add(reading, claim, beyond, words)


GUIDES = {
    "uniform": "uniform attention",
    "trained": "attention trained with it",
    "base": "attention of the base",
    "adversary": "attention of the trained adversary",
}


def guide(reading: StudyReading, members: Members, papers: Mapping[str, float]) -> None:
    """Table 3: a model without context under four attentions."""
    groups = {name: members.by_seed(f"guide_{name}") for name in GUIDES}
    marks = {name: papers.get(f"f1_guide_{name}", np.nan) for name in GUIDES}
    reading.tables["A model without context, guided by attention (the paper's table 3)"] = pd.DataFrame(
        [row(words, performance(members.confusions(f"guide_{name}")), marks[name]) for name, words in GUIDES.items()]
    ).dropna(axis="columns", how="all")
    gain, margin = (
        difference(members.confusions("guide_base"), members.confusions("guide_uniform")),
        seeds_vary(members),
    )
    claim = statement(
        "attention_guides", "transfer", "The base's attention helps a model without context more than uniform attention does",
        "section 3.4", f"difference of F1, guided by the base − uniform; up to {margin:g} is no relevant difference", "for",
        smallest=margin, primary=True,
    )  # fmt: skip
    own = difference(members.confusions("guide_base"), members.confusions("guide_trained"))
    lost = difference(members.confusions("guide_base"), members.confusions("guide_adversary"))
    no = "It does not help by more than another seed makes"
    verdict = {HOLDS: "It helps", FAILS: no, NEGLIGIBLE: no}.get(gain.exceeds(0, margin), "Whether it helps is open")
    words = (
        f"{verdict}: guided by the base the model without context gains {shown(gain)} F1 over uniform attention, and "
        f"{shown(own)} over attention of its own, over {len(groups['base'])} seeds."
    )
    add(reading, claim, gain, words)
    claim = statement(
        "adversary_guides_worse", "transfer", "The trained adversary's attention guides worse than the base's",
        "section 3.4", f"difference of F1, guided by the base − by the adversary; up to {margin:g} is no relevant difference",
        "for", smallest=margin,
    )  # fmt: skip
    verdict = {HOLDS: "is worse", FAILS: "is no worse", NEGLIGIBLE: "is no worse by more than another seed makes"}.get(
        lost.exceeds(0, margin), "is not told apart"
    )
    add(reading, claim, lost, f"Guidance by the adversary {verdict}: the base's is ahead by {shown(lost)} F1.")
    caption = (
        "F1 of the model without context by the attention it is given: a dot per seed; cross: published (unverified)."
    )
    shown_groups = {GUIDES[name]: values for name, values in groups.items()}
    reading.figures.append(
        ("guide", caption, performances(shown_groups, {GUIDES[n]: v for n, v in marks.items()}, reading.data))
    )


def adversary(reading: StudyReading, members: Members, papers: Mapping[str, float]) -> None:
    """Table 4 and the curve: adversaries trained end to end."""
    compared = members.to_base[members.to_base["role"] == "adversary"]
    performance = members.of("adversary").set_index("parameter")["f1"]
    lines = []
    for weight, part in compared.groupby("parameter", sort=True):
        (tvd, tvd_low, tvd_high), (jsd, jsd_low, jsd_high) = interval(part["tvd"]), interval(part["jsd"])
        lines.append(
            {
                "lambda": weight, "F1": performance[weight], "TVD": tvd, "TVD low": tvd_low, "TVD high": tvd_high,
                "JSD": jsd, "JSD low": jsd_low, "JSD high": jsd_high,
            }
        )  # fmt: skip
    table = pd.DataFrame(lines)
    paper = {"lambda": "adversary_lambda", "F1": "adversary_f1", "TVD": "adversary_tvd", "JSD": "adversary_jsd"}
    quoted = pd.DataFrame([{name: papers.get(metric, np.nan) for name, metric in paper.items()}]).dropna()
    captioned = pd.concat([table.assign(source="measured"), quoted.assign(source="published, unverified")])
    reading.tables["Adversaries trained end to end (the paper's table 4 and figure 5)"] = captioned
    own = float(table.loc[table["lambda"] == 0, "TVD"].iloc[0]) if (table["lambda"] == 0).any() else NEAR
    allowed = own + NEAR
    text = f"An adversary trained end to end was found: a JSD above {FAR} nats at a TVD below {allowed:.3f}"
    quantity = (
        f"{allowed:.3f} (that of λ = 0 and {NEAR}) − TVD of the adversary chosen on the validation split; JSD − {FAR} if "
        f"that is not above 0"
    )
    claim = statement("adversary_escapes", "exclusivity", text, "section 4", quantity, "neither")
    runs = dict(zip(members.of("adversary")["path"], members.of("adversary")["parameter"], strict=True))
    weight = float(runs[choose(list(runs), float(members.content["settings"]["above"]))])
    best = table[table["lambda"] == weight].iloc[0]
    if best["JSD low"] > FAR:
        values = (allowed - best["TVD"], allowed - best["TVD high"], allowed - best["TVD low"])
    else:
        values = (best["JSD"] - FAR, best["JSD low"] - FAR, best["JSD high"] - FAR)
    evidence = Evidence(float(values[0]), float(values[1]), float(values[2]), n=compared.index.nunique())
    none = "No adversary was found, which does not say that there is none"
    found = "An adversary was found" if evidence.exceeds(0) == HOLDS else none
    words = (
        f"{found}: with λ = {weight:g}, chosen on the validation split, attention moves by a JSD of {best['JSD']:.3f} "
        f"[{best['JSD low']:.3f}, {best['JSD high']:.3f}] nats while predictions move by a TVD of {best['TVD']:.3f} "
        f"[{best['TVD low']:.3f}, {best['TVD high']:.3f}]."
    )
    add(reading, claim, evidence, words)
    seeds_at = members.others
    points = (
        seeds_at.groupby("seed")[["tvd", "jsd"]].mean() if not seeds_at.empty else pd.DataFrame(columns=["tvd", "jsd"])
    )
    single: pd.Series[float] = members.single[["found_tvd", "found_jsd", "optimum_tvd", "optimum_jsd"]].mean()
    caption = (
        "How far attention moves (JSD) against how far predictions do (TVD): one point per λ, the other seeds of the base, "
        "and the adversaries against single predictions."
    )
    drawn = curve(table, points, single, quoted, reading.data, f"adversary, {members.best}")
    reading.figures.append(("adversary", caption, drawn))
