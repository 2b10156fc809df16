"""The calibration: which tests tell right attention from wrong, on models whose answer is known."""

from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from attnprobe.report.calibration.collect import collected
from attnprobe.report.calibration.models import FOLLOWS, RIGHT, RIGHTNESS, SOLVED, WRONG
from attnprobe.report.calibration.rates import held_out, power_curve, rates, separations
from attnprobe.report.figures.grid import around, grid, title
from attnprobe.report.figures.notes import note
from attnprobe.report.studies import StudyReading

VERSIONS = {"published": "as published", "current": "this version"}
KINDS = ("right", "wrong", "meaningless")


def read(directory: Path, content: dict[str, Any]) -> StudyReading:
    """Tables of rates, of how well each number separates, and of thresholds judged on data left out; the curves."""
    models, answered = collected(directory / one["directory"] for one in content["members"])
    # one model whose own tests are shown next to the rates
    example = next((one for one in content["members"] if one["role"] == "learned"), content["members"][0])
    shown = models[models["run_id"] == example["run_id"]].iloc[0]
    cells, separated = census(models), separations(answered)
    tables = {
        "Models by what is known of their attention: trained, and per rightness": cells,
        "Share of yes, of all models asked, with exact 95 % intervals": yes_table(rates(answered)),
        "AUC of each test's number between right and wrong attention, 95 % bootstrap interval over models": renamed(
            separated
        ),
        "Thresholds chosen on the other data sets (false alarms of 5 %), judged on the one left out": renamed(
            held_out(answered)
        ),
    }
    unsolved = int((models["rightness_label"] == "not solved").sum())
    return StudyReading(
        title="Calibration: which tests tell right attention from wrong?",
        about=(
            f"{len(models)} small models whose answer is known, each asked every test. An attention is right where it puts "
            f"at least {RIGHT:g} of what can be reached beyond chance on the words that decide, wrong up to {WRONG:g}; it "
            f"counts where the model's accuracy is at least {SOLVED:g}, and {FOLLOWS:g} with the reason changed: {unsolved} "
            "did not get there. Models that cannot have learnt anything (random weights, labels by a coin, a guesser) are "
            "meaningless. Yes always speaks for the attention."
        ),
        data=str(shown["data"]),
        model=f"{shown['encoder']}_{shown['control']}",
        directory=directory,
        findings=[],
        runs=[directory / example["directory"]],
        tables={caption: table for caption, table in tables.items() if len(table)},
        figures=[
            (
                "calibration_curves",
                "Share of yes against the rightness of the attention: a test that tells climbs from left to right.",
                curves(power_curve(answered)),
            )
        ],
        answer=answer(separated),
        notes=[f"{unsolved} of {len(models)} models did not solve their task and are left out of all rates."],
    )


def answer(separated: pd.DataFrame) -> str:
    """How many tests of this version tell right attention from wrong in every kind of model, and which does so best."""
    own = separated[separated["version"] == "current"] if len(separated) else separated
    if not len(own):
        return "No test can be judged: it takes models with right attention and models with wrong attention."
    by_claim = own.groupby("claim")[["AUC", "AUC low"]].min()
    best = by_claim.sort_values(["AUC low", "AUC"]).index[-1]
    tell = int((by_claim["AUC low"] > 0.5).sum())
    return (
        f"{tell} of {len(by_claim)} tests tell right attention from wrong in every kind of model that was tried; “"
        f"{best.replace('_', ' ')}” does so best (AUC {by_claim.loc[best, 'AUC']:.2f} or more; a coin has 0.50)."
    )


def census(models: pd.DataFrame) -> pd.DataFrame:
    """How many models there are per data set, encoder and rightness, with their mean accuracies."""
    counts = models.groupby(["data", "encoder", "rightness_label"], observed=True).size().unstack(fill_value=0)
    kinds = [kind for kind in RIGHTNESS if kind in counts]
    solved = models[models["rightness_label"].isin(["right", "between", "wrong"])]
    names = {
        "accuracy": "accuracy",
        "accuracy_contradicted": "reason changed",
        "accuracy_without": "without the reason",
    }
    means = solved.groupby(["data", "encoder"], observed=True)[list(names)].mean().rename(columns=names)
    return counts[kinds].join(means).reset_index()


def yes_table(shares: pd.DataFrame) -> pd.DataFrame:
    """A row per claim and encoder, and the rate with its interval for each kind of attention."""
    rows = []
    for key, part in shares.groupby(["version", "criterion", "level", "claim", "encoder"], observed=True, sort=False):
        row = dict(zip(["version", "criterion", "level", "claim", "encoder"], key, strict=True))
        for kind in KINDS:
            own = part[part["rightness"] == kind]
            if len(own):
                one = own.iloc[0]
                row |= {kind: one["rate"], f"{kind} low": one["rate low"], f"{kind} high": one["rate high"]}
                row[f"{kind}: models"] = int(one["asked"])
            else:
                row |= {
                    kind: float("nan"),
                    f"{kind} low": float("nan"),
                    f"{kind} high": float("nan"),
                    f"{kind}: models": 0,
                }
        rows.append(row)
    return renamed(pd.DataFrame(rows))


def renamed(table: pd.DataFrame) -> pd.DataFrame:
    """The table with its versions and claims in words."""
    if not len(table):
        return table
    return table.assign(version=table["version"].map(VERSIONS), claim=table["claim"].str.replace("_", " "))


def curves(table: pd.DataFrame) -> Figure:
    """Share of yes against rightness, a panel per claim of this version and a line per encoder."""
    own = table[table["version"] == "current"] if (table["version"] == "current").any() else table
    claims = list(dict.fromkeys(own["claim"]))
    figure, axes = grid(max(len(claims), 1), panel_height=1.4)
    handles: dict[str, Line2D] = {}
    for panel, claim in zip(axes, claims, strict=False):
        for number, (encoder, rows) in enumerate(own[own["claim"] == claim].groupby("encoder", observed=True)):
            ordered = rows.sort_values("rightness")
            span = [ordered["rate"] - ordered["low"], ordered["high"] - ordered["rate"]]
            look: dict[str, Any] = {"marker": "o", "ms": 3, "lw": 1, "color": f"C{number}"}
            panel.errorbar(ordered["rightness"], ordered["rate"], yerr=span, **look)
            for rightness, rate, low, high in ordered[["rightness", "rate", "low", "high"]].to_numpy():
                words = f"{encoder}, rightness {rightness:.2f}: {rate:.1%} [{low:.1%}, {high:.1%}]"
                note(panel, rightness, rate, words)
            handles[str(encoder)] = Line2D([], [], label=str(encoder), **look)
        panel.set_ylim(-0.02, 1.02)
        panel.set_xlim(-0.2, 1.05)
        title(panel, claim.replace("_", " "))
    around(
        figure, x="rightness (0 chance, 1 all that can be reached)", y="share of yes", handles=list(handles.values())
    )
    return figure
