"""Does the prediction rest on words as much as an importance says, when every word loses part of
itself? (Zhao & Aletras 2023)"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Bool, Float
from scipy.stats import rankdata
from torch import Tensor

from attnprobe.core.batch import probabilities
from attnprobe.core.metrics import PROBABILITY, PROBABILITY_DIFFERENCE, Metric, Scale
from attnprobe.core.randomness import Draws
from attnprobe.core.settings import Count
from attnprobe.evidence.reading import Headline, Reading, Tabulation, means_by_importance
from attnprobe.probes.base import DESCRIPTION, Measurement, Note, RankingProbe, Subject

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
    """Each number of a word's vector stays (sufficiency) or goes (comprehensiveness) with the
    word's place in the order of the text's scores, 0 to 1, as its probability.

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
    of_words = one_decision = True
    published = ("attention", "random", "gradient_input", "integrated_gradients", "leave_one_out")
    samples: Count = 20

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        model = subject.classifier
        batch = subject.batch
        whole = subject.readout.prediction()
        decision = whole.argmax(-1, keepdim=True)
        probability = whole.gather(-1, decision)[:, 0].double()
        word = model.word_of(batch)
        scores = self.scores(subject)
        with torch.no_grad():
            inputs = model.inputs(batch)

        def predicted(kept: Tensor) -> Float[Tensor, "batch"]:
            with torch.no_grad():
                logits = model.outputs_from(batch, inputs * kept.to(inputs.dtype)).logits
            return probabilities(logits, model.task).gather(-1, decision)[:, 0].double()

        nothing = probability - predicted((word < 0).unsqueeze(-1))
        shares = {name: places_in_order(one, batch.content) for name, one in scores.items()}
        falls = {
            name: torch.zeros(2, len(probability), dtype=torch.float64, device=word.device)
            for name in scores
        }
        generators = [draws.generator(number) for number in batch.example_id.tolist()]
        for _ in range(self.samples):
            # U(0, 1) numbers for each number of each word, 1 elsewhere; a text's are its own,
            # whatever its padding
            drawn = torch.ones(*word.shape, inputs.shape[-1], dtype=torch.float64)
            for row, generator in enumerate(generators):
                of_words = (word[row] >= 0).cpu()
                size = int(of_words.sum()), inputs.shape[-1]
                drawn[row, of_words] = torch.rand(*size, generator=generator, dtype=torch.float64)
            drawn = drawn.to(word.device)
            for name, share in shares.items():
                rate = share.nan_to_num(nan=0).gather(1, word.clamp(min=0)).unsqueeze(-1)
                for kind, stays in enumerate((1 - rate, rate)):
                    kept = (drawn < stays) | (word < 0).unsqueeze(-1)
                    falls[name][kind] += (probability - predicted(kept)).clamp(min=0) / self.samples
        yield Measurement("probability", probability)
        yield Measurement("drop_of_nothing", nothing)
        for name, (gone, left) in falls.items():
            scale = nothing.where((nothing > 0) & ~shares[name].isnan().any(-1), torch.nan)
            # where hardly anything is lost without any word, a share of that would be of any size
            yield Measurement(f"soft_comprehensiveness_{name}", (gone / scale).clamp(max=1))
            yield Measurement(f"soft_sufficiency_{name}", (1 - left / scale).clamp(min=0))
        yield from self.notes(subject)


def places_in_order(
    scores: Float[Tensor, "batch seq"], content: Bool[Tensor, "batch seq"]
) -> Float[Tensor, "batch seq"]:
    """(rank − ½) / n of each text's words, the highest score last and equal ones sharing their mean
    rank; 0 outside, NaN in a text with a score that is NaN. The mean over a text's words is ½
    whatever the scores are."""
    places = torch.zeros(scores.shape, dtype=torch.float64)
    for row, words in enumerate(content.cpu()):
        own = scores[row, words.to(scores.device)].double().cpu()
        places[row, words] = torch.from_numpy((rankdata(own) - 0.5) / max(len(own), 1))
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
