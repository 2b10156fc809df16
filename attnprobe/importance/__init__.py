"""How important is each position to the prediction?

One family of measures per file (`base`), and what compares two of them.
"""
