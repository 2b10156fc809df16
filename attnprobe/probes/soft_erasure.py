"""Does the prediction rest on words as much as an importance says? (Zhao & Aletras 2023)"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from scipy.stats import rankdata
from torch import Tensor

from attnprobe.core.batch import Batch, probabilities
from attnprobe.core.metrics import PROBABILITY, PROBABILITY_DIFFERENCE, Metric, Scale
from attnprobe.core.randomness import Draws
from attnprobe.core.settings import Count
from attnprobe.models.base import Model
from attnprobe.probes.base import DESCRIPTION, Measurement, Note, RankingProbe, Subject
from attnprobe.readings.means import means_by_importance
from attnprobe.readings.reading import Headline, Reading, Tabulation

SOURCE = "Zhao & Aletras 2023"
NORMALISED = Scale("share of the fall without any word", 0, 1)
KEPT = Scale("1 − share of the fall without any word", 0, 1)
METRICS = (
    Metric("probability", PROBABILITY, "p of the whole text"),
    Metric(
        "drop_of_nothing", PROBABILITY_DIFFERENCE, "fall of p where every word's vector is zero"
    ),
    Metric(
        "soft_comprehensiveness_{importance}",
        NORMALISED,
        "fall of p where each number of a word's vector goes with the "
        "word's place in the order of scores as its probability, over `drop_of_nothing`",
        higher_is_better=True,
        source=SOURCE,
    ),
    Metric(
        "soft_sufficiency_{importance}",
        KEPT,
        "1 − the same where each number stays with that probability",
        higher_is_better=True,
        source=SOURCE,
    ),
    *DESCRIPTION,
)


@dataclass
class SoftErasure(RankingProbe):
    """Every word loses part of itself: the more important it is, the more of it goes, or stays.

    Each number of a word's vector stays (sufficiency) or goes (comprehensiveness) with the word's
    place in the order of the text's scores, 0 to 1, as its probability.

    With p the probability of the class predicted for the whole text, `soft_comprehensiveness_X` is
    max(0, p − p') / max(0, p − p(no word)), at most 1, and `soft_sufficiency_X` 1 − the same of the
    numbers that stay, at least 0; means over `samples` draws, which are the same for every
    importance X. NaN where a text without words is no less likely to be of that class, and where a
    score is undefined.

    Attributes:
        samples: draws, 1 or more; each takes two passes per importance.

    Note:
        Published, the probability is the score moved to 0 to 1 by the least and the greatest of the
        text. A peaked score then takes out one word's numbers and a flat one half of all, so that
        the two metrics tell of peakedness as much as of order (arXiv 2601.03089). Places keep half
        of the numbers, in expectation, of every text and importance.
    """

    name = "soft_erasure"
    metrics = METRICS
    of_words = True
    one_decision = True
    published = ("attention", "random", "gradient_input", "integrated_gradients", "leave_one_out")
    samples: Count = 20

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield p, its fall without any word, and both numbers of each importance."""
        eraser = VectorEraser.of(subject)
        rates = {
            name: places_in_order(scores, subject.batch.content)
            for name, scores in self.scores(subject).items()
        }
        falls_with_rest = {name: torch.zeros_like(eraser.whole) for name in rates}
        falls_with_words = {name: torch.zeros_like(eraser.whole) for name in rates}
        generators = list(map(draws.generator, subject.batch.example_id.tolist()))
        for _ in range(self.samples):
            uniform = eraser.uniform(generators)
            for name, rate in rates.items():
                falls_with_rest[name] += eraser.soft_fall(uniform, 1 - rate) / self.samples
                falls_with_words[name] += eraser.soft_fall(uniform, rate) / self.samples

        fall_without_words = eraser.whole - eraser.probability(~eraser.is_word.unsqueeze(-1))
        yield Measurement("probability", eraser.whole)
        yield Measurement("drop_of_nothing", fall_without_words)
        for name, rate in rates.items():
            scale = _scale(fall_without_words, rate)
            # where hardly anything is lost without any word, a share of that would be of any size
            comprehensiveness = (falls_with_rest[name] / scale).clamp(max=1)
            sufficiency = (1 - falls_with_words[name] / scale).clamp(min=0)
            yield Measurement(f"soft_comprehensiveness_{name}", comprehensiveness)
            yield Measurement(f"soft_sufficiency_{name}", sufficiency)
        yield from self.notes(subject)


def _scale(
    fall_without_words: Float[Tensor, "batch"], rate: Float[Tensor, "batch seq"]
) -> Float[Tensor, "batch"]:
    """What both numbers are shares of; NaN where it is not above 0, or a score is undefined."""
    is_defined = (fall_without_words > 0) & ~rate.isnan().any(-1)
    return fall_without_words.where(is_defined, torch.nan)


@dataclass(frozen=True)
class VectorEraser:
    """Predicts the decision from texts whose vectors have lost some of their numbers.

    Attributes:
        inputs: the vectors of the texts.
        word: position of the word that each vector is of, negative where it is of none.
        decision: the class predicted for each whole text.
        whole: its probability, 0 to 1; float64.
    """

    model: Model
    batch: Batch
    inputs: Float[Tensor, "batch parts features"]
    word: Int[Tensor, "batch parts"]
    decision: Int[Tensor, "batch one"]
    whole: Float[Tensor, "batch"]

    @classmethod
    def of(cls, subject: Subject) -> "VectorEraser":
        """The vectors and the decisions of a batch."""
        model = subject.classifier
        prediction = subject.readout.prediction()
        decision = prediction.argmax(-1, keepdim=True)
        with torch.no_grad():
            inputs = model.inputs(subject.batch)
        return cls(
            model,
            subject.batch,
            inputs,
            word=model.word_of(subject.batch),
            decision=decision,
            whole=prediction.gather(-1, decision)[:, 0].double(),
        )

    @property
    def is_word(self) -> Bool[Tensor, "batch parts"]:
        """Which vectors are of a word."""
        return self.word >= 0

    def probability(self, stays: Bool[Tensor, "batch parts #features"]) -> Float[Tensor, "batch"]:
        """Probability of the decision with the numbers that stay, all others 0; float64."""
        inputs = self.inputs * stays.to(self.inputs.dtype)
        with torch.no_grad():
            logits = self.model.outputs_from(self.batch, inputs).logits
        probability = probabilities(logits, self.model.task)
        return probability.gather(-1, self.decision)[:, 0].double()

    def soft_fall(
        self, uniform: Float[Tensor, "batch parts features"], rate: Float[Tensor, "batch seq"]
    ) -> Float[Tensor, "batch"]:
        """Fall of the probability, 0 or more, when each number of a word stays at the word's rate.

        Args:
            uniform: a number stays where this is below its rate.
            rate: of each word, 0 to 1; NaN stands for 0 or 1, for the result is not used.
        """
        rate_of_word = rate.nan_to_num(nan=0).gather(1, self.word.clamp(min=0))
        stays = (uniform < rate_of_word.unsqueeze(-1)) | ~self.is_word.unsqueeze(-1)
        return (self.whole - self.probability(stays)).clamp(min=0)

    def uniform(
        self, generators: Sequence[torch.Generator]
    ) -> Float[Tensor, "batch parts features"]:
        """U(0, 1) for each number of each word's vector, 1 elsewhere.

        Args:
            generators: one of each text, whose numbers do not depend on its padding.
        """
        features = self.inputs.shape[-1]
        uniform = torch.ones(*self.word.shape, features, dtype=torch.float64)
        for row, generator in enumerate(generators):
            is_word = self.is_word[row].cpu()
            uniform[row, is_word] = torch.rand(
                int(is_word.sum()), features, generator=generator, dtype=torch.float64
            )
        return uniform.to(self.word.device)


def places_in_order(
    scores: Float[Tensor, "batch seq"], content: Bool[Tensor, "batch seq"]
) -> Float[Tensor, "batch seq"]:
    """(rank − ½) / n of each of a text's words, the highest score last.

    Equal scores share their mean rank. The mean over a text's words is ½, whatever the scores are.

    Returns:
        The places, 0 to 1; 0 outside the content, NaN in a text with a score that is NaN.
    """
    places = torch.zeros(scores.shape, dtype=torch.float64)
    for row, words in enumerate(content.cpu()):
        text_scores = scores[row, words.to(scores.device)].double().cpu()
        rank = rankdata(text_scores)
        places[row, words] = torch.from_numpy((rank - 0.5) / max(len(text_scores), 1))
    return places.to(scores.device)


READING = Reading(
    probe="soft_erasure",
    order=63,
    mark="soft_comprehensiveness_",
    title="Soft erasure: does the prediction rest on words as much as their scores say?",
    about=(
        "The numbers of each word's vector are erased at random. The higher the word's score, the "
        "more of them go (comprehensiveness), or the more of them stay (sufficiency). So no "
        "threshold decides which words count, and half of the numbers go whatever the scores are. "
        "Both are in shares of what is lost without any word; high is good. Scores that are all "
        "alike have 1 for the sum of the two."
    ),
    of_importance=(
        Headline("soft_comprehensiveness_{importance}", "soft comprehensiveness: {title}"),
        Headline("soft_sufficiency_{importance}", "  soft sufficiency (high is good)"),
    ),
    tables=(
        Tabulation(
            "soft_erasure",
            "Soft comprehensiveness and sufficiency of each importance over n texts (Zhao & "
            "Aletras 2023), in shares of the fall of probability without any word; high is good. "
            "Means with 95 % bootstrap intervals.",
            partial(
                means_by_importance,
                probe="soft_erasure",
                mark="soft_comprehensiveness_",
                kinds={
                    "soft_comprehensiveness": "soft comprehensiveness",
                    "soft_sufficiency": "soft sufficiency",
                },
            ),
        ),
    ),
)
