"""How important is each position to the prediction? One measure per file (`base`), and what
compares two of them."""
