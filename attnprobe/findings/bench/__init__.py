"""A bench for anyone's scores: how well do they find the words that decide, at which error rates?

The texts, what random sets of their words do, and the words that decide are stored once (`folder`).
Scores come from a file or are known answers (`scores`), or from an importance (`attnprobe.runs`).
Each model's verdict on them is that of a user's run (`judging`). Format and command: docs/bench.md.
"""
