"""Can an adversary trained end to end attend elsewhere and predict the same?

Wiegreffe & Pinter 2019, section 4, table 4 and figure 5.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from attnprobe.core.metrics import JSD, TVD
from attnprobe.evidence.claims import Claim
from attnprobe.evidence.evidence import Evidence
from attnprobe.evidence.statistics import in_columns, interval
from attnprobe.evidence.verdicts import Verdict
from attnprobe.findings.members import numbers_of_split
from attnprobe.findings.studies.base import StudyReading
from attnprobe.findings.studies.criteria.figures import AdversaryCurve
from attnprobe.findings.studies.criteria.members import Members
from attnprobe.findings.studies.criteria.statements import PAPER, of_several_runs

FAR = 0.4
"""JSD in nats beyond which an adversary attends elsewhere (the paper's table 4)."""
NEAR = 0.05
"""TVD up to which an adversary predicts the same, beyond that of plain distillation (λ = 0), as
imitating a model has a price of its own; that price itself where no model was trained with λ = 0.
"""


def add_exclusivity(
    reading: StudyReading, members: Members, published: Mapping[str, float]
) -> None:
    """Add the paper's table 4, its figure 5, and whether an adversary was found.

    Args:
        reading: of the study, which is added to.
        members: its runs.
        published: the paper's numbers of this data set, by metric.
    """
    compared = members.compared_with_base("adversary")
    runs = members.with_role("adversary").set_index("parameter")
    table = adversary_table(compared, runs["f1"])
    paper = published_adversary(published)
    reading.tables["Adversaries trained end to end (the paper's table 4 and figure 5)"] = pd.concat(
        [table.assign(source="measured"), paper.assign(source="published, unverified")]
    )

    distilled = table.loc[table["lambda"] == 0, "TVD"]
    allowed = NEAR + (NEAR if distilled.empty else float(distilled.iloc[0]))
    claim = Claim(
        name="adversary_escapes",
        criterion="exclusivity",
        statement=f"An adversary trained end to end was found: a JSD above {FAR} nats at a TVD "
        f"below {allowed:.3f}",
        source=f"{PAPER}, section 4",
        measure=of_several_runs,
        quantity=f"{allowed:.3f} (that of λ = 0 and {NEAR}) − TVD of the adversary chosen on the "
        f"validation split; JSD − {FAR} if that is not above 0",
    )
    chosen = chosen_adversary(list(runs["path"]), float(members.content["settings"]["above"]))
    weight = float(runs.index[runs["path"] == chosen][0])
    adversary = table[table["lambda"] == weight].iloc[0]
    evidence = escape(adversary, allowed, texts=compared.index.nunique())
    reading.add(claim, evidence, escape_in_words(evidence, adversary))

    seeds = members.compared_with_base("base")
    single = members.single_adversaries
    figure = AdversaryCurve(
        "adversary",
        "How far attention moves (JSD) against how far predictions do (TVD): one point per λ, the "
        "other seeds of the base, and the adversaries against single predictions.",
        data=reading.data,
        trained=table,
        seeds=seeds if seeds.empty else seeds.groupby("seed")[["tvd", "jsd"]].mean(),
        single=single[["found_tvd", "found_jsd", "optimum_tvd", "optimum_jsd"]].mean(),
        published=paper,
        optimum=members.optimum_name,
    )
    reading.figures.append(figure)


def adversary_table(compared: pd.DataFrame, f1: "pd.Series[float]") -> pd.DataFrame:
    """A row per λ: `lambda`, `F1`, and mean `TVD` and `JSD` to the base with `… low` and `… high`.

    Args:
        compared: the adversaries, compared with the base (`Members.compared_with_base`).
        f1: by λ.
    """
    rows = []
    for weight, texts in compared.groupby("parameter", sort=True):
        row = {"lambda": weight, "F1": f1[weight]}
        row |= in_columns("TVD", interval(texts["tvd"], TVD))
        row |= in_columns("JSD", interval(texts["jsd"], JSD))
        rows.append(row)
    return pd.DataFrame(rows)


def published_adversary(published: Mapping[str, float]) -> pd.DataFrame:
    """The paper's adversary as a row of `adversary_table`, without intervals.

    There is no row where one of its numbers is not known.
    """
    row = {
        "lambda": published.get("adversary_lambda", np.nan),
        "F1": published.get("adversary_f1", np.nan),
        "TVD": published.get("adversary_tvd", np.nan),
        "JSD": published.get("adversary_jsd", np.nan),
    }
    return pd.DataFrame([row]).dropna()


def chosen_adversary(adversaries: Sequence[Path], above: float) -> Path:
    """The trained adversary that stands for all.

    It goes by the validation split, so that the test split has no say.

    Args:
        adversaries: run directories.
        above: JSD in nats.

    Returns:
        Of those whose JSD to the base exceeds `above`, the one whose predictions are the closest
        (TVD); where there is none, the farthest.
    """
    distances = {run: distances_of_kept_epoch(run) for run in adversaries}
    far = [run for run in adversaries if distances[run]["jsd"] > above]
    if far:
        return min(far, key=lambda run: distances[run]["tvd"])
    return max(adversaries, key=lambda run: distances[run]["jsd"])


def distances_of_kept_epoch(run: Path) -> "pd.Series[float]":
    """Mean `tvd` and `jsd` to the base on the validation split.

    They are of the epoch whose weights were kept: the first with the lowest `loss`.
    """
    epochs = pd.DataFrame(
        {
            name: numbers_of_split(run, "training", f"validation_{name}")
            for name in ("loss", "tvd", "jsd")
        }
    )
    return epochs.sort_values("loss", kind="stable").iloc[0]


def escape(adversary: "pd.Series[float]", allowed: float, texts: int) -> Evidence:
    """By how much an adversary escapes: above 0 where it attends elsewhere and predicts the same.

    Args:
        adversary: a row of `adversary_table`.
        allowed: TVD below which it predicts the same.
        texts: how many its distances are of.
    """
    if adversary["JSD low"] > FAR:
        # the closer the predictions, the larger the number: its low end comes from TVD's high one
        return Evidence(
            value=allowed - float(adversary["TVD"]),
            low=allowed - float(adversary["TVD high"]),
            high=allowed - float(adversary["TVD low"]),
            n=texts,
        )
    return Evidence(
        value=float(adversary["JSD"]) - FAR,
        low=float(adversary["JSD low"]) - FAR,
        high=float(adversary["JSD high"]) - FAR,
        n=texts,
    )


def escape_in_words(evidence: Evidence, adversary: "pd.Series[float]") -> str:
    """Whether an adversary was found, and which one was chosen on the validation split."""
    sentence = "No adversary was found, which does not say that there is none"
    if evidence.exceeds(0) == Verdict.MEETS:
        sentence = "An adversary was found"
    jsd = cite_column(adversary, "JSD")
    tvd = cite_column(adversary, "TVD")
    return (
        f"{sentence}: with λ = {adversary['lambda']:g}, chosen on the validation split, attention "
        f"moves by a JSD of {jsd} nats while predictions move by a TVD of {tvd}."
    )


def cite_column(row: "pd.Series[float]", column: str) -> str:
    """A number of a table's row with its interval, such as `0.012 [0.003, 0.021]`."""
    return f"{row[column]:.3f} [{row[f'{column} low']:.3f}, {row[f'{column} high']:.3f}]"
