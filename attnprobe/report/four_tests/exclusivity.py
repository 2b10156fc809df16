"""Can an adversary trained end to end escape? (Wiegreffe & Pinter 2019, section 4, table 4 and figure 5)"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from attnprobe.report.evidence import HOLDS, Evidence
from attnprobe.report.figures.studies import curve
from attnprobe.report.four_tests.findings import add, statement
from attnprobe.report.four_tests.members import Members
from attnprobe.report.measured import whole
from attnprobe.report.studies import StudyReading
from attnprobe.results.statistics import interval

FAR, NEAR = 0.4, 0.05
"""An adversary counts as found with a JSD above the one (the paper's table 4) and a TVD no more than the other above that of
plain distillation, λ = 0: imitating a model has a price of its own, some 0.05."""


def validation(run: Path) -> dict[str, float]:
    """Mean `tvd` and `jsd` to the teacher on the validation split, in the epoch whose weights were kept."""
    names = ("loss", "tvd", "jsd")
    curves = whole(run, "training", [f"validation_{name}" for name in names])
    table = pd.DataFrame({name: curves[f"validation_{name}"] for name in names})
    tvd, jsd = table.sort_values("loss", kind="stable")[["tvd", "jsd"]].to_numpy()[0]
    return {"tvd": float(tvd), "jsd": float(jsd)}


def choose(adversaries: Sequence[Path], above: float) -> Path:
    """The trained adversary that stands for all: of those whose JSD to the base exceeds `above`, the one whose predictions
    are the closest; where there is none, the farthest. Goes by the validation split, so that the test split has no say."""
    reached = {run: validation(run) for run in adversaries}
    if far := [run for run in adversaries if reached[run]["jsd"] > above]:
        return min(far, key=lambda run: reached[run]["tvd"])
    return max(adversaries, key=lambda run: reached[run]["jsd"])


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
    weight = float(runs[choose(list(runs), members.above)])
    best = table[table["lambda"] == weight].iloc[0]
    if best["JSD low"] > FAR:
        values = (allowed - best["TVD"], allowed - best["TVD high"], allowed - best["TVD low"])
    else:
        values = (best["JSD"] - FAR, best["JSD low"] - FAR, best["JSD high"] - FAR)
    evidence = Evidence(float(values[0]), float(values[1]), float(values[2]), n=compared.index.nunique())
    none = "No adversary was found, which does not say that there is none"
    sentence = "An adversary was found" if evidence.exceeds(0) == HOLDS else none
    words = (
        f"{sentence}: with λ = {weight:g}, chosen on the validation split, attention moves by a JSD of {best['JSD']:.3f} "
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
