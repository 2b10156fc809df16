"""Our metrics beside their authors' own numbers and formulas, on the same scores.

The page docs/results/conformance.md.

    python -m benchmarks.conformance [-o docs/results/conformance.md]

NAOPC's limits (Edin et al. 2025): the authors' stored outputs and limits, in
`$ATTNPROBE_DATA_DIR/naopc` (without it that part is left out). ERASER's metrics (DeYoung et al.
2020): the formulas of their `rationale_benchmark/metrics.py`, written out here once more as plain
loops over lists, on random scores and rationales with ties and on a model's predictions, which are
asked for text by text.
"""

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
TIES = (
    "where words tie for the last place theirs depends on who chooses; ours is the mean over all "
    "choices"
)
CURVE = (
    "ours is the average precision, which they report as `average_precision`; their `auprc` joins "
    "the points of the curve by straight lines, which is too hopeful (Davis & Goadrich 2006)"
)
Scores = tuple[Float[Tensor, "texts seq"], Bool[Tensor, "texts seq"], Bool[Tensor, "texts seq"]]


@dataclass(frozen=True)
class Compared:
    """A metric on several texts.

    Attributes:
        metric: its name.
        numbers: how many were compared.
        same: how many of ours equal theirs.
        largest: difference.
        reason: of those that differ.
    """

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
        difference = np.where(np.isnan(a) & np.isnan(b), 0, np.abs(a - b))
        same = int((difference <= CLOSE).sum())
        return cls(metric, len(a), same, float(difference.max()), reason)

    @property
    def line(self) -> str:
        """A line of the page's table."""
        return (
            f"| {self.metric} | {self.numbers} | {self.same} | {self.largest:.1e} | {self.reason} |"
        )


# Edin et al. 2025


def limits_of(folder: Path, model: str) -> pd.DataFrame:
    """The two limits of every text.

    `lower` and `upper` of ours, `their_lower` and `their_upper`, `all_over_n` = drop(all)/n.
    """
    outputs = pd.read_parquet(folder / f"outputs_sst2_{model}.parquet")
    stored = pd.read_parquet(folder / f"limits_sst2_{model}.parquet").set_index("id")
    rows = []
    for text, subsets in outputs.groupby("id"):
        words = int(stored.loc[text].number_of_elements)
        masks = [bits(removed) for removed in subsets.word_key]
        logits = np.zeros((2**words, 2))
        logits[masks] = subsets[["negative_logit", "positive_logit"]]
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


def bits(removed: str) -> int:
    """A stored set of words, numbered from 1, as a number with a bit for each."""
    return sum(1 << (word - 1) for word in set(ast.literal_eval(removed)))


def naopc(folder: Path) -> list[str]:
    """The page's part about the limits of AOPC."""
    lines = [
        "## NAOPC: the limits of AOPC",
        "",
        "Edin et al. 2025 store the two logits of every subset of the words of 66 texts, and the "
        "limits of AOPC that trying all n! orders found. Ours come from a shortest path in the "
        "lattice of subsets (`attnprobe.exact.prefix_limits`), on the same logits. Their target is "
        "the probability of the positive class, also of texts that the model calls negative; here "
        "it is so as well.",
        "",
        "| model, limit | texts | equal | largest difference | reason |",
        "|---|---|---|---|---|",
    ]
    differ = []
    for model in MODELS:
        table = limits_of(folder, model)
        for limit in ("lower", "upper"):
            reason = "below" if limit == "upper" else ""
            theirs = table[f"their_{limit}"]
            lines.append(Compared.of(f"{model}, {limit}", table[limit], theirs, reason).line)
        for row in table.to_dict("records"):
            if abs(row["upper"] - row["their_upper"]) > CLOSE:
                differ.append((model, row))
    lines += [
        "",
        "The upper limits that differ, one by one. The released search for the best order begins "
        "with 0 as the best sum of the proper prefixes found so far. Where every order's proper "
        "prefixes sum to less than 0 it keeps the 0, and what is stored is drop(all words)/n, "
        "which no order reaches: in each of these texts it is exactly that.",
        "",
        "| model | text | words | ours | theirs | drop(all)/n |",
        "|---|---|---|---|---|---|",
    ]
    for model, row in differ:
        assert abs(row["their_upper"] - row["all_over_n"]) <= CLOSE
        lines.append(
            f"| {model} | {row['text']} | {row['words']} | {row['upper']:.9f} | "
            f"{row['their_upper']:.9f} | {row['all_over_n']:.9f} |"
        )
    return [*lines, ""]


def random_scores(texts: int = 200) -> Scores:
    """Scores, rationales and content of texts of different lengths.

    Scores of the second half have ties.
    """
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
    tokens = plausibility.precision_at_size(*scores).tolist()
    precision, recall = plausibility.matched_spans(chosen, rationale)
    average = plausibility.average_precision(*scores).tolist()

    theirs = pd.DataFrame(
        their_plausibility(values[row, words], rationale[row, words], chosen[row, words])
        for row, words in enumerate(content)
    )
    half = len(theirs) // 2
    no_ties = "token F1 of as many words as the rationale has, no ties"
    return [
        Compared.of(no_ties, tokens[:half], theirs["f1"][:half]),
        Compared.of("token F1, ties", tokens[half:], theirs["f1"][half:], TIES),
        Compared.of("IoU precision at 0.5", precision.tolist(), theirs["precision"]),
        Compared.of("IoU recall at 0.5", recall.tolist(), theirs["recall"]),
        Compared.of("average precision", average, theirs["average"]),
        Compared.of("AUPRC", average, theirs["area"], CURVE),
    ]


def their_plausibility(scores: Tensor, rationale: Tensor, chosen: Tensor) -> dict[str, float]:
    """Their formulas for one text."""
    truth = rationale.tolist()
    precision, recall = their_partial_match(chosen.tolist(), truth)
    return {
        "f1": their_token_f1(chosen.tolist(), truth),
        "precision": precision,
        "recall": recall,
        "average": average_precision_score(truth, scores.tolist()),
        "area": their_auprc(truth, scores.tolist()),
    }


def erasure_metrics(subject: Subject) -> list[Compared]:
    """Comprehensiveness and sufficiency as AOPC over their thresholds.

    Ours by the probe; theirs text by text.
    """
    names = ("attention", "gradient_input")
    probe = Faithfulness(importances=names, operators=["delete"])
    measured = {}
    for result in probe.measure(subject, Draws(0, "faithfulness")):
        if isinstance(result, Measurement):
            measured[result.metric] = result.value
    rows = []
    for name in names:
        scores = subject.scores(name)
        pairs = [text_by_text(subject, row, scores[row]) for row in range(len(subject.batch))]
        title = name.replace("_", " ")
        for number, metric in enumerate(("comprehensiveness", "sufficiency")):
            ours = measured[f"{metric}_{name}_by_delete"].tolist()
            theirs = [pair[number] for pair in pairs]
            rows.append(Compared.of(f"{metric} (AOPC), {title}", ours, theirs))
    return rows


def text_by_text(subject: Subject, row: int, scores: Tensor) -> tuple[float, float]:
    """`_instances_aopc` of one text: the means of beta_0 − beta_k over the thresholds."""
    model = subject.classifier
    batch = subject.batch
    words = batch.content[row].nonzero()[:, 0].tolist()
    ranked = sorted(words, key=lambda place: (-scores[place].item(), place))
    start = words[0] - 1
    end = words[-1] + 1

    def predicted(remaining: Sequence[int]) -> np.ndarray:
        if not remaining:
            return np.full(model.classes, np.nan)
        places = torch.tensor([start, *sorted(remaining), end])
        text = batch.rows(torch.tensor([row]))
        text.ids = text.ids[:, places]
        text.mask = text.mask[:, places]
        text.content = text.content[:, places]
        with torch.no_grad():
            return model(text).logits[0].softmax(-1).double().numpy()

    whole = predicted(words)
    kind = int(whole.argmax())
    totals = np.zeros(2)
    for threshold in (0.01, 0.05, 0.1, 0.2, 0.5):
        count = int(np.ceil(threshold * len(words) - 1e-9))
        top = ranked[:count]
        rest = [place for place in words if place not in top]
        totals[0] += whole[kind] - predicted(rest)[kind]
        totals[1] += whole[kind] - predicted(top)[kind]
    return float(totals[0] / 5), float(totals[1] / 5)


def eraser(subject: Callable[[], Subject]) -> list[str]:
    """The page's part about ERASER's metrics."""
    compared = [*plausibility_metrics(random_scores()), *erasure_metrics(subject())]
    return [
        "## ERASER",
        "",
        "The formulas of DeYoung et al. 2020 as their `rationale_benchmark/metrics.py` has them, "
        "written out as plain loops. Plausibility on 200 random texts, half of them with equal "
        "scores; comprehensiveness and sufficiency on a model whose weights are random, asked text "
        "by text. Which text is left without the words is not in their code (it reads "
        "probabilities from a file): here the words are deleted.",
        "",
        "| metric | numbers | equal | largest difference | reason |",
        "|---|---|---|---|---|",
        *(row.line for row in compared),
        "",
        "Three more things differ by design. Their F1 over a data set is the F1 of mean precision "
        "and mean recall (IoU) or the mean of F1 (tokens); ours is per text, and tables have its "
        "mean. Their thresholds are shares of a length that the file's maker rounds; ours are "
        "rounded up to whole words. And theirs takes hard rationales from a file; ours takes as "
        "many of the highest-scored words as the rationale has.",
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
        "In short: on the same scores our numbers are the authors' to 1e-6, but where theirs are "
        "wrong or count ties",
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
    output = parser.parse_args().output
    text = page()
    if output is None:
        print(text)
    else:
        write_atomically(output, lambda path: path.write_text(text, "utf-8"))


if __name__ == "__main__":
    main()
