"""How each probe is read: its numbers, figures, tables and claims, as the probe declares them."""
