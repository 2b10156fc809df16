"""Does each label have an attention of its own, and what speaks for the label and against it?"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnprobe.core.errors import UserError
from attnprobe.core.metrics import ITEMS, JSD, TRUTH, TVD, WEIGHT, Metric, Scale
from attnprobe.core.randomness import Draws
from attnprobe.core.readout import Readout
from attnprobe.core.settings import Count
from attnprobe.data.batching import TextSplit
from attnprobe.evidence.claims import Claim
from attnprobe.evidence.deciding_words import LEAST_EFFECT
from attnprobe.evidence.evidence import mean_of, over_seeds
from attnprobe.exact import attention_shapley, smallest_flipping_set
from attnprobe.measures import jensen_shannon
from attnprobe.probes.base import DESCRIPTION, Measurement, Note, Probe, Subject, positions
from attnprobe.readings.means import facet_table, mean_in_columns
from attnprobe.readings.reading import Headline, HeatMap, Reading, Tabulation
from attnprobe.results.pivot import label_of
from attnprobe.results.table import scale_of

YES = 1
"""Number of the class that says that the text has the label."""
LOGIT = Scale("logit")
METRICS = (
    Metric(
        "other_label_jsd",
        JSD,
        "between the label's attention and those of the other labels that the text is asked for, "
        "mean; NaN where there is no other one",
    ),
    Metric(
        "other_label_tvd",
        TVD,
        "between the answers under the label's own attention and under theirs, mean",
    ),
    Metric("has_label", TRUTH, "the text has the label"),
    Metric("says_yes", TRUTH, "the model says that it has"),
    Metric(
        "yes_to_no",
        ITEMS,
        "the smallest set of words whose erasure turns a yes into a no; NaN: the answer is no, or "
        "no set does",
    ),
    Metric("no_to_yes", ITEMS, "the smallest set whose erasure turns a no into a yes, likewise"),
    Metric("never_turns", TRUTH, "proved, up to rounding: no set of words turns the answer"),
    Metric("against_mass", WEIGHT, "attention on words that by themselves speak against the label"),
    Metric(
        "label_value",
        LOGIT,
        "exact Shapley value of the word for a yes, weights being erased and the others "
        "renormalised; below 0 it speaks against the label",
        step="position",
    ),
    *DESCRIPTION,
)


@dataclass
class Labels(Probe):
    """One attention per label: do labels attend differently, and what turns their answers?

    Of data whose rows are a text and a label (`task=labels`). The attentions of a text's other
    labels are those that its rows ask for; where they are nearly the same, or the answers do not
    change under another label's, the model's attention does not say what is particular to a label.

    Everything else is exact, in either direction: which words speak for the label and against it
    (Shapley values), and the smallest set of words whose erasure turns the answer.

    Attributes:
        others: labels that each is compared with at most. Of more, so many are drawn: a text then
            costs as much as it has labels, and not as it has pairs of them.
    """

    name = "labels"
    metrics = METRICS
    others: Count = 32

    _split: TextSplit | None = field(default=None, init=False, repr=False)
    _texts: dict[int, "LabelsOfText"] = field(default_factory=dict, init=False, repr=False)

    @property
    def peak_buffers(self) -> int:
        """The attentions of other labels, and what is computed from them."""
        return 4 * self.others

    def prepare(self, splits: Mapping[str, TextSplit]) -> None:
        """Keep the test split, which has the other rows of a text.

        Raises:
            UserError: rows are not texts and labels.
        """
        if splits["test"].text_number is None:
            raise UserError(
                "probe labels compares the labels of a text, and here a row asks for none: leave "
                "it out of probe=[…], or take data with task=labels, such as data=codes"
            )
        self._split = splits["test"]
        self._texts = {}

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield how a label's attention differs from others, and what turns its answer."""
        if self._split is None:
            raise UserError(
                "probe labels reads a text with its other labels, which only a run has: leave it "
                "out here"
            )
        readout = subject.readout
        says_yes = readout.prediction().argmax(-1) == YES
        yield Measurement("has_label", subject.batch.labels == YES)
        yield Measurement("says_yes", says_yes)

        texts = self._labels_of_texts(subject, self._split)
        others = OtherLabels.of(subject, texts, self.others, draws)
        own = readout.attention.expand_as(others.attention)
        divergence = jensen_shannon(own, others.attention, readout.content)
        distance = readout.distance(readout.predict(others.attention), readout.prediction())
        yield Measurement("other_label_jsd", others.mean(divergence))
        yield Measurement("other_label_tvd", others.mean(distance))
        if readout.position_logits is None:
            return

        smallest = smallest_flipping_set(
            readout.attention, readout.position_logits, readout.content
        )
        size = torch.where(smallest.size > 0, smallest.size.double(), torch.nan)
        yield Measurement("yes_to_no", size.where(says_yes, torch.nan))
        yield Measurement("no_to_yes", size.where(~says_yes, torch.nan))
        yield Measurement("never_turns", smallest.size < 0)

        payoffs = payoffs_of_yes(readout)
        against = readout.content & (payoffs < 0)
        yield Measurement("against_mass", torch.where(against, readout.attention, 0).sum(-1))
        games = torch.stack([torch.zeros_like(payoffs), payoffs], -1)
        values = attention_shapley(readout.attention, games, readout.content).values[..., YES]
        yield Measurement("label_value", values, positions(readout.content))

    def _labels_of_texts(self, subject: Subject, split: TextSplit) -> dict[int, "LabelsOfText"]:
        """All labels of the batch's texts, by the text's number.

        The rows of a long text come in several batches, one after the other: what an earlier one
        had read is kept as long as the next one asks for it.
        """
        assert subject.batch.text_number is not None
        numbers = dict.fromkeys(subject.batch.text_number.tolist())
        self._texts = {
            number: self._texts.get(number) or LabelsOfText.read(subject, split, number)
            for number in numbers
        }
        return self._texts


def payoffs_of_yes(readout: Readout) -> Float[Tensor, "batch seq"]:
    """How much each position says yes by itself, without the decoder's bias; a logit."""
    effects = readout.position_effects
    return effects[..., YES] - effects[..., 1 - YES]


@dataclass(frozen=True)
class LabelsOfText:
    """The attentions of all labels that a text is asked for.

    Attributes:
        example_id: of each label's row.
        attention: of each label; it sums to 1.
    """

    example_id: Int[Tensor, "labels"]
    attention: Float[Tensor, "labels seq"]

    @classmethod
    def read(cls, subject: Subject, split: TextSplit, number: int) -> "LabelsOfText":
        """Read one text of a split with all its labels, so that it is encoded once for them."""
        assert split.text_number is not None
        rows = np.flatnonzero(split.text_number == number).tolist()
        text = split[rows].to(subject.batch.ids.device)
        with torch.no_grad():
            attention = subject.classifier(text).attention
        return cls(text.example_id, attention / attention.sum(-1, keepdim=True))


@dataclass(frozen=True)
class OtherLabels:
    """The attentions of the other labels that the text of each row is asked for.

    Attributes:
        attention: a row's own where there are fewer others.
        is_other: where it is another label's.
    """

    attention: Float[Tensor, "others batch seq"]
    is_other: Bool[Tensor, "others batch"]

    @classmethod
    def of(
        cls, subject: Subject, texts: Mapping[int, LabelsOfText], limit: int, draws: Draws
    ) -> "OtherLabels":
        """Those of a batch.

        What a row is compared with does not depend on what else is in its batch.

        Args:
            subject: the batch.
            texts: all labels of its texts, by the text's number.
            limit: other labels of a row at most; of more, so many are drawn.
            draws: of the probe.
        """
        batch = subject.batch
        assert batch.text_number is not None
        most = min(limit, max(len(text.attention) for text in texts.values()) - 1)
        attention = subject.readout.attention.expand(most, -1, -1).clone()
        is_other = torch.zeros_like(attention[..., 0], dtype=torch.bool)
        for row, number in enumerate(batch.text_number.tolist()):
            text = texts[number]
            example_id = int(batch.example_id[row])
            others = (text.example_id != example_id).nonzero().squeeze(-1)
            if len(others) > limit:
                order = torch.randperm(len(others), generator=draws.generator(example_id))
                others = others[order[:limit].to(others.device)]
            count = len(others)
            width = text.attention.shape[1]
            attention[:count, row, :width] = text.attention[others].to(attention)
            is_other[:count, row] = True
        return cls(attention, is_other)

    def mean(self, numbers: Float[Tensor, "others batch"]) -> Float[Tensor, "batch"]:
        """The mean over a row's other labels; NaN where there is none."""
        count = self.is_other.sum(0).double()
        total = torch.where(self.is_other, numbers, 0).sum(0)
        return total / torch.where(count > 0, count, torch.nan)


HEADINGS = {
    "other_label_jsd": "JSD to other labels' attention",
    "other_label_tvd": "TVD under it",
    "yes_to_no": "words, yes to no",
    "no_to_yes": "words, no to yes",
    "never_turns": "never turns",
    "against_mass": "weight on words against",
}
TABLED = ("has_label", "says_yes", *HEADINGS)


def label_table(results: pd.DataFrame) -> pd.DataFrame:
    """What was measured of each label, means over the texts that are asked for it."""

    def lines(rows: pd.DataFrame) -> Iterator[dict[str, object]]:
        names = label_of(rows)
        if names is None:
            return
        for name in np.unique(names.astype(str)):
            label_rows = rows[names == name]
            has_label = over_seeds(label_rows, label_rows["has_label"])
            line: dict[str, object] = {
                "label": name,
                "asked": len(has_label),
                "texts that have it": int(has_label.sum()),
                "said yes": float(over_seeds(label_rows, label_rows["says_yes"]).sum()),
                "right": float((label_rows["has_label"] == label_rows["says_yes"]).mean()),
            }
            for metric, heading in HEADINGS.items():
                scale = scale_of(results, "labels", metric)
                line |= mean_in_columns(heading, label_rows, label_rows[metric], scale)
            yield line

    return facet_table(results, "labels", TABLED, lines)


DIFFERENT_CLAIM = Claim(
    name="labels_need_their_own_attention",
    criterion="necessity",
    level="state",
    source="attnprobe: design of label attention",
    threshold=LEAST_EFFECT,
    statement="Another label's attention in place of a label's own changes its answer",
    measure=mean_of("other_label_tvd", reach=1.0, ends=(0, 1)),
    quantity="TVD, 0 to 1, mean of the texts and labels",
)
READING = Reading(
    probe="labels",
    order=5,
    title="Labels: does each have an attention of its own?",
    about=(
        "A text is asked for several labels, and each has its own attention. Here a label reads "
        "the text with the attention of the other labels. If its answer stays what it was, the "
        "attention says nothing that is particular to the label. The other numbers are exact. One "
        "is the size of the smallest set of words whose erasure turns a yes into a no, or a no "
        "into a yes. One is what each word says for the label or against it: its Shapley value, "
        "where the words are erased in any order."
    ),
    claims=(DIFFERENT_CLAIM,),
    headlines=(
        Headline("other_label_jsd", "JSD to the attention of the text's other labels"),
        Headline("other_label_tvd", "TVD of the answer under their attention"),
        Headline("yes_to_no", "smallest set of words that turns a yes into a no"),
        Headline("no_to_yes", "smallest set of words that turns a no into a yes"),
        Headline("never_turns", "answers that no set of words turns"),
        Headline("against_mass", "attention on words that speak against the label"),
    ),
    maps=(
        HeatMap(
            "label_value",
            "For the label and against it",
            "exact Shapley value of the word for a yes; orange: it speaks against the label",
            relative=True,
        ),
    ),
    tables=(
        Tabulation(
            "labels",
            "Each label: how often it is asked for, present and predicted; distance of its "
            "attention from those of the text's other labels, and of its answers under them; the "
            "smallest sets of words that turn an answer; the weight on words against it. Means "
            "with 95 % bootstrap intervals over texts and seeds.",
            label_table,
            TABLED,
        ),
    ),
)
