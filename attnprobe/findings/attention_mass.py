"""Where a model's attention is, which a reader must sometimes know before looking at a heat map."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from attnprobe.core.sanitise import percent

MOSTLY = 0.5
"""Share of the attention from which a reader is told where it is."""


@dataclass(frozen=True)
class AttentionMass:
    """Shares of the attention, means over a split, 0 to 1.

    Attributes:
        special_mass: on no word of the text (special tokens, a prompt, a text that is not attended
            to).
        start_mass: on the first piece that the model reads.
        first_word_mass: on the text's first word.
        second_mass: on the words of a pair's second text; None where there is one text.
        unseen_share: of the words, those that a mask of the network hides from this attention.
    """

    special_mass: float = 0.0
    start_mass: float = 0.0
    first_word_mass: float = 0.0
    second_mass: float | None = None
    unseen_share: float = 0.0

    @classmethod
    def recorded_in(cls, manifest: Mapping[str, Any]) -> "AttentionMass":
        """What a run's manifest says; a share that it does not have is 0."""
        recorded = manifest.get("attention_on")
        if not isinstance(recorded, dict):
            return cls()
        shares = {name: recorded.get(name) for name in cls.__dataclass_fields__}
        return cls(**{name: share for name, share in shares.items() if isinstance(share, float)})

    @property
    def in_words(self) -> str:
        """Clauses for a reader; empty where a heat map shows what there is to see.

        They are about a pair of texts, about attention that is mostly on no word of the text, about
        attention to words that is mostly on the first one, and about words that it cannot be on.
        """
        on_words = 1 - self.special_mass
        clauses = []
        if self.special_mass >= MOSTLY:
            clauses.append(
                f"on average {percent(self.special_mass)} of the attention is on no word of the "
                f"text ({percent(self.start_mass)} on the first piece that the model reads): the "
                f"weights that are shown share out the rest"
            )
        if on_words > 0 and self.first_word_mass / on_words >= MOSTLY:
            clauses.append(
                f"{percent(self.first_word_mass / on_words)} of what is on words is on the first "
                f"one, which may take it whatever it is"
            )
        if on_words > 0 and self.second_mass is not None:
            clauses.append(
                f"{percent(self.second_mass / on_words)} of what is on words is on the second "
                f"text of the pair"
            )
        if self.unseen_share > 0:
            clauses.append(
                f"on average {percent(self.unseen_share)} of a text's words are outside what this "
                f"attention can see: they get no weight in any test, and a heat map shows them as "
                f"not seen"
            )
        return "; ".join(clauses)
