"""Is the verdict on words right where the words that decide are known?

The answers are in docs/results/calibration.md. Small models are trained on rules of
`research.grammar`, with attention that is right or wrong by construction or learned (`cells`); each
is asked by the code of a user's run (`asking`), beside what is known of it (`truth`). A row per
model is kept (`rows`), shipped with the package, and told in README and docs (`docs`).
"""
