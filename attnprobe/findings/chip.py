"""May this attention be read? The rule of the chip, and its sentence."""

from collections.abc import Sequence

from attnprobe.evidence import deciding_words
from attnprobe.evidence.verdicts import Answer, Chip, Verdict
from attnprobe.findings.judgement import Judgement, judgement_on
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
    speaks against this yes (`_doubt`, `_only_leans`).

    Args:
        judgements: of one model, as `attnprobe.findings.rules.judge` gives them.
        guessing: why the model is no better than guessing; empty where it is better.
        mechanism: what the attention is known to be (`attnprobe.findings.mechanisms.mechanism_of`),
            or empty.

    Returns:
        The chip, and at most 20 words.

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
        return _chip_of_yes(judgements, lines, attention, mechanism)
    if word.answer is Answer.NO and lines[STATES.place].answer is Answer.YES:
        sentence = deciding_words.NO_BUT_STATES.format(attention=attention)
    elif word.answer is Answer.NO:
        sentence = deciding_words.NO.format(attention=attention)
    else:
        sentence = _not_shown(word, deciding_words.WHETHER.format(attention=attention))
    return word.verdict.chip, f"{_capitalised(sentence)}."


def _not_shown(word: Judgement, question: str) -> str:
    """Why the question about the words that decide is not answered."""
    if word.answer is Answer.UNTESTED:
        return f"{question} was not tested"
    if word.verdict is Verdict.NOT_INFORMATIVE or word.is_readable:
        return f"these texts cannot say {question}"
    return f"too few texts ({word.n:,}) to say {question}"


def _chip_of_yes(
    judgements: Sequence[Judgement],
    lines: dict[Place, Judgement],
    attention: str,
    mechanism: str,
) -> tuple[Chip, str]:
    """Chip and sentence where the weight is on the words that decide."""
    leans = _only_leans(judgements)
    doubt = _doubt(judgements, lines)
    wording = deciding_words.YES_LEANS if leans else deciding_words.YES_MOSTLY
    sentence = _capitalised(wording.format(attention=attention))
    if not doubt and not leans:
        return Chip.READ, f"{sentence}, also with another seed."

    if not doubt or mechanism:
        return Chip.CARE, f"{sentence}."
    separator = "," if doubt.startswith("but") else ";"
    return Chip.CARE, f"{sentence}{separator} {doubt}."


def _only_leans(judgements: Sequence[Judgement]) -> bool:
    """Whether little of the weight, or few of the texts, stand behind a yes."""
    return any(
        judgement_on(guard.claim, judgements).value < guard.least
        for guard in deciding_words.GUARDS
        if not guard.doubt
    )


def _doubt(judgements: Sequence[Judgement], lines: dict[Place, Judgement]) -> str:
    """What speaks against a yes, the gravest doubt first; empty where nothing does."""
    for guard in deciding_words.GUARDS:
        if guard.doubt and judgement_on(guard.claim, judgements).value < guard.least:
            return guard.doubt

    seeds = lines[STABILITY.place].answer
    if seeds is Answer.NO:
        return "but another seed attends elsewhere"
    for place, line in lines.items():
        if line.answer is Answer.NO and line.criterion not in NEUTRAL:
            question = LINES[place].yes if place in LINES else line.criterion
            return f"but “{question}”: no"
    if not lines[WORDS.place].ticked:
        return "but this test is unproven on such models"
    if seeds is Answer.UNTESTED:
        return "another seed is untested"
    if seeds is Answer.OPEN:
        return "another seed is open"
    return ""


def _capitalised(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]
