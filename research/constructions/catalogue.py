"""The constructions, each in a line of the page.

`design` is the page on which the measure was tried, `review` the one that found what was wrong with
the measure before.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from research.constructions.models import (
    CUE,
    Attend,
    Construction,
    Score,
    Text,
    around_cues,
    beside_cues,
    linear,
    on_cues,
    on_most_common,
    on_places,
    on_rest,
    sometimes,
    text_with,
    two_classes,
)

NO = CUE
"""Cue of the first class."""
YES = CUE + 1
"""Cue of the second class."""
WEAK_NO = CUE + 2
WEAK_YES = CUE + 3
AGAINST_NO = CUE + 4
AGAINST_YES = CUE + 5
FIRST_MARK = CUE + 6
SECOND_MARK = CUE + 7
LEXICON = range(CUE + 8, CUE + 28)

Ids = Int[Tensor, "texts tokens"]
Logits = Float[Tensor, "texts classes"]


def cue_of(label: int) -> int:
    """The cue of a label."""
    return (NO, YES)[label]


# Texts


def one_cue(
    draw: np.random.Generator, label: int, *, length: int, places: range | None = None
) -> Text:
    """One cue of the label, at one of these places (any)."""
    place = int(draw.choice(places or range(length)))
    return text_with(draw, length, {place: cue_of(label)}, [place])


def marked_or_not(draw: np.random.Generator, label: int, *, length: int, places: range) -> Text:
    """A cue where the label is 1; a text of label 0 is known by having none."""
    if not label:
        return text_with(draw, length, {}, [])
    place = int(draw.choice(places))
    return text_with(draw, length, {place: YES}, [place])


def lexicon(draw: np.random.Generator, label: int, *, length: int, places: range) -> Text:
    """One of twenty cues, half of them of each label."""
    place = int(draw.choice(places))
    word = int(draw.choice(LEXICON[10 * label : 10 * label + 10]))
    return text_with(draw, length, {place: word}, [place])


def same_cues(draw: np.random.Generator, label: int, *, length: int, count: int) -> Text:
    """Several cues of the label, each of which is enough."""
    places = draw.choice(length, count, replace=False).tolist()
    return text_with(draw, length, dict.fromkeys(places, cue_of(label)), places)


def concession(draw: np.random.Generator, label: int, *, length: int, count: int) -> Text:
    """Several cues of the label, and one cue against it that they outweigh; it comes last."""
    *places, against = draw.choice(length, count + 1, replace=False).tolist()
    words = dict.fromkeys(places, cue_of(label))
    words[against] = (AGAINST_NO, AGAINST_YES)[label]
    return text_with(draw, length, words, [*places, against])


def cues_in_order(
    draw: np.random.Generator, label: int, *, length: int, count: int, decides: int
) -> Text:
    """Cues of random labels in random places, of which one decides: −1 the last, 0 the first."""
    places = sorted(draw.choice(length, count, replace=False).tolist())
    words = {place: cue_of(int(draw.integers(2))) for place in places}
    words[places[decides]] = cue_of(label)
    return text_with(draw, length, words, [places[decides]])


def overridden(draw: np.random.Generator, label: int, *, length: int, opposed: float) -> Text:
    """A strong cue decides wherever it is; a weak one says otherwise in some of the texts."""
    strong, weak = draw.choice(length, 2, replace=False).tolist()
    says = 1 - label if draw.random() < opposed else label
    words = {strong: cue_of(label), weak: (WEAK_NO, WEAK_YES)[says]}
    return text_with(draw, length, words, [strong])


def third_class(draw: np.random.Generator, label: int, *, length: int) -> Text:
    """Of three classes, one word rules out the third, and one decides between the first two."""
    places = draw.choice(length, 2, replace=False).tolist()
    words = dict(zip(places, (FIRST_MARK, cue_of(label)), strict=True))
    return text_with(draw, length, words, places)


def odd_or_even(draw: np.random.Generator, label: int, *, length: int) -> Text:
    """One to three markers: label 1 where their number is odd."""
    count = int(draw.choice((1, 3))) if label else 2
    places = draw.choice(length, count, replace=False).tolist()
    return text_with(draw, length, dict.fromkeys(places, YES), places)


def majority(draw: np.random.Generator, label: int, *, length: int, votes: int) -> Text:
    """Votes of both labels; the label has the most."""
    places = draw.choice(length, votes, replace=False).tolist()
    more = int(draw.integers(votes // 2 + 1, votes // 2 + 4))
    words = {}
    for number, place in enumerate(places):
        words[place] = cue_of(label if number < more else 1 - label)
    return text_with(draw, length, words, places)


def exclusive_or_of_values(draw: np.random.Generator, label: int, *, length: int) -> Text:
    """Two words, each of two values: label 1 where the values differ."""
    places = draw.choice(length, 2, replace=False).tolist()
    value = int(draw.integers(2))
    words = {
        places[0]: (NO, YES)[value],
        places[1]: (WEAK_NO, WEAK_YES)[value ^ label],
    }
    return text_with(draw, length, words, places)


def exclusive_or_of_presence(draw: np.random.Generator, label: int, *, length: int) -> Text:
    """Label 1 where one of two markers is present, 0 where both are."""
    places = draw.choice(length, 2, replace=False).tolist()
    marks: tuple[int, ...] = (FIRST_MARK, SECOND_MARK)
    if label:
        places = places[:1]
        marks = marks[:1] if draw.random() < 0.5 else marks[1:]
    return text_with(draw, length, dict(zip(places, marks, strict=True)), places)


def by_length(draw: np.random.Generator, label: int, *, short: int, long: int) -> Text:
    """No word decides, but the number of words."""
    return text_with(draw, long if label else short, {}, [])


# Scores


def cue_score(strength: float = 6.0) -> Score:
    """The cues of two labels, each as strong."""
    return linear({NO: -strength, YES: strength})


def lexicon_score(ids: Ids) -> Logits:
    """Ten cues for each label."""
    against = (ids >= LEXICON[0]) & (ids < LEXICON[10])
    for_it = (ids >= LEXICON[10]) & (ids <= LEXICON[-1])
    return two_classes(6.0 * (for_it.sum(-1) - against.sum(-1)).double())


def presence(ids: Ids, yes: int, no: int) -> Float[Tensor, " texts"]:
    """1 where only the first of two words is present, −1 where only the second, else 0."""
    has_yes = (ids == yes).any(-1).double()
    has_no = (ids == no).any(-1).double()
    return has_yes - has_no


def any_cue(ids: Ids) -> Logits:
    """One cue is as good as several."""
    return two_classes(6.0 * presence(ids, YES, NO))


def concession_score(each: float) -> Score:
    """A strength for each cue of the label; the cue against it has 5."""
    return linear({NO: -each, YES: each, AGAINST_NO: 5.0, AGAINST_YES: -5.0})


def ordered_score(*, last: bool) -> Score:
    """The first cue of a text decides, or the last."""

    def score(ids: Ids) -> Logits:
        order = torch.arange(1, ids.shape[1] + 1)
        is_cue = (ids == NO) | (ids == YES)
        rank = is_cue * (order if last else order.flip(0))
        decisive = ids.gather(1, rank.argmax(-1, keepdim=True)).squeeze(-1)
        return two_classes(6.0 * ((decisive == YES).double() - (decisive == NO).double()))

    return score


def overridden_score(ids: Ids) -> Logits:
    """The weak cue counts where the strong one is missing."""
    strong = presence(ids, YES, NO)
    weak = presence(ids, WEAK_YES, WEAK_NO)
    return two_classes(6.0 * torch.where(strong != 0, strong, weak))


def third_class_score(ids: Ids) -> Logits:
    """A third class, unless the marker rules it out; the cue says which of the first two."""
    cue = presence(ids, YES, NO)
    is_ruled_out = (ids == FIRST_MARK).any(-1)
    third = 6.0 - 12.0 * is_ruled_out.double()
    return torch.stack([-3.0 * cue, 3.0 * cue, third], -1)


def odd_score(ids: Ids) -> Logits:
    """Whether the number of markers is odd."""
    is_odd = (ids == YES).sum(-1) % 2
    return two_classes(12.0 * is_odd.double() - 6.0)


def value_xor_score(ids: Ids) -> Logits:
    """Whether two values differ; undecided where one of them is missing."""
    first = presence(ids, YES, NO)
    second = presence(ids, WEAK_YES, WEAK_NO)
    return two_classes(-6.0 * first * second)


def presence_xor_score(ids: Ids) -> Logits:
    """Whether just one of two markers is present."""
    first = (ids == FIRST_MARK).any(-1)
    second = (ids == SECOND_MARK).any(-1)
    return two_classes(12.0 * (first ^ second).double() - 6.0)


def length_score(ids: Ids) -> Logits:
    """Whether a text has more than ten words, both markers left aside."""
    tokens = (ids > 0).sum(-1)
    return two_classes(3.0 * (tokens - 12.5).double())


# Constructions


def token(
    name: str,
    source: str,
    attend: Attend,
    expected: str,
    paper: str = "",
    *,
    length: int = 12,
    strength: float = 6.0,
    places: range | None = None,
    texts: int = 100,
    runs: int = 1,
    minority: float = 0.5,
) -> Construction:
    """One word decides."""
    return Construction(
        name,
        source,
        partial(one_cue, length=length, places=places),
        cue_score(strength),
        attend,
        shares=(1 - minority, minority),
        texts=texts,
        runs=runs,
        expected=expected,
        paper=paper,
    )


def by_absence(
    name: str, source: str, attend: Attend, minority: float, expected: str, paper: str = ""
) -> Construction:
    """A marker among the first three words of a text of the smaller class, none in the others."""
    return Construction(
        name,
        source,
        partial(marked_or_not, length=12, places=range(3)),
        linear({YES: 12.0}, bias=-6.0),
        attend,
        shares=(1 - minority, minority),
        texts=200,
        expected=expected,
        paper=paper,
    )


def of_order(count: int, attend: Attend, expected: str, paper: str, *, last: bool) -> Construction:
    """One of several cues decides, by its place."""
    position = "last" if last else "first"
    return Construction(
        f"the {position} of {count} cues decides, {position} word attended",
        "design 4, review c",
        partial(cues_in_order, length=10, count=count, decides=-1 if last else 0),
        ordered_score(last=last),
        attend,
        expected=expected,
        paper=paper,
    )


def redundant(attend: Attend, expected: str, name: str = "", paper: str = "") -> Construction:
    """Three cues, each of which is enough."""
    return Construction(
        name,
        "design",
        partial(same_cues, length=12, count=3),
        any_cue,
        attend,
        expected=expected,
        paper=paper,
    )


BEFORE = {
    "one class by absence, 10 % marked; on the first three words but the marker": "yes .93",
    "one class by absence, 25 % marked; on the first three words but the marker": "yes .71",
    "one class by absence, 50 % marked; on the first three words but the marker": "open .40",
    "one class by absence, 50 % marked; on the first three words": "yes 1.00",
    "one class by absence, 10 % marked; on the marker, else on the first word": "not asked",
    "few donors: 10 % of one class, cue at one of four places; on the first word": (
        "yes in 58 %, no in 21 %"
    ),
    "shield: on the neighbours of the cue, never on it": "open .39",
    "one word, its probability .54": "not asked",
    "hard on the word": "no interval",
    "hard on the word, always the third": "no interval",
    "twenty cues among the first five of 30 words; on the others of the five": "yes 1.00",
    "length decides; on the commonest word": "yes of 3 of 5 (trained)",
    "concession: 3 of 2 for, one of 5 against; on those for": "not asked",
    "concession: 5 of 2 for, one of 5 against; on those for": "not asked",
    "the last of 3 cues decides, last word attended": "yes .67",
    "the last of 5 cues decides, last word attended": "yes .85",
    "the first of 3 cues decides, first word attended": "yes .63 (trained)",
    "overridden cue, opposed in 20 %; on the overridden one": "near .33",
    "parity of one to three markers; on all of them": "not asked",
    "40 texts, beside the word in 2 % of them": "open",
    "2 runs, 1 % of the texts missed": "not shown",
    "2 runs, 4 % of the texts missed": "not shown",
    "2 runs, 8 % of the texts missed": "yes",
    "3 runs, 1 % of the texts missed": "not shown",
    "3 runs, 4 % of the texts missed": "not shown",
    "3 runs, 8 % of the texts missed": "yes",
}
"""Name of a construction → what the review reports of the measure before."""
ASKED_AGAIN = Path(__file__).with_name("before.csv")
"""What the measure before (commit 41daa50) says of the same texts and models: `name`, `model` (its
encoder, or `hand-built`), `answer`, and `placement`, from −1 to 1, with its interval."""
HAND_BUILT = "hand-built"


def answers_before(model: str = HAND_BUILT) -> dict[str, str]:
    """Name of a construction → the answer of the measure before, such as `no 0.32 [0.25, 0.38]`.

    Args:
        model: the encoder of the trained models that were asked, or `HAND_BUILT`.
    """
    rows = pd.read_csv(ASKED_AGAIN)
    answers = {}
    for row in rows[rows["model"] == model].to_dict("records"):
        words = [row["answer"]]
        if not np.isnan(row["placement"]):
            words.append(f"{row['placement']:.2f}")
        if not np.isnan(row["low"]):
            words.append(f"[{row['low']:.2f}, {row['high']:.2f}]")
        answers[row["name"]] = " ".join(words)
    return answers


def catalogue() -> list[Construction]:
    """All constructions, in the order of the page."""
    constructions = [
        *absence_and_donors(),
        *one_word(),
        *several_words(),
        *interactions(),
        *edges(),
    ]
    asked_again = answers_before()
    return [
        replace(
            construction,
            before=BEFORE.get(construction.name, ""),
            asked_again=asked_again[construction.name],
        )
        for construction in constructions
    ]


def absence_and_donors() -> list[Construction]:
    """Classes that are known by what they lack, and rare ones."""
    constructions = [
        by_absence(
            f"one class by absence, {100 * share:.0f} % marked; "
            "on the first three words but the marker",
            "design 1, review b",
            beside_cues(3),
            share,
            "no",
            paper,
        )
        for share, paper in ((0.1, "no −.08"), (0.25, "no −.09"), (0.5, "no −.08"))
    ]
    constructions += [
        by_absence(
            "one class by absence, 50 % marked; on the first three words",
            "design 6",
            on_places(0, 1, 2),
            0.5,
            "no",
            "no .25",
        ),
        by_absence(
            "one class by absence, 10 % marked; on the marker, else on the first word",
            "review i",
            lambda draw, text: (on_cues() if text.cues else on_places(0))(draw, text),
            0.1,
            "yes",
        ),
    ]
    constructions += [
        token(
            f"few donors: {100 * share:.0f} % of one class, cue at one of four places; "
            "on the first word",
            "design, review a",
            on_places(0, weight=0.7),
            "no",
            paper,
            length=12,
            places=range(4),
            texts=200,
            minority=share,
        )
        for share, paper in ((0.1, "no .06"), (0.5, "no .14"))
    ]
    return constructions


def one_word() -> list[Construction]:
    """One word decides in every text."""
    constructions = [
        token(
            "shield: on the neighbours of the cue, never on it",
            "design 5",
            around_cues(),
            "no",
            "no −.05",
            length=20,
        ),
        *(
            token(
                f"one word, its probability {label}",
                "design 9, review g",
                on_cues(),
                "yes",
                "yes .94",
                strength=strength,
            )
            for label, strength in ((".998", 6.0), (".54", 0.16), ("1", 40.0))
        ),
        token("hard on the word", "design f", on_cues(weight=1.0), "yes", "yes 1.00"),
        token(
            "hard on the word, always the third",
            "design f",
            on_cues(weight=1.0),
            "yes",
            "yes 1.00",
            places=range(2, 3),
        ),
    ]
    constructions += [
        token(
            f"on the word in {tenths} of 10 texts",
            "design",
            sometimes(tenths / 10, on_cues()),
            expected,
            paper,
        )
        for tenths, expected, paper in (
            (2, "no", "no .26"),
            (4, "no", "open .42"),
            (6, "yes", "yes .55"),
        )
    ]
    constructions += [
        Construction(
            f"twenty cues among the first five of 30 words; {where}",
            "design 2, review b",
            partial(lexicon, length=30, places=range(5)),
            lexicon_score,
            attend,
            expected=expected,
            paper=paper,
        )
        for where, attend, expected, paper in (
            ("on the others of the five", beside_cues(5), "no", "no −.04"),
            ("on the cue", on_cues(), "yes", "yes .91"),
        )
    ]
    constructions += [
        token("one word of 100; on it", "design", on_cues(), "yes", "yes .95", length=100),
        token("one word of 100; on the first", "design", on_places(0), "no", "no −.05", length=100),
        Construction(
            "length decides; on the commonest word",
            "review k",
            partial(by_length, short=9, long=12),
            length_score,
            on_most_common(),
            expected="not asked",
        ),
    ]
    return constructions


def several_words() -> list[Construction]:
    """Several words of a text do something."""
    constructions = [
        Construction(
            f"concession: {count} of {each:g} for, one of 5 against; on those for",
            "design 8, review d",
            partial(concession, length=12, count=count),
            concession_score(each),
            on_cues(*range(count)),
            expected="yes",
            paper=paper,
        )
        for count, each, paper in (
            (1, 6.0, "yes .93"),
            (3, 2.0, "yes .92"),
            (5, 2.0, "yes .81"),
            (5, 1.2, ""),
        )
    ]
    constructions += [
        redundant(attend, expected, f"three cues, each enough; on {where}", paper)
        for where, attend, expected, paper in (
            ("one of them", on_cues(0), "yes", "yes .78"),
            ("the first word", on_places(0), "no", "no .03"),
        )
    ]
    constructions += [
        of_order(count, on_places(-1, weight=0.7), expected, paper, last=True)
        for count, expected, paper in (
            (2, "no", "no .18"),
            (3, "no", "no .21"),
            (5, "no", "open .45"),
        )
    ]
    constructions += [
        of_order(3, on_places(0, weight=0.7), "no", "", last=False),
        Construction(
            "overridden cue, opposed in 20 %; on the cue that decides",
            "design",
            partial(overridden, length=12, opposed=0.2),
            overridden_score,
            on_cues(0),
            expected="yes",
        ),
        Construction(
            "overridden cue, opposed in 20 %; on the overridden one",
            "design",
            partial(overridden, length=12, opposed=0.2),
            overridden_score,
            on_cues(1),
            expected="no",
            paper="yes .74, false",
        ),
        Construction(
            "three classes; on the word that rules out the third",
            "design, review h",
            partial(third_class, length=12),
            third_class_score,
            on_cues(0),
            shares=(0.5, 0.5, 0.0),
            expected="yes",
            paper="yes .69",
        ),
    ]
    return constructions


def interactions() -> list[Construction]:
    """Words that do something together."""
    votes = linear({NO: -2.0, YES: 2.0})
    constructions = [
        Construction(
            "parity of one to three markers; on all of them",
            "design 10, review i",
            partial(odd_or_even, length=12),
            odd_score,
            on_cues(),
            expected="yes",
            paper="open .35",
        )
    ]
    constructions += [
        Construction(
            f"vote of 15 of 20 words; on the {where}",
            "design",
            partial(majority, length=20, votes=15),
            votes,
            attend,
            expected=expected,
            paper=paper,
        )
        for where, attend, expected, paper in (
            ("votes", on_cues(), "yes", "open .39"),
            ("others", on_rest(), "no", "no"),
        )
    ]
    constructions += [
        Construction(
            f"exclusive or of two {inputs}; on {where}",
            "suspected in the design",
            write,
            score,
            attend,
            expected=expected,
        )
        for inputs, write, score in (
            ("values", partial(exclusive_or_of_values, length=12), value_xor_score),
            ("presences", partial(exclusive_or_of_presence, length=12), presence_xor_score),
        )
        for where, attend, expected in (
            ("both", on_cues(), "yes"),
            ("the first word", on_places(0), "no"),
        )
    ]
    return constructions


def edges() -> list[Construction]:
    """Few texts, all at the best, and several runs."""
    constructions = [
        token(
            f"{texts} texts, all hard on the word",
            "review f",
            on_cues(weight=1.0),
            expected,
            texts=texts,
        )
        for texts, expected in ((12, "yes"), (20, "yes"), (40, "yes"), (200, "yes"))
    ]
    constructions.append(
        token(
            "40 texts, beside the word in 2 % of them",
            "design, edge",
            sometimes(0.98, on_cues(weight=1.0)),
            "yes",
            texts=40,
        )
    )
    constructions += [
        token(
            f"{runs} runs, {100 * misses:.0f} % of the texts missed",
            "review e",
            sometimes(1 - misses, on_cues()),
            "yes",
            "yes",
            runs=runs,
        )
        for runs in (2, 3)
        for misses in (0.0, 0.01, 0.04, 0.08)
    ]
    return constructions
