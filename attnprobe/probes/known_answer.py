"""Is the reason that the data give the model's own, and is the attention on it? For data whose
reason is known: planted shortcuts (Bastings et al. 2022, section 3), the testbed, and any other
with a rationale."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from attnprobe.core.batch import Axis, Batch
from attnprobe.core.errors import UserError
from attnprobe.core.metrics import SHARE, TAU, TRUTH, Metric, Scale
from attnprobe.core.randomness import Draws
from attnprobe.data.vocabulary import PADDING
from attnprobe.evidence.reading import Headline, Reading
from attnprobe.exact.erasure import decision_margin
from attnprobe.importance.plausibility import (
    average_precision,
    covered,
    mass_inside,
    precision_at_size,
)
from attnprobe.importance.word_removal import without_pieces
from attnprobe.measures import kendall_tau, normalised, total_variation
from attnprobe.probes.base import LINEAR, Measurement, Probe, Subject

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
        "auprc_on_rationale", ABOVE_CHANCE, "average precision − `chance`", higher_is_better=True
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
    """For data with a rationale (NaN for an example without one): does the model decide by it, and
    is the attention on it?

    At the state level, for a linear decoder, the contribution of the state at t is α_t (m_t − mean
    m), m the margin of the decision's position logits over the runner-up's. Rightness about states
    is (own − null) / (best − null) of `state_change_*`.

    Changed texts are encoded again in full; `correct_contradicted` is left out for a model that
    reads pieces, as the changed words are not cut into any. There are no such rows where the model
    refuses texts that are not the data set's own."""

    name = "known_answer"
    metrics = METRICS
    one_decision = of_words = True

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement]:
        content = subject.outputs.content
        rationale = subject.batch.rationale
        batch = subject.batch
        if rationale is None:
            return
        rationale = rationale & content
        given = rationale.any(-1)

        def of_given(metric: str, value: Tensor) -> Measurement:
            return Measurement(metric, torch.where(given, value.double(), torch.nan))

        yield of_given("correct", subject.outputs.logits.argmax(-1) == batch.labels)
        batch = replace(batch, rationale=rationale)
        model = subject.classifier
        texts = {
            "correct_without": (kept(batch, ~rationale), batch.labels),
            "correct_alone": (kept(batch, rationale), batch.labels),
        }
        if batch.counterfactual is not None and batch.pieces is None:
            # for which texts it is known what they are with their reason changed, and these
            known = (batch.counterfactual != PADDING).any(-1, keepdim=True)
            ids = torch.where(batch.content & known, batch.counterfactual, batch.ids)
            changed = replace(batch, ids=ids, content=batch.content.clone())
            texts["correct_contradicted"] = changed, (batch.labels + 1) % model.classes
        decided: dict[str, Tensor] = {}
        with (
            suppress(UserError),
            torch.no_grad(),
        ):  # the model may refuse texts that are not the data set's own
            for metric, (text, labels) in texts.items():
                # a text of which nothing is left has no attention: its start marker stands in, and
                # the answer is dropped
                empty = ~text.content.any(-1)
                text.content[empty, 0] = True
                right = (model(text).logits.argmax(-1) == labels).double()
                decided[metric] = right.masked_fill(empty, torch.nan)
        if "correct_contradicted" in decided:
            decided["correct_contradicted"] = decided["correct_contradicted"].masked_fill(
                ~known[:, 0], torch.nan
            )
        for metric, value in decided.items() if len(decided) == len(texts) else ():
            yield of_given(metric, value)

        attention = subject.readout.attention
        chance = covered(rationale, content)
        yield of_given("chance", chance)
        yield of_given("mass_on_rationale", mass_inside(attention, rationale, content) - chance)
        yield of_given(
            "precision_on_rationale", precision_at_size(attention, rationale, content) - chance
        )
        yield of_given(
            "auprc_on_rationale", average_precision(attention, rationale, content) - chance
        )
        if subject.readout.position_logits is not None:
            # what each state says for the decision beyond what any state of this text does: without
            # the mean the decoder's bias would count as a word's contribution in proportion to its
            # attention
            margin = decision_margin(subject.readout)
            mean = torch.where(content, margin, 0).sum(-1, keepdim=True) / content.sum(
                -1, keepdim=True
            )
            size = torch.where(content, attention * (margin - mean), 0).abs()
            apart = total_variation(attention, normalised(size, content), content)
            yield of_given("state_rank_agreement", kendall_tau(attention, size, content))
            yield of_given("state_mass_agreement", 1 - apart)
            if "correct_contradicted" in decided:
                with torch.no_grad():
                    moved = model.readout(changed, model(changed)).position_logits
                assert moved is not None
                moved = moved - subject.readout.position_logits
                change = torch.where(content, moved.amax(-1) - moved.amin(-1), 0).masked_fill(
                    ~known, torch.nan
                )
                yield of_given("state_change_own", (attention * change).sum(-1))
                yield of_given("state_change_null", change.sum(-1) / content.sum(-1))
                yield of_given("state_change_best", change.amax(-1))


def kept(batch: Batch, keep: Bool[Tensor, "batch tokens"]) -> Batch:
    """The texts with some of their words alone, moved together; markers stay where they belong."""
    stays = batch.mask & (keep | ~batch.content)
    order = (~stays).long().argsort(dim=-1, stable=True)
    # what was known of the whole text is not known of what is left
    alone = replace(batch, counterfactual=None, teacher_attention=None, teacher_probability=None)
    moved = alone.changed(
        lambda axis, column: column.gather(1, order) if axis is Axis.TOKENS else column
    )
    there = stays.gather(1, order)
    ids: Int[Tensor, "batch tokens"] = moved.ids.masked_fill(~there, PADDING)
    moved = without_pieces(moved, batch, batch.mask & ~stays)
    return replace(moved, ids=ids, mask=there, content=moved.content & there)


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
