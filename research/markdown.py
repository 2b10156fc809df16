"""Tables as docs/ has them."""

import pandas as pd


def markdown(table: pd.DataFrame) -> str:
    """The table without its index, in Markdown."""
    lines = [f"| {' | '.join(map(str, table))} |", f"|{'---|' * table.shape[1]}"]
    lines += [f"| {' | '.join(map(str, row))} |" for row in table.to_numpy().tolist()]
    return "\n".join(lines)
