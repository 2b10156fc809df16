"""The page's words explained: on hover, and in the definitions at its end."""

import re
from collections.abc import Callable
from typing import NamedTuple

from markupsafe import Markup, escape

from attnprobe.evidence import deciding_words


class Term(NamedTuple):
    """A word of the page.

    Attributes:
        key: in its link.
        title: in the definitions.
        forms: in the texts.
        meaning: its first sentence is shown on hover.
    """

    key: str
    title: str
    forms: tuple[str, ...]
    meaning: str


TERMS = (
    Term(
        "attention",
        "Attention",
        (),
        "The weights that a model gives to the positions of a text; they sum to 1. Positions "
        "are words; in a hierarchical model, sentences.",
    ),
    Term(
        "tvd",
        "TVD, total variation distance",
        ("TVD", "total variation distance"),
        "Half the sum of the absolute differences of two distributions, here of two "
        "predictions: 0 (the same) to 1.",
    ),
    Term(
        "jsd",
        "JSD, Jensen–Shannon divergence",
        ("JSD", "Jensen–Shannon divergence", "Jensen-Shannon divergence"),
        "How far two distributions are apart, in nats: 0 (the same) to ln 2 = 0.693 (nothing "
        "in common). Between two attentions, or (JS of an erasure) two predictions.",
    ),
    Term(
        "tau",
        "τ, Kendall's τ-b",
        ("Kendall's τ", "τ"),
        "How far two measures rank a text's positions alike, ties counted: −1 (the other way "
        "round) to 1 (alike); 0 is what unrelated orders get. It is undefined where one of "
        "them is the same for all positions. Over many positions with tiny weights τ is ruled "
        "by the order of what hardly counts.",
    ),
    Term(
        "adversary",
        "Adversary, farthest attention",
        ("adversary", "adversaries", "farthest attention"),
        "Another attention whose prediction lies within TVD ε of the model's (ε = 0.01 unless "
        "set, 0.05 for questions). The adversary is what a gradient search finds. The "
        "farthest attention has the largest JSD. It is exact for two classes and a linear "
        "decoder, else the best one known, below a proved bound. That it exists for a text "
        "does not say that a model could have learnt it.",
    ),
    Term(
        "flipping",
        "Flipping set, regret",
        ("flipping set", "flipping sets", "regret"),
        "Places without which the decision is another one. The smallest such set is exact. A "
        "ranking's regret is how many places more it needs. “Never flips” is proved, up to "
        "rounding.",
    ),
    Term(
        "importance",
        "Gradient, leave-one-out",
        ("leave-one-out", "Leave-one-out", "gradients", "gradient"),
        "Gradient: how much each word moves the prediction, with the attention held fixed. "
        "Leave-one-out: how far the prediction moves (TVD) without the word. Gradients are "
        "shares that sum to 1. Neither is the truth: they are other measures.",
    ),
    Term(
        "skill",
        "Skill",
        ("skill", "Skill"),
        "Where a number stands between that of the same model under an attention without "
        "meaning (its own weights in random order), 0, and the best that is possible, 1. "
        "Below 0 is worse than meaningless.",
    ),
    Term(
        "state",
        "State, word",
        ("states", "state"),
        "State: how much the prediction takes from the encoder's state at a position, which "
        "may have read the whole text; word: how much the word there decides. Readers of a "
        "heat map mean words.",
    ),
    Term(
        "rationale",
        "Rationale",
        ("rationales", "rationale"),
        "The words that a person, or the maker of the data, calls the reason for the label.",
    ),
    Term(
        "f1",
        "Macro F1, area under the ROC curve",
        ("macro F1", "area under the ROC curve"),
        "F1 is the harmonic mean of precision and recall. Macro F1 is its mean over the "
        "classes. The area under the ROC curve is how often a text of a class is ranked above "
        "another. Both are 1 at best; guessing has an area of 0.5.",
    ),
    Term(
        "interval",
        "Interval",
        ("95 % intervals", "95 % interval"),
        "The range that holds the true number in 95 of 100 such studies. Means and ratios "
        "have a bootstrap over the texts (2,000 resamples). Shares have score intervals. With "
        "several seeds it is over texts and seeds. Values that are nearly all 0, or ruled by "
        "a few texts, are too rare to say.",
    ),
    Term(
        "holm",
        "p (Holm)",
        (),
        "How often chance alone would decide this claim so clearly, corrected for the number "
        "of claims on the card (Holm's method).",
    ),
)

MEANS = {
    ("necessity", "model"): (
        "the model classifies better with its own weights than with equal ones, "
        "by more than chance",
        "that the weights say why",
    ),
    ("stability", "model"): (
        "another training's attention is nearer than a shuffle of it",
        "that the attention is right",
    ),
    ("agreement", "word"): (
        "its order is leave-one-out's, more than an attention without meaning has it in this model",
        "that either is the truth",
    ),
    ("exclusivity", "state"): (
        "for most texts it is proved that no very different attention gives the same prediction",
        "that the weights are on words that decide",
    ),
    ("erasure", "state"): (
        "erasing the state with the most weight costs the decision more than under an attention "
        "without meaning",
        "that the word there matters",
    ),
    deciding_words.LINE: (deciding_words.YES_MEANS, deciding_words.YES_DOES_NOT_MEAN),
    ("leak", "model"): (
        "a model without context tells the label better with this attention imposed than with "
        "equal weights",
        "that the attention is on words that decide: wrong weights that tell the label do as well",
    ),
    ("plausibility", "word"): (
        "more attention lies on the marked words than by chance",
        "that the model used them",
    ),
}
"""Criterion and level → what a yes means, and what it does not; docs/tests.md says the same."""

BY_FORM = {form: term for term in TERMS for form in term.forms}
KNOWN = re.compile(
    rf"(?<![\w-])(?:{'|'.join(map(re.escape, sorted(BY_FORM, key=len, reverse=True)))})(?![\w-])"
)


def explained(text: str, visible: Callable[[str], str] = str) -> Markup:
    """The text as markup, the first use of each known word a link to its definition.

    It says the meaning on hover. All else is escaped.

    Args:
        text: of any origin.
        visible: shows what cannot be seen.

    >>> str(explained("a <TVD>"))[:40]
    'a &lt;<a class="term" href="#term-tvd" t'
    """
    linked: set[str] = set()
    pieces = []
    end = 0
    text = visible(text)
    for match in KNOWN.finditer(text):
        term = BY_FORM[match[0]]
        if term.key in linked:
            continue
        linked.add(term.key)
        summary = term.meaning.split(". ")[0].rstrip(".") + "."
        link = Markup('<a class="term" href="#term-{}" title="{}">{}</a>')
        pieces.append(escape(text[end : match.start()]))
        pieces.append(link.format(term.key, summary, match[0]))
        end = match.end()
    return Markup("").join([*pieces, escape(text[end:])])
