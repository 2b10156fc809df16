"""The four open questions of the literature as one study over a grid
(docs/results/open_questions.md)."""

from research.questions.study import Questions, read

__all__ = ["Questions", "read"]
