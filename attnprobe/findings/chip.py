"""May this attention be read? The rule of the chip, and its sentence."""

from collections.abc import Sequence
from dataclasses import dataclass

from attnprobe.evidence import deciding_words
from attnprobe.evidence.verdicts import Answer, Chip, Verdict
from attnprobe.findings.judgement import Judgement, find_judgement, judgement_on
from attnprobe.findings.lines import LINES, NECESSITY, NEUTRAL, STABILITY, STATES, WORDS, Place

GUESSING = "This model is not shown to beat guessing, so its attention explains nothing."
NEEDLESS = "Equal weights classify as well here, so nothing shows that these weights mean anything."


def chip_of(
    judgements: Sequence[Judgement], *, guessing: str = "", mechanism: str = ""
) -> tuple[Chip, str]:
    """Chip and sentence of one model, for a reader who has read none of the papers.

    The chip of a classifier that may be guessing is *Do not read*, and where equal weights do as
    well it is *Not shown*. Any other chip goes by the words that decide: *No* where the answer is
    no, *Not shown* where it is open, *With care* where it is yes, and *Read it* where nothing
    speaks against this yes (`doubt_of`).

    Args:
        judgements: of one model, as `attnprobe.findings.rules.judge` gives them.
        guessing: why the model is no better than guessing; empty where it is better.
        mechanism: what the attention is known to be (`attnprobe.findings.mechanisms.mechanism_of`),
            or empty.

    Returns:
        The chip, and at most 24 words.

    Raises:
        UserError: the words decide, and a claim that guards this yes was not put to the test.
    """
    lines = {judgement.place: judgement for judgement in judgements if judgement.primary}
    if guessing or any(line.verdict is Verdict.NOT_MEANINGFUL for line in lines.values()):
        return Chip.POOR, GUESSING
    if lines[NECESSITY.place].answer is Answer.NO:
        return Chip.UNSHOWN, NEEDLESS

    word = lines[WORDS.place]
    attention = f"this attention ({mechanism})" if mechanism else "this attention"
    if word.answer is Answer.YES:
        return _chip_of_yes(judgements, lines, mechanism)
    if word.answer is Answer.NO and word.value <= deciding_words.CHANCE:
        sentence = deciding_words.NO_MORE_THAN_CHANCE.format(attention=attention)
    elif word.answer is Answer.NO:
        sentence = _share_sentence(judgements, word, mechanism)
    else:
        sentence = _not_shown(judgements, word, attention, mechanism)
    return word.verdict.chip, f"{_capitalised(sentence)}."


def _share_sentence(
    judgements: Sequence[Judgement], word: Judgement, mechanism: str, *, with_class: bool = True
) -> str:
    """How much of the weight is on the words that decide; and in a class where it is much less."""
    share = deciding_words.SHARE.format(share=_percent(word.value))
    sentence = f"of this attention ({mechanism}), {share}" if mechanism else share
    lowest = find_judgement(deciding_words.LOWEST_CLASS_CLAIM, judgements)
    if not with_class or mechanism or lowest is None:
        return sentence
    if not lowest.value < word.value - deciding_words.MUCH_LESS:
        return sentence
    class_share = deciding_words.IN_PART.format(part=lowest.part, share=_percent(lowest.value))
    return f"{sentence}; {class_share}"


def _percent(share: float) -> str:
    """A share as a reader says it; one below that of chance is 0."""
    return f"{100 * max(share, 0):.0f} %"


def _not_shown(
    judgements: Sequence[Judgement], word: Judgement, attention: str, mechanism: str
) -> str:
    """Why the question about the words that decide is not answered."""
    question = deciding_words.WHETHER.format(attention=attention)
    if word.answer is Answer.UNTESTED:
        return f"{question} was not tested"
    if word.verdict is Verdict.NOT_INFORMATIVE:
        return f"these texts cannot say {question}"
    if word.low > word.asked:  # a class has less
        return _share_sentence(judgements, word, mechanism)
    if word.is_readable:
        share = f"{_percent(word.low).removesuffix(' %')} to {_percent(word.high)}"
        return deciding_words.SHARE.format(share=share)
    return f"too few texts ({word.n:,}) to say {question}"


def _chip_of_yes(
    judgements: Sequence[Judgement], lines: dict[Place, Judgement], mechanism: str
) -> tuple[Chip, str]:
    """Chip and sentence where the weight is on the words that decide."""
    word = lines[WORDS.place]
    doubt = doubt_of(judgements)
    if not doubt:
        sentence = _share_sentence(judgements, word, mechanism)
        return Chip.READ, f"{_capitalised(sentence)}, also in another training."

    if mechanism:
        return Chip.CARE, f"{_capitalised(_share_sentence(judgements, word, mechanism))}."
    sentence = _share_sentence(judgements, word, mechanism, with_class=not doubt.is_grave)
    doubtful = f", but {doubt.clause}" if doubt.is_grave else f"; {doubt.clause}"
    return Chip.CARE, f"{_capitalised(sentence)}{doubtful}."


@dataclass(frozen=True)
class Doubt:
    """What speaks against a yes.

    Attributes:
        clause: says it.
        is_grave: whether something was found; else something was not looked at, or not settled.
    """

    clause: str
    is_grave: bool


def doubt_of(judgements: Sequence[Judgement]) -> Doubt | None:
    """The gravest doubt about a yes; None where nothing speaks against it."""
    lines = {judgement.place: judgement for judgement in judgements if judgement.primary}
    for guard in deciding_words.GUARDS:
        detail = judgement_on(guard.claim, judgements)
        if detail.value < guard.least:
            return Doubt(guard.doubt.format(part=detail.part), is_grave=True)

    seeds = lines[STABILITY.place].answer
    if seeds is Answer.NO:
        return Doubt("another training attends elsewhere", is_grave=True)
    for place, line in lines.items():
        is_about_words = place != STATES.place and line.criterion not in NEUTRAL
        if line.answer is Answer.NO and is_about_words:
            question = LINES[place].yes if place in LINES else line.criterion
            return Doubt(f"“{question}”: no", is_grave=True)
    if not lines[WORDS.place].ticked:
        return Doubt("this test is unproven on such models", is_grave=True)
    if seeds is Answer.UNTESTED:
        return Doubt("only one training was checked", is_grave=False)
    if seeds is Answer.OPEN:
        return Doubt("whether other trainings agree is open", is_grave=False)
    return None


def _capitalised(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]
