"""What docs/results/labels.md says of verdicts, from the shipped rows and by nobody's hand."""

from pathlib import Path

import pandas as pd
import pyarrow as pa

from attnprobe.evidence.deciding_words import SHARE_CLAIM
from attnprobe.findings.track_record import CHIP, LABEL, LABEL_CALIBRATION, answers_of, answers_to
from attnprobe.results.files import write_text
from research.markdown import markdown, with_part
from research.words.rows import rows_of, ship, table_of
from research.words.tables import rates_table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "results" / "labels.md"
ASKED = {
    "the chip": CHIP,
    "all labels together": SHARE_CLAIM.name,
    "each label": LABEL,
}
"""What is asked → the claim under which the answers stand."""
DRAWS = {"rules": "draws", "yes, over rules": "yes, over draws"}
"""A draw of texts counts as a rule."""


def parts_of(table: pa.Table) -> dict[str, str]:
    """The name of each part of the page → its Markdown."""
    answers = answers_of(table)
    tables = {"models": counts(table)}
    for asked, claim in ASKED.items():
        of_claim = answers_to(claim, answers)
        tables[asked] = rates_table(of_claim, ["encoder"]).rename(columns=DRAWS)
    by_kind = answers_to(SHARE_CLAIM.name, answers)
    tables["by kind of rule"] = rates_table(by_kind, ["kind", "encoder"]).rename(columns=DRAWS)
    tables["by attention"] = by_attention(by_kind)
    return {name: markdown(rows) for name, rows in tables.items()}


def counts(table: pa.Table) -> pd.DataFrame:
    """How many models of each truth there are."""
    columns = table.select(["kind", "encoder", "attention", "truth"]).to_pandas()
    numbers = columns.groupby(["encoder", "attention", "truth"]).size().unstack(fill_value=0)
    return numbers.reset_index()


def by_attention(answers: pd.DataFrame) -> pd.DataFrame:
    """What was said of each attention, whatever is known of it."""
    columns = ["attention", "truth", "answer"]
    numbers = answers.groupby(columns, observed=True).size().unstack(fill_value=0)
    return numbers.reset_index()


def with_record(text: str, table: pa.Table) -> str:
    """The page with its parts written anew."""
    for name, content in parts_of(table).items():
        text = with_part(text, f"record: {name}", content)
    return text


def ship_record(folder: Path) -> None:
    """Write the shipped table from the rows of a folder, and the parts of the page from it."""
    table = table_of(rows_of([folder]))
    ship(table, LABEL_CALIBRATION)
    write_text(with_record(PAGE.read_text(encoding="utf-8"), table), PAGE)
