"""Our metrics beside their authors' own numbers and formulas, on the same scores:
docs/results/conformance.md.

    python -m benchmarks.conformance [-o docs/results/conformance.md]

NAOPC's limits (Edin et al. 2025): the authors' stored outputs and limits, in
`$ATTNPROBE_DATA_DIR/naopc` (without it that part is left out). ERASER's metrics (DeYoung et al.
2020): the formulas of their `rationale_benchmark/metrics.py`, written out here once more as plain
loops over lists, on random scores and rationales with ties and on a model's predictions, which are
asked for text by text."""

import argparse
import ast
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from sklearn.metrics import average_precision_score
from torch import Tensor

from attnprobe.core.randomness import Draws
from attnprobe.exact import prefix_limits
from attnprobe.importance import plausibility
from attnprobe.importance.base import Subject
from attnprobe.probes.base import Measurement
from attnprobe.probes.faithfulness import Faithfulness
from attnprobe.results.files import write_atomically
from benchmarks.eraser import their_auprc, their_partial_match, their_token_f1

MODELS = ("bert-base-uncased-SST-2", "roberta-base-imdb")
CLOSE = 1e-6
"""Numbers no farther apart are the same."""
Scores = tuple[Float[Tensor, "texts seq"], Bool[Tensor, "texts seq"], Bool[Tensor, "texts seq"]]


@dataclass(frozen=True)
class Compared:
    """A metric on several texts: how many of ours equal theirs, the largest difference, and the
    reason of those that differ."""

    metric: str
    numbers: int
    same: int
    largest: float
    reason: str = ""

    @classmethod
    def of(
        cls, metric: str, ours: Sequence[float], theirs: Sequence[float], reason: str = ""
    ) -> "Compared":
        """Compare two lists; a number that both do not have is the same."""
        a = np.asarray(ours, float)
        b = np.asarray(theirs, float)
        apart = np.where(np.isnan(a) & np.isnan(b), 0, np.abs(a - b))
        return cls(metric, len(a), int((apart <= CLOSE).sum()), float(apart.max()), reason)

    @property
    def line(self) -> str:
        """A line of the page's table."""
        return (
            f"| {self.metric} | {self.numbers} | {self.same} | {self.largest:.1e} | {self.reason} |"
        )


# --- Edin et al. 2025 -------------------------------------------------------------------------------------------------


def limits_of(folder: Path, model: str) -> pd.DataFrame:
    """The two limits of every text: `lower` and `upper` of ours, `their_lower` and `their_upper`,
    `all_over_n` = drop(all)/n."""
    outputs = pd.read_parquet(folder / f"outputs_sst2_{model}.parquet")
    stored = pd.read_parquet(folder / f"limits_sst2_{model}.parquet").set_index("id")
    rows = []
    for text, own in outputs.groupby("id"):
        words = int(stored.loc[text].number_of_elements)
        masks = [
            sum(1 << (word - 1) for word in set(ast.literal_eval(removed)))
            for removed in own.word_key
        ]
        logits = np.zeros((2**words, 2))
        logits[masks] = own[["negative_logit", "positive_logit"]]
        positive = torch.from_numpy(logits).softmax(-1)[:, 1]
        drop = positive[0] - positive
        ours = prefix_limits(drop[None])
        rows.append(
            {
                "text": text,
                "words": words,
                "lower": ours.lower.item(),
                "upper": ours.upper.item(),
                "their_lower": stored.loc[text].lower_limit,
                "their_upper": stored.loc[text].upper_limit,
                "all_over_n": drop[-1].item() / words,
            }
        )
    return pd.DataFrame(rows)


def naopc(folder: Path) -> list[str]:
    """The page's part about the limits of AOPC."""
    lines = [
        "## NAOPC: the limits of AOPC",
        "",
        "Edin et al. 2025 store the two logits of every subset of the words of 66 texts, and the limits of AOPC that trying "
        "all n! orders found. Ours come from a shortest path in the lattice of subsets (`attnprobe.exact.prefix_limits`), on "
        "the same logits. Their target is the probability of the positive class, also of texts that the model calls "
        "negative; here it is so as well.",
        "",
        "| model, limit | texts | equal | largest difference | reason |",
        "|---|---|---|---|---|",
    ]
    differ = []
    for model in MODELS:
        table = limits_of(folder, model)
        for limit in ("lower", "upper"):
            lines.append(
                Compared.of(
                    f"{model}, {limit}",
                    table[limit],
                    table[f"their_{limit}"],
                    "below" if limit == "upper" else "",
                ).line
            )
        differ += [
            (model, one)
            for one in table.to_dict("records")
            if abs(one["upper"] - one["their_upper"]) > CLOSE
        ]
    lines += [
        "",
        "The upper limits that differ, one by one. The released search for the best order begins with 0 as the best sum of "
        "the proper prefixes found so far. Where every order's proper prefixes sum to less than 0 it keeps the 0, and what "
        "is stored is drop(all words)/n, which no order reaches: in each of these texts it is exactly that.",
        "",
        "| model | text | words | ours | theirs | drop(all)/n |",
        "|---|---|---|---|---|---|",
    ]
    for model, one in differ:
        assert abs(one["their_upper"] - one["all_over_n"]) <= CLOSE
        lines.append(
            f"| {model} | {one['text']} | {one['words']} | {one['upper']:.9f} | {one['their_upper']:.9f} | "
            f"{one['all_over_n']:.9f} |"
        )
    return [*lines, ""]


def random_scores(texts: int = 200) -> Scores:
    """Scores, rationales and content of texts of different lengths; scores of the second half have
    ties."""
    draw = torch.Generator().manual_seed(0)
    lengths = torch.randint(2, 40, (texts, 1), generator=draw)
    content = torch.arange(40) < lengths
    scores = torch.rand(texts, 40, generator=draw, dtype=torch.float64)
    scores[texts // 2 :] = (scores[texts // 2 :] * 6).floor() / 6
    rationale = (torch.rand(texts, 40, generator=draw) < 0.3) & content
    rationale[:, 0] |= ~rationale.any(-1)
    return scores, rationale, content


def plausibility_metrics(scores: Scores) -> list[Compared]:
    """Token F1, IoU F1 and AUPRC, ours as the probe takes them."""
    values, rationale, content = scores
    count = rationale.sum(-1, keepdim=True)
    order = values.masked_fill(~content, -torch.inf).argsort(dim=-1, descending=True, stable=True)
    chosen = (order.argsort(dim=-1) < count) & content
    texts = [
        (row[keep].tolist(), truth[keep].tolist(), mark[keep].tolist())
        for row, truth, mark, keep in zip(values, rationale, chosen, content, strict=True)
    ]
    half = len(texts) // 2
    ours = plausibility.precision_at_size(*scores).tolist()
    f1 = [their_token_f1(mark, truth) for _, truth, mark in texts]
    spans = [their_partial_match(mark, truth) for _, truth, mark in texts]
    precision, recall = plausibility.matched_spans(chosen, rationale)
    average = plausibility.average_precision(*scores).tolist()
    theirs = [average_precision_score(truth, row) for row, truth, _ in texts]
    area = [their_auprc(truth, row) for row, truth, _ in texts]
    ties = "where words tie for the last place theirs depends on who chooses; ours is the mean over all choices"
    curve = (
        "ours is the average precision, which they report as `average_precision`; their `auprc` joins the points of the "
        "curve by straight lines, which is too hopeful (Davis & Goadrich 2006)"
    )
    return [
        Compared.of(
            "token F1 of as many words as the rationale has, no ties", ours[:half], f1[:half]
        ),
        Compared.of("token F1, ties", ours[half:], f1[half:], ties),
        Compared.of("IoU precision at 0.5", precision.tolist(), [one for one, _ in spans]),
        Compared.of("IoU recall at 0.5", recall.tolist(), [one for _, one in spans]),
        Compared.of("average precision", average, theirs),
        Compared.of("AUPRC", average, area, curve),
    ]


def erasure_metrics(subject: Subject) -> list[Compared]:
    """Comprehensiveness and sufficiency as AOPC over their thresholds, ours by the probe; theirs
    text by text."""
    names = ("attention", "gradient_input")
    probe = Faithfulness(importances=names, operators=["delete"])
    found = {
        one.metric: one.value
        for one in probe.measure(subject, Draws(0, "faithfulness"))
        if isinstance(one, Measurement)
    }
    lines = []
    for name in names:
        scores = subject.scores(name)
        both = [text_by_text(subject, row, scores[row]) for row in range(len(subject.batch))]
        for number, metric in enumerate(("comprehensiveness", "sufficiency")):
            ours = found[f"{metric}_{name}_by_delete"].tolist()
            lines.append(
                Compared.of(
                    f"{metric} (AOPC), {name.replace('_', ' ')}",
                    ours,
                    [one[number] for one in both],
                )
            )
    return lines


def text_by_text(subject: Subject, row: int, scores: Tensor) -> tuple[float, float]:
    """`_instances_aopc` of one text: the means of beta_0 − beta_k over the thresholds."""
    model = subject.classifier
    batch = subject.batch
    words = batch.content[row].nonzero()[:, 0].tolist()
    ranked = sorted(words, key=lambda place: (-scores[place].item(), place))
    start = words[0] - 1
    end = words[-1] + 1

    def predicted(kept: Sequence[int]) -> np.ndarray:
        if not kept:
            return np.full(model.classes, np.nan)
        places = torch.tensor([start, *sorted(kept), end])
        text = batch.rows(torch.tensor([row]))
        text.ids, text.mask, text.content = (
            one[:, places] for one in (text.ids, text.mask, text.content)
        )
        with torch.no_grad():
            return model(text).logits[0].softmax(-1).double().numpy()

    whole = predicted(words)
    kind = int(whole.argmax())
    totals = np.zeros(2)
    for threshold in (0.01, 0.05, 0.1, 0.2, 0.5):
        count = int(np.ceil(threshold * len(words) - 1e-9))
        top = ranked[:count]
        rest = [place for place in words if place not in top]
        totals += [whole[kind] - predicted(rest)[kind], whole[kind] - predicted(top)[kind]]
    return float(totals[0] / 5), float(totals[1] / 5)


def eraser(subject: Callable[[], Subject]) -> list[str]:
    """The page's part about ERASER's metrics."""
    compared = [*plausibility_metrics(random_scores()), *erasure_metrics(subject())]
    return [
        "## ERASER",
        "",
        "The formulas of DeYoung et al. 2020 as their `rationale_benchmark/metrics.py` has them, written out as plain loops. "
        "Plausibility on 200 random texts, half of them with equal scores; comprehensiveness and sufficiency on a model "
        "whose weights are random, asked text by text. Which text is left without the words is not in their code (it reads "
        "probabilities from a file): here the words are deleted.",
        "",
        "| metric | numbers | equal | largest difference | reason |",
        "|---|---|---|---|---|",
        *(one.line for one in compared),
        "",
        "Three more things differ by design. Their F1 over a data set is the F1 of mean precision and mean recall (IoU) or "
        "the mean of F1 (tokens); ours is per text, and tables have its mean. Their thresholds are shares of a length that "
        "the file's maker rounds; ours are rounded up to whole words. And theirs takes hard rationales from a file; ours "
        "takes as many of the highest-scored words as the rationale has.",
        "",
    ]


def small_model() -> Subject:
    """An LSTM with random weights, and 40 texts."""
    from tests.toys import toy_batch, toy_classifier, toy_readout

    classifier = toy_classifier(spread=4)
    batch = toy_batch([5 + number % 23 for number in range(40)])
    return Subject(classifier, batch, *toy_readout(classifier, batch))


def page() -> str:
    """docs/results/conformance.md."""
    folder = Path(os.environ.get("ATTNPROBE_DATA_DIR", "")) / "naopc"
    limits = naopc(folder) if "ATTNPROBE_DATA_DIR" in os.environ and folder.is_dir() else []
    head = [
        "# Conformance: our metrics and their authors' numbers",
        "",
        "In short: on the same scores our numbers are the authors' to 1e-6, but where theirs are wrong or count ties",
        "otherwise; each of these is named below, and of the limits of NAOPC each text.",
        "",
        "Ours beside the authors' own numbers, on the same scores: equal means to 1e-6. Made by",
        "`ATTNPROBE_DATA_DIR=… python -m benchmarks.conformance -o docs/results/conformance.md`.",
        "",
    ]
    return "\n".join([*head, *limits, *eraser(small_model)])


def main() -> None:
    """Write the page, or print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    text = page()
    if given.output is None:
        print(text)
    else:
        write_atomically(given.output, lambda path: path.write_text(text, "utf-8"))


if __name__ == "__main__":
    main()
