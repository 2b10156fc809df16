"""What to show instead of attention: the most faithful method on these texts, chosen on one half of them and measured on the
other, so that it is not called better for having been chosen."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from attnprobe.report.claims import Claim
from attnprobe.report.evidence import HOLDS, Evidence
from attnprobe.report.four_tests.findings import add, shown
from attnprobe.report.importances import facts_of
from attnprobe.report.readings.faithfulness import PROBE, SOURCE, measured
from attnprobe.report.studies import StudyReading
from attnprobe.report.wide import per_example

SMALLEST = 0.01
"""Probability that is worth a word."""
MEANINGLESS = ("random", "position")
"""What nobody would show; random is the null."""
TAKES_OUT = ("leave_one_out", "sufficient_subset", "occlusion")
"""Methods that take words out themselves, as the metric does."""
CAPTION = "What to show instead: fall of the prediction without each method's top words (deleted), and beside attention"

CLAIM = Claim(
    name="another_method_is_more_faithful",
    criterion="erasure",
    statement="Without the top words of another method a text loses more of its prediction than without attention's",
    source=SOURCE,
    measure=lambda rows: None,
    quantity="comprehensiveness (AOPC, words deleted), the method chosen on the other texts minus attention, −2 to 2",
    smallest=SMALLEST,
)


@dataclass(frozen=True)
class Chosen:
    """The method that looked best on one half of the texts, and what it is on the other.

    Attributes:
        gain: its comprehensiveness minus attention's, words deleted.
        null: minus that of a random order.
        others: gains over attention where words go in another way, by operator.
    """

    title: str
    name: str
    own: Evidence
    gain: Evidence
    null: Evidence
    others: dict[str, Evidence]

    @property
    def better(self) -> bool:
        """Whether it is, by every whole interval: than random, than attention by more than `SMALLEST`, and at all where words
        go in another way. Where they went in no other way nothing confirms it: deleting words favours what deletes them."""
        return (
            self.looks_better and bool(self.others) and all(one.exceeds(0.0) == HOLDS for one in self.others.values())
        )

    @property
    def looks_better(self) -> bool:
        """Whether it is where words are deleted, whatever other ways of taking them out say."""
        return self.gain.exceeds(0.0, SMALLEST) == HOLDS and self.null.exceeds(0.0) == HOLDS


def instead(reading: StudyReading, results: pd.DataFrame) -> None:
    """Add a table of every method beside attention, and what to show; nothing where faithfulness was not measured."""
    pairs = measured(results)
    names = list(dict.fromkeys(name for name, operator in pairs if operator == "delete"))
    if not {"attention", "random"} <= set(names) or len(names) < 3:
        return
    inputs = [one for one in dict.fromkeys(operator for _, operator in pairs) if one not in ("delete", "attention")]
    frame = per_example(results, PROBE, [f"comprehensiveness_{name}_by_{one}" for name, one in pairs])
    reading.tables[CAPTION] = beside_attention(frame, results, names)
    candidates = [name for name in names if name not in ("attention", *MEANINGLESS)]
    if not candidates or len(frame) < 4:
        return
    found = chosen(frame, results, candidates, inputs)
    caution = " It takes words out itself, as this test does, which favours it." if found.name in TAKES_OUT else ""
    if found.better:
        words = (
            f"Instead of attention, show {found.title}: without its top words the predicted class loses {shown(found.own)} "
            f"of its probability, {shown(found.gain)} more than without attention's, on {found.gain.n} texts that had no "
            f"part in choosing it.{caution}"
        )
    elif found.looks_better and not found.others:
        words = (
            f"Nothing to show instead of attention is confirmed: without the top words of {found.title} the predicted class "
            f"loses {shown(found.gain)} more of its probability than without attention's, on {found.gain.n} texts that had "
            f"no part in choosing it, but words were only deleted. Another way of taking them out has to agree: "
            f"probe.faithfulness.operators=[delete,zeros].{caution}"
        )
    else:
        words = (
            f"Nothing to show instead of attention is shown to be better: {found.title} looked best on half of the texts, "
            f"and on the other {found.gain.n} its top words cost the prediction {shown(found.gain)} more than attention's do."
        )
    add(reading, CLAIM, found.gain, words)


def chosen(frame: pd.DataFrame, results: pd.DataFrame, candidates: list[str], inputs: list[str]) -> Chosen:
    """The best of the candidates on the texts with even places, measured on the others."""
    rank = pd.factorize(frame["example_id"], sort=True)[0]
    first, second = frame[rank % 2 == 0], frame[rank % 2 == 1]
    means = {name: first[f"comprehensiveness_{name}_by_delete"].mean() for name in candidates}
    best = max(means, key=lambda name: (means[name], -candidates.index(name)))

    # a table that lost an operator of one of the two says nothing of it
    paired = [
        operator
        for operator in inputs
        if {f"comprehensiveness_{name}_by_{operator}" for name in (best, "attention")} <= set(frame)
    ]

    def minus(other: str, operator: str = "delete") -> Evidence:
        own = second[f"comprehensiveness_{best}_by_{operator}"] - second[f"comprehensiveness_{other}_by_{operator}"]
        return Evidence.of(own.to_numpy(), reach=4.0)

    return Chosen(
        title=facts_of(best, results, PROBE).title,
        name=best,
        own=Evidence.of(second[f"comprehensiveness_{best}_by_delete"].to_numpy(), reach=2.0),
        gain=minus("attention"),
        null=minus("random"),
        others={operator: minus("attention", operator) for operator in paired},
    )


def beside_attention(frame: pd.DataFrame, results: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Each method's comprehensiveness and how far it is from attention's, on all texts."""
    attention = frame["comprehensiveness_attention_by_delete"].to_numpy()
    rows = []
    for name in names:
        values = frame[f"comprehensiveness_{name}_by_delete"].to_numpy()
        own, apart = Evidence.of(values, reach=2.0), Evidence.of(values - attention, reach=4.0)
        none = name == "attention"
        rows.append(
            {
                "method": facts_of(name, results, PROBE).title,
                "texts": own.n,
                "loss": own.value, "loss low": own.low, "loss high": own.high,
                "more than attention": np.nan if none else apart.value,
                "more than attention low": np.nan if none else apart.low,
                "more than attention high": np.nan if none else apart.high,
            }
        )  # fmt: skip
    return pd.DataFrame(rows).sort_values("loss", ascending=False).reset_index(drop=True)
