"""Is the reason that the data give the model's own, and is the attention on it?

For data whose reason is known: planted shortcuts (Bastings et al. 2022, section 3), the testbed,
and any other with a rationale.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnprobe.core.batch import Axis, Batch
from attnprobe.core.errors import UserError
from attnprobe.core.metrics import SHARE, TAU, TRUTH, Metric, Scale
from attnprobe.core.randomness import Draws
from attnprobe.core.readout import Readout
from attnprobe.data.vocabulary import PADDING
from attnprobe.exact.erasure import decision_margin
from attnprobe.importance.plausibility import (
    average_precision,
    average_precision_by_chance,
    covered,
    mass_inside,
    precision_at_size,
)
from attnprobe.measures import kendall_tau, normalised, total_variation
from attnprobe.models.base import Model
from attnprobe.probes.base import LINEAR, Measurement, Probe, Subject
from attnprobe.readings.reading import Headline, Reading

ABOVE_CHANCE = Scale("share", -1, 1)
METRICS = (
    Metric("correct", TRUTH, "the decision is the label"),
    Metric(
        "correct_contradicted",
        TRUTH,
        "of the text with its reason changed: the decision is that text's class",
    ),
    Metric(
        "correct_without",
        TRUTH,
        "of the text without the rationale's words: the decision is the label",
    ),
    Metric("correct_alone", TRUTH, "of the rationale's words alone: the decision is the label"),
    Metric("chance", SHARE, "of the content that is rationale"),
    Metric(
        "mass_on_rationale",
        ABOVE_CHANCE,
        "attention on the rationale − `chance`",
        higher_is_better=True,
    ),
    Metric(
        "precision_on_rationale",
        ABOVE_CHANCE,
        "rationale among as many top words as it has − `chance`",
        higher_is_better=True,
        source="Bastings et al. 2022, section 3",
    ),
    Metric(
        "auprc_on_rationale",
        ABOVE_CHANCE,
        "average precision − that of a random order, on average",
        higher_is_better=True,
    ),
    Metric(
        "state_rank_agreement",
        TAU,
        "of attention and the size of the states' contributions",
        higher_is_better=True,
        only=LINEAR,
    ),
    Metric(
        "state_mass_agreement",
        SHARE,
        "mass that attention and these contributions (made to sum to 1) have in common",
        higher_is_better=True,
        only=LINEAR,
    ),
    Metric(
        "state_change_own",
        Scale("logits", 0),
        "how far the attended state's logits move when the reason is changed: "
        "Σ α_t d_t, d_t the largest change less the smallest over the classes",
        higher_is_better=True,
        only=LINEAR,
    ),
    Metric(
        "state_change_null",
        Scale("logits", 0),
        "the mean of d_t, which the weights in random order have",
        only=LINEAR,
    ),
    Metric("state_change_best", Scale("logits", 0), "the largest d_t", only=LINEAR),
)


@dataclass
class KnownAnswer(Probe):
    """For data with a rationale: does the model decide by it, and is the attention on it?

    Everything is NaN for an example without a rationale. Changed texts are encoded again in full;
    there are no such rows where the model refuses texts that are not the data set's own.

    Note:
        `correct_contradicted` is left out for a model that reads pieces, as the changed words are
        not cut into any.
    """

    name = "known_answer"
    metrics = METRICS
    one_decision = True
    of_words = True

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement]:
        """Yield whether the model decides by the rationale, and how right the attention is."""
        if subject.batch.rationale is None:
            return
        rationale = subject.batch.rationale & subject.outputs.content
        batch = replace(subject.batch, rationale=rationale)
        has_rationale = rationale.any(-1)
        for metric, value in self.statistics(subject, batch):
            yield Measurement(metric, torch.where(has_rationale, value.double(), torch.nan))

    def statistics(self, subject: Subject, batch: Batch) -> Iterator[tuple[str, Tensor]]:
        """Each metric and its value per text, as if every text had a rationale.

        Args:
            subject: the texts as the model read them.
            batch: the same texts, the rationale within the content.
        """
        yield "correct", subject.outputs.logits.argmax(-1) == batch.labels
        contradiction = contradicted(batch)
        try:
            decided = decisions(subject.classifier, batch, contradiction)
        except UserError:  # the model refuses texts that are not the data set's own
            decided = {}
        yield from decided.items()

        yield from word_level(subject.readout, batch)
        if subject.readout.position_logits is not None:
            yield from state_level(subject.readout)
            if contradiction is not None and decided:
                yield from state_changes(subject, contradiction)


def word_level(readout: Readout, batch: Batch) -> Iterator[tuple[str, Float[Tensor, "batch"]]]:
    """How far the attention is on the rationale's words, each number minus what chance reaches."""
    assert batch.rationale is not None
    attention = readout.attention
    content = readout.content
    rationale = batch.rationale
    chance = covered(rationale, content)
    yield "chance", chance
    yield "mass_on_rationale", mass_inside(attention, rationale, content) - chance
    yield "precision_on_rationale", precision_at_size(attention, rationale, content) - chance
    # of few words a random order has more than their share of rationale
    by_chance = average_precision_by_chance(rationale, content)
    yield "auprc_on_rationale", average_precision(attention, rationale, content) - by_chance


def state_level(readout: Readout) -> Iterator[tuple[str, Float[Tensor, "batch"]]]:
    """How far the attention agrees with what the linear decoder takes from each state.

    The contribution of the state at t is α_t (m_t − mean m), m the margin of the decision's
    position logits over the runner-up's: what a state says for the decision beyond what any state
    of this text does. Without the mean the decoder's bias would count as a word's contribution in
    proportion to its attention.
    """
    attention = readout.attention
    content = readout.content
    margin = decision_margin(readout)
    mean = torch.where(content, margin, 0).sum(-1, keepdim=True) / content.sum(-1, keepdim=True)
    size = torch.where(content, attention * (margin - mean), 0).abs()
    distance = total_variation(attention, normalised(size, content), content)
    yield "state_rank_agreement", kendall_tau(attention, size, content)
    yield "state_mass_agreement", 1 - distance


def state_changes(
    subject: Subject, contradiction: Batch
) -> Iterator[tuple[str, Float[Tensor, "batch"]]]:
    """How far each state's logits move when the reason is changed; NaN for unchanged texts.

    d_t is the largest change of a class's logit less the smallest. Rightness about states is (own −
    null) / (best − null), with Σ α_t d_t the own, the mean of d_t the null (which the weights in
    random order have) and the largest d_t the best.
    """
    readout = subject.readout
    content = readout.content
    model = subject.classifier
    with torch.no_grad():
        changed = model.readout(contradiction, model(contradiction)).position_logits
    assert changed is not None
    assert readout.position_logits is not None
    difference = changed - readout.position_logits
    spread = torch.where(content, difference.amax(-1) - difference.amin(-1), 0)
    spread = spread.masked_fill(~is_contradicted(contradiction).unsqueeze(-1), torch.nan)
    yield "state_change_own", (readout.attention * spread).sum(-1)
    yield "state_change_null", spread.sum(-1) / content.sum(-1)
    yield "state_change_best", spread.amax(-1)


def decisions(
    model: Model, batch: Batch, contradiction: Batch | None
) -> dict[str, Float[Tensor, "batch"]]:
    """Whether each changed text is decided as it should be, NaN where there is no such text.

    Args:
        model: the trained classifier.
        batch: texts with their rationale.
        contradiction: the same with their reason changed, where they have such a version.

    Raises:
        UserError: the model refuses texts that are not the data set's own.
    """
    assert batch.rationale is not None
    without_reason = model.reread(kept(batch, ~batch.rationale))
    reason_alone = model.reread(kept(batch, batch.rationale))
    decided = {
        "correct_without": is_decided(model, without_reason, batch.labels),
        "correct_alone": is_decided(model, reason_alone, batch.labels),
    }
    if contradiction is not None:
        labels = (batch.labels + 1) % model.classes
        correct = is_decided(model, contradiction, labels)
        unchanged = ~is_contradicted(contradiction)
        decided["correct_contradicted"] = correct.masked_fill(unchanged, torch.nan)
    return decided


@torch.no_grad()
def is_decided(model: Model, texts: Batch, labels: Int[Tensor, "batch"]) -> Float[Tensor, "batch"]:
    """1 where the model decides for the label, else 0; NaN for a text of which nothing is left.

    A text without content has no attention: its start marker stands in, and the answer is dropped.
    """
    empty = ~texts.content.any(-1)
    texts.content[empty, 0] = True
    correct = model(texts).logits.argmax(-1) == labels
    return correct.double().masked_fill(empty, torch.nan)


def contradicted(batch: Batch) -> Batch | None:
    """The texts with their reason changed, unchanged where there is no such version.

    Returns:
        None where no text has one, and for a model that reads pieces.
    """
    if batch.counterfactual is None or batch.pieces is not None:
        return None
    replaced = batch.content & is_contradicted(batch).unsqueeze(-1)
    ids = torch.where(replaced, batch.counterfactual, batch.ids)
    return replace(batch, ids=ids, content=batch.content.clone())


def is_contradicted(batch: Batch) -> Bool[Tensor, "batch"]:
    """The texts of which a version with another reason is known."""
    assert batch.counterfactual is not None
    return (batch.counterfactual != PADDING).any(-1)


def kept(batch: Batch, keep: Bool[Tensor, "batch tokens"]) -> Batch:
    """The texts with some of their words alone, which move together; markers stay in place."""
    stays = batch.mask & (keep | ~batch.content)
    order = (~stays).long().argsort(dim=-1, stable=True)

    # what was known of the whole text is not known of what is left
    shortened = replace(
        batch, counterfactual=None, teacher_attention=None, teacher_probability=None
    )
    moved = shortened.changed(
        lambda axis, column: column.gather(1, order) if axis is Axis.TOKENS else column
    )
    mask = stays.gather(1, order)
    ids: Int[Tensor, "batch tokens"] = moved.ids.masked_fill(~mask, PADDING)
    moved = moved.with_pieces_of(batch, batch.mask & ~stays)
    return replace(moved, ids=ids, mask=mask, content=moved.content & mask)


READING = Reading(
    probe="known_answer",
    order=5,
    title="Known answer: does the model decide by the known reason, and is the attention on it?",
    about=(
        "For data whose reason is known (planted, the testbed, a rationale). First, is the "
        "reason the model's own? Its accuracy is shown on the texts as they are, and on three "
        "altered ones. Change the reason to that of another class: a model that uses it follows. "
        "Take the reason out: only chance is left, if it is all there is to know. Leave the "
        "reason alone: it should be enough. Then, how right is the attention? Of the words: the "
        "share of the attention on the reason, the precision of the top words and the average "
        "precision, each minus what chance would reach (0: chance). Of the states: how far the "
        "weights agree with what the linear decoder takes from each state. An LSTM that reads "
        "everything and attends to the last word can be right at the one level and wrong at the "
        "other."
    ),
    headlines=(
        Headline("correct", "accuracy"),
        Headline("correct_contradicted", "accuracy, reason changed"),
        Headline("correct_without", "accuracy without the reason"),
        Headline("correct_alone", "accuracy on the reason alone"),
        Headline("chance", "share of the text that is reason (chance)"),
        Headline("mass_on_rationale", "attention on the reason, minus chance"),
        Headline("precision_on_rationale", "precision of as many top words, minus chance"),
        Headline("auprc_on_rationale", "average precision, minus chance"),
        Headline("state_rank_agreement", "tau of attention with the states' contributions"),
        Headline("state_mass_agreement", "mass in common with the states' contributions"),
        Headline("state_change_own", "change of the attended state's logits with the reason"),
        Headline("state_change_null", "  of the mean state's"),
        Headline("state_change_best", "  of the state's that knows most"),
    ),
)
