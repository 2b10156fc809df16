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
from attnprobe.findings.members import numbers_of_split
from attnprobe.findings.studies.base import StudyReading
from attnprobe.findings.studies.criteria.figures import AdversaryCurve
from attnprobe.findings.studies.criteria.members import Members
from attnprobe.findings.studies.criteria.statements import PAPER, Wording, of_several_runs

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

    # λ = 0 is plain distillation, and no adversary
    adversaries = runs[runs.index > 0]
    if adversaries.empty:
        reading.notes.append(
            "No model was trained with λ above 0: whether an adversary escapes is not tested."
        )
    else:
        above = float(members.content["settings"]["above"])
        chosen = chosen_adversary(list(adversaries["path"]), above)
        weight = float(adversaries.index[adversaries["path"] == chosen][0])
        add_escape(reading, compared, table[table["lambda"] == weight].iloc[0])

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


def add_escape(
    reading: StudyReading, compared: pd.DataFrame, adversary: "pd.Series[float]"
) -> None:
    """Add whether an adversary was found.

    Args:
        reading: of the study, which is added to.
        compared: all adversaries, compared with the base (`Members.compared_with_base`).
        adversary: the one that was chosen, a row of `adversary_table`.
    """
    allowed = allowed_tvd(compared)
    mean_allowed = float(allowed.mean())
    price = f"that of λ = 0 and {NEAR}" if 0 in compared["parameter"].to_numpy() else f"2 · {NEAR}"
    claim = Claim(
        name="adversary_escapes",
        criterion="exclusivity",
        statement=f"An adversary trained end to end was found: a JSD above {FAR} nats at a TVD "
        f"below {mean_allowed:.3f}",
        source=f"{PAPER}, section 4",
        measure=of_several_runs,
        quantity=f"{mean_allowed:.3f} ({price}) − TVD of the adversary chosen on the validation "
        f"split, text by text; JSD − {FAR} if that is not above 0",
    )
    evidence = escape(adversary, compared, allowed)
    reading.add(claim, evidence, escape_in_words(evidence, adversary, mean_allowed))


def allowed_tvd(compared: pd.DataFrame) -> "pd.Series[float]":
    """The TVD of each text below which an adversary predicts the same, by `example_id`.

    Args:
        compared: all adversaries, compared with the base (`Members.compared_with_base`).
    """
    distilled = compared.loc[compared["parameter"] == 0, "tvd"]
    if distilled.empty:
        return pd.Series(2 * NEAR, index=compared.index.unique())
    return distilled + NEAR


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


def escape(
    adversary: "pd.Series[float]", compared: pd.DataFrame, allowed: "pd.Series[float]"
) -> Evidence:
    """By how much an adversary escapes: above 0 where it attends elsewhere and predicts the same.

    Args:
        adversary: a row of `adversary_table`.
        compared: all adversaries, compared with the base (`Members.compared_with_base`).
        allowed: TVD of each text below which it predicts the same (`allowed_tvd`). What plain
            distillation costs is measured on the same texts, so that the two are paired.
    """
    if adversary["JSD low"] > FAR:
        tvd = compared.loc[compared["parameter"] == adversary["lambda"], "tvd"]
        return Evidence(*interval((allowed - tvd).to_numpy()), n=len(tvd))
    return Evidence(
        value=float(adversary["JSD"]) - FAR,
        low=float(adversary["JSD low"]) - FAR,
        high=float(adversary["JSD high"]) - FAR,
        n=compared.index.nunique(),
    )


ESCAPES = Wording(
    meets="An adversary was found",
    fails="No adversary was found, which does not say that there is none",
    undecided="Whether an adversary was found is open",
)


def escape_in_words(evidence: Evidence, adversary: "pd.Series[float]", allowed: float) -> str:
    """Whether an adversary was found, and which one was chosen on the validation split.

    Args:
        evidence: of `escape`.
        adversary: a row of `adversary_table`.
        allowed: mean TVD below which it predicts the same.
    """
    jsd = cite_column(adversary, "JSD")
    tvd = cite_column(adversary, "TVD")
    return (
        f"{ESCAPES.of(evidence, smallest=0)}: with λ = {adversary['lambda']:g}, chosen on the "
        f"validation split, attention moves by a JSD of {jsd} nats while predictions move by a TVD "
        f"of {tvd}; below {allowed:.3f} they count as the same."
    )


def cite_column(row: "pd.Series[float]", column: str) -> str:
    """A number of a table's row with its interval, such as `0.012 [0.003, 0.021]`."""
    return f"{row[column]:.3f} [{row[f'{column} low']:.3f}, {row[f'{column} high']:.3f}]"
