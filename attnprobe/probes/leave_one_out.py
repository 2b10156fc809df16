"""What does the prediction lose with each single token? (Jain & Wallace 2019, section 4.1)"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from attnprobe.core.metrics import SHARE, TVD, Metric
from attnprobe.core.randomness import Draws
from attnprobe.importance.leave_one_out.removal import LeaveOneOut as Removal
from attnprobe.probes.base import DESCRIPTION, Measurement, Note, Probe, Subject, positions
from attnprobe.readings.reading import Headline, HeatMap, Reading

METRICS = (
    Metric(
        "leave_one_out",
        TVD,
        "between the predictions without and with the token, the text encoded again",
        step="position",
        source="Jain & Wallace 2019, section 4.1",
    ),
    Metric("max_leave_one_out", TVD, "the largest of them"),
    Metric("decisive_tokens", SHARE, "tokens without any one of which the decision is another"),
    *DESCRIPTION,
)


@dataclass
class LeaveOneOut(Probe):
    """How far the prediction moves when a token is taken out and the text is encoded again (TVD).

    Where the attention is looked at over sentences, a whole sentence is taken out. In a text of one
    word (or sentence) nothing is left without it: undefined (NaN). The settings are those of the
    importance, `importance.leave_one_out`.
    """

    name = "leave_one_out"
    metrics = METRICS

    @property
    def uses(self) -> Sequence[str]:
        """The importance of the same name."""
        return (self.name,)

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield the distance without each token, the largest, and the share of decisive tokens."""
        importance = subject.importance(self.name)
        assert isinstance(importance, Removal)
        content = subject.outputs.text
        removals = subject.cached(importance.removals)
        yield Measurement("leave_one_out", removals.distance, positions(content))

        # one NaN makes the text's number NaN, as it should: the number stands for the whole text
        largest = torch.where(content, removals.distance, 0).amax(-1)
        yield Measurement("max_leave_one_out", largest)

        flips = torch.where(content, removals.flips, 0).sum(-1)
        yield Measurement("decisive_tokens", flips / content.sum(-1))
        yield from importance.notes(subject)


def checked(notes: Sequence[Mapping[str, Any]]) -> str:
    """How exact the numbers of several runs are, in words.

    >>> run = {"removals_checked": 64, "largest_error": 3e-7}
    >>> checked([run, {"removals_checked": 64, "largest_error": 1e-9}])
    'Leave-one-out was checked: 128 texts without a word were read again in full. The largest
    difference in TVD was 3e-7.'
    """
    total = Counter[str]()
    largest = Counter[str]()
    for note in notes:
        for name, value in note.items():
            total[name] += int(value)
            largest[name] = max(largest[name], value)
    error = _short(float(largest["largest_error"]))
    error_before = _short(float(largest["largest_error_before"]))

    sentences = []
    if total["removals_checked"]:
        sentences.append(
            f"Leave-one-out was checked: {total['removals_checked']:,} texts without a word were "
            f"read again in full. The largest difference in TVD was {error}."
        )
    if total["texts_remeasured"]:
        sentences.append(
            f"{total['texts_remeasured']:,} texts were measured again without approximation, for "
            f"the numbers of some were off by up to {error_before} at first."
        )
    if total["texts_reencoded"]:
        sentences.append(
            f"{total['texts_reencoded']:,} texts were encoded in full for every removal."
        )
    return " ".join(sentences)


def _short(number: float) -> str:
    """One digit and its power of ten, such as 3e-7."""
    return f"{number:.0e}".replace("e-0", "e-").replace("e+00", "")


READING = Reading(
    probe="leave_one_out",
    order=40,
    noted=checked,
    title="Leave-one-out: what the prediction loses with each token",
    about=(
        "How far the prediction moves when one word is taken out and the rest is read again: TVD, "
        "0 (not at all) to 1. It is the other measure that attention is compared with. It is no "
        "ground truth either: a word that is said twice can be left out once at no cost, and a "
        "text with a gap is not one that the model was trained on."
    ),
    maps=(
        HeatMap(
            "leave_one_out",
            "Leave-one-out",
            "how far the prediction moves without this position; shaded relative to the largest",
            relative=True,
        ),
    ),
    headlines=(
        Headline("max_leave_one_out", "largest TVD without one token", by_class=True),
        Headline("decisive_tokens", "share of tokens that decide alone"),
    ),
)
