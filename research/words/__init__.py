"""Is the verdict on words right where the words that decide are known?

The answers are in docs/results/calibration.md. Small models are trained on the rules of
`research.rules`, with attention that is right or wrong by construction or learned (`cells`,
`training`); each is asked with the probe swaps (`asking`), and its verdict compared with what is
known (`judging`).
"""
