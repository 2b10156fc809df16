"""The four open questions of the literature as one study (docs/results/open_questions.md)."""

from research.questions.study import Questions, read

__all__ = ["Questions", "read"]
