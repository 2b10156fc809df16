"""Is attention needed, and do its weights carry the label? Convex read-outs of words and states;
nothing is retrained."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
import torch
from annotated_types import Ge
from jaxtyping import Float, Int
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MaxAbsScaler

from attnprobe.core.batch import Batch, Outputs
from attnprobe.core.errors import UserError
from attnprobe.core.metrics import SHARE, Metric, Scale
from attnprobe.core.randomness import Draws
from attnprobe.core.settings import Positive
from attnprobe.data.batching import TextSplit, short_enough
from attnprobe.evidence.claims import Claim
from attnprobe.evidence.evidence import mean_of
from attnprobe.evidence.reading import Headline, Reading
from attnprobe.exact.nulls import even
from attnprobe.importance.word_swaps import POSITIONS_AT_ONCE, in_float32
from attnprobe.probes.base import Measurement, Probe, Subject

KINDS = ("words_attention", "words_equal", "states_attention", "states_equal")
FOLDS = 5
FEWEST = 20
"""Texts of a class below which no read-out is fitted for it: its texts are left out."""
OF = {
    "words_attention": "Σ α_t of each word of the vocabulary",
    "words_equal": "each word's share of the text",
    "states_attention": "Σ α_t h_t, the model's own attended vector",
    "states_equal": "the plain mean of these very states h_t",
}
METRICS = (
    *(
        Metric(
            f"readout_{kind}",
            SHARE,
            f"whether a logistic regression on {OF[kind]}, fitted on other texts, tells the label",
            higher_is_better=True,
        )
        for kind in KINDS
    ),
    Metric(
        "readout_weight",
        Scale("texts", 0),
        "of a text in a balanced accuracy: texts / (classes × texts of its label)",
    ),
)


@dataclass
class Readouts(Probe):
    """Logistic regressions on what attention picks out, and on all words or states alike: convex,
    one optimum, no seed.

    Each text of the split is told by a fit on the others (five folds, each class in each fold), so
    that a checkpoint is examined as it is. The claims are not those of a model that is trained anew
    with equal weights (`+experiment=audit`, `+experiment=wiegreffe`): there the states change as
    well.

    Attributes:
        penalty: C of `sklearn.linear_model.LogisticRegression`, the inverse of the weight of the
            squared norm; every feature is scaled to at most 1.
        texts: most texts that take part, evenly over the split; of the others there is no number
            (NaN).
    """

    name = "readouts"
    metrics = METRICS
    one_decision = of_words = True
    penalty: Positive = 10.0
    texts: Annotated[int, Ge(100)] = 2000

    _split: TextSplit | None = field(default=None, init=False, repr=False)
    _told: dict[str, Float[np.ndarray, " rows"]] | None = field(
        default=None, init=False, repr=False
    )

    def prepare(self, splits: Mapping[str, TextSplit]) -> None:
        self._split = splits["test"]
        self._told = None

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement]:
        if self._split is None:
            raise UserError(
                "probe readouts fits on the other texts of a split, which only a run has: leave "
                "it out here"
            )
        if self._told is None:
            device = subject.batch.content.device
            self._told = self._of_split(in_float32(subject.classifier), self._split, device)
        rows = [self._split.row_of(number) for number in subject.batch.example_id.tolist()]
        for name, told in self._told.items():
            yield Measurement(name, torch.from_numpy(told[rows]))

    def _of_split(
        self, run: Callable[[Batch], Outputs], split: TextSplit, device: torch.device
    ) -> dict[str, Float[np.ndarray, " rows"]]:
        # what the fits say of each text, NaN where it does not take part
        labels = np.asarray(split.labels)
        chosen = np.zeros(len(split), bool)
        chosen[np.linspace(0, len(split) - 1, min(self.texts, len(split))).round().astype(int)] = (
            True
        )
        # repeats of a text share a fold, so that none is told by itself
        known: dict[bytes, int] = {}
        first = np.array(
            [known.setdefault(split.words[row].tobytes(), row) for row in range(len(split))]
        )
        classes, counts = np.unique(
            labels[chosen & (first == np.arange(len(split)))], return_counts=True
        )
        classes = classes[counts >= FEWEST]
        kept = np.flatnonzero(chosen & np.isin(labels, classes))
        told = {f"readout_{name}": np.full(len(split), np.nan) for name in (*KINDS, "weight")}
        if len(classes) < 2:
            return told
        of_class = np.searchsorted(classes, labels[kept])
        told["readout_weight"][kept] = (len(kept) / (len(classes) * np.bincount(of_class)))[
            of_class
        ]
        for kind, features in _features(run, split, kept, device).items():
            told[f"readout_{kind}"][kept] = (
                out_of_fold(features, of_class, first[kept], self.penalty) == of_class
            )
        return told


def _features(
    run: Callable[[Batch], Outputs],
    split: TextSplit,
    rows: Int[np.ndarray, " kept"],
    device: torch.device,
) -> dict[str, sparse.csr_matrix]:
    # of each kind one row of features per text
    words: dict[str, list[tuple[np.ndarray, np.ndarray, np.ndarray]]] = {
        "words_attention": [],
        "words_equal": [],
    }
    states: dict[str, np.ndarray] = {}
    for some in map(np.array, short_enough(split.words.lengths[rows], most=POSITIONS_AT_ONCE)):
        with torch.no_grad():
            outputs = run(split[rows[some].tolist()].to(device))
        weights = {"attention": outputs.attention.double(), "equal": even(outputs.content).double()}
        for kind, weight in weights.items():
            attended = torch.einsum("bs,bsh->bh", weight, outputs.hidden.double()).cpu().numpy()
            states.setdefault(f"states_{kind}", np.empty((len(rows), attended.shape[-1])))[some] = (
                attended
            )
            for place, row, content in zip(
                some.tolist(), weight.cpu(), outputs.content.cpu(), strict=True
            ):
                number = split.words[rows[place]]
                own = row[content].numpy()[: len(number)]
                words[f"words_{kind}"].append((np.full(len(number), place), number, own))
    found = {}
    for kind, parts in words.items():
        place, number, value = (np.concatenate(column) for column in zip(*parts, strict=True))
        vocabulary, column = np.unique(number, return_inverse=True)
        found[kind] = sparse.csr_matrix((value, (place, column)), (len(rows), len(vocabulary)))
    return found | {kind: sparse.csr_matrix(values) for kind, values in states.items()}


def out_of_fold(
    features: sparse.csr_matrix,
    labels: Int[np.ndarray, " texts"],
    groups: Int[np.ndarray, " texts"],
    penalty: float,
) -> Int[np.ndarray, " texts"]:
    """The class of each text by a fit on the texts of the other folds; those of one group are in
    one fold."""
    told = np.full(len(labels), -1)
    firsts, place = np.unique(groups, return_index=True)
    for fit, ask in StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(
        firsts, labels[place]
    ):
        seen, asked = (np.isin(groups, firsts[part]) for part in (fit, ask))
        if len(np.unique(labels[seen])) > 1:
            told[asked] = fitted(features[seen], labels[seen], penalty).predict(features[asked])
    return told


def fitted(
    features: sparse.csr_matrix, labels: Int[np.ndarray, " texts"], penalty: float
) -> Pipeline:
    """The minimum of C Σ log loss + ½ ‖w‖² over features that are scaled to at most 1."""
    return make_pipeline(
        MaxAbsScaler(), LogisticRegression(C=penalty, tol=1e-8, max_iter=10_000)
    ).fit(features, labels)


def _claim(name: str, criterion: str, statement: str, kind: str) -> Claim:
    metrics = f"readout_{kind}_attention", f"readout_{kind}_equal", "readout_weight"
    return Claim(
        name=name,
        criterion=criterion,
        statement=statement,
        speaks="for",
        source="attnprobe: docs/concepts.md",
        measure=mean_of(
            *metrics, value=lambda attention, equal, weight: weight * (attention - equal)
        ),
        quantity="difference of balanced accuracies, −1 to 1",
        smallest=0.01,
    )


READING = Reading(
    probe="readouts",
    order=7,
    title="Read-outs: do the weights tell more than equal ones, with nothing trained again?",
    about=(
        "Logistic regressions are fitted on four descriptions of each text: its words by their "
        "weight, its words alike, its states by their weight, and the same states alike. Each "
        "text is told by a fit on other texts. Where weights tell no more than equal ones, a "
        "reader of this very model loses nothing without them. A model that is trained with equal "
        "weights from the start may differ, for its states adapt: that is another claim."
    ),
    claims=(
        _claim(
            "states_by_weight_tell_more",
            "necessity",
            "The model's states, weighted, tell the label better than the same states alike",
            "states",
        ),
        _claim(
            "words_by_weight_tell_more",
            "leak",
            "Words by their weight tell the label better than words alike, to a "
            "model without context",
            "words",
        ),
    ),
    headlines=tuple(
        Headline(f"readout_{kind}", f"a read-out of {OF[kind]} is right", proportion_of="examples")
        for kind in KINDS
    ),
)
