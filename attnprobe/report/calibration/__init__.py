"""What the tests say of models whose answer is known: the study `+experiment=calibration`, read from its runs' tables."""
