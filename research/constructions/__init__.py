"""Hand-built models whose deciding words are known by construction, asked by the real verdict.

No model is trained: a construction says how a text is written, which of its words decide, what a
score of the words is, and where the attention lies. What is asked of it is the probe of a run, and
what answers are the findings of a run. `python -m research.constructions` writes
docs/results/constructions.md.
"""
