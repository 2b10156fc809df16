"""What does the prediction lose with each single token? (Jain & Wallace 2019, section 4.1)"""

from collections.abc import Mapping, Sequence

from attnprobe.report.reading import Headline, HeatMap, Reading


def checked(notes: Sequence[Mapping[str, float]]) -> str:
    """How exact the numbers are, over several runs, in words.

    >>> checked([{"removals_checked": 64, "largest_error": 3e-7}, {"removals_checked": 64, "largest_error": 1e-9}])
    'Leave-one-out checked itself: 128 removals were encoded again in full, the largest difference in TVD was 3e-7.'
    """

    def total(name: str) -> int:
        return int(sum(one.get(name, 0) for one in notes))

    def largest(name: str) -> str:
        shown = f"{max((one[name] for one in notes if name in one), default=0):.0e}"
        return shown.replace("e-0", "e-").replace("e+00", "")

    sentences = []
    if total("removals_checked"):
        sentences.append(
            f"Leave-one-out checked itself: {total('removals_checked'):,} removals were encoded again in full, the largest "
            f"difference in TVD was {largest('largest_error')}."
        )
    if total("texts_remeasured"):
        sentences.append(
            f"{total('texts_remeasured'):,} texts were measured again without approximation, for the numbers of some were "
            f"off by up to {largest('largest_error_before')} at first."
        )
    if total("texts_reencoded"):
        sentences.append(f"{total('texts_reencoded'):,} texts were encoded in full for every removal.")
    return " ".join(sentences)


READING = Reading(
    probe="leave_one_out",
    order=40,
    noted=checked,
    title="Leave-one-out: what the prediction loses with each token",
    about=(
        "How far the prediction moves when one token is taken out of the text and the rest is encoded again, as total "
        "variation distance: 0 (not at all) to 1. It is the other measure that attention is compared with. It is no ground "
        "truth either: a word that is said twice can be left out once at no cost, and a text with a gap is not one that "
        "the model was trained on."
    ),
    maps=(
        HeatMap(
            "leave_one_out",
            "Leave-one-out",
            "TVD of the prediction without this position; shaded relative to the largest",
            relative=True,
        ),
    ),
    headlines=(
        Headline("max_leave_one_out", "largest TVD without one token", by_class=True),
        Headline("decisive_tokens", "share of tokens that decide alone"),
    ),
)
