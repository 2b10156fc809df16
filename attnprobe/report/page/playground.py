"""The page's playground: of each group of runs a few texts with attention and position logits, packed for the script."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from attnprobe.report.page.browser.packing import Blocks, Part
from attnprobe.report.page.runs import DOT, Group, Run
from attnprobe.results.checksums import damaged
from attnprobe.results.directory import PLAYGROUND, RunDirectory
from attnprobe.results.playground import read_playground


def playgrounds(groups: Sequence[Group], blocks: Blocks, *, words: bool = True) -> list[dict[str, Any]]:
    """Pack the playground's texts, of each group's first run that has any.

    Args:
        groups: the runs.
        blocks: takes in one block per run: `attention`, `logits` (position by position), `farthest` and `flipping` of all
            its texts in a row, and facts about each text.
        words: False leaves the texts out.

    Returns:
        what the page's index says of them: `title`, `classes`, `epsilon` and `block`.
    """
    entries: list[dict[str, Any]] = []
    for group in groups:
        for run in group.runs:
            rows = read_playground(RunDirectory(run.directory))
            if not rows:
                continue
            name = f"play-{len(entries)}"
            blocks.add(name, parts(rows), {"texts": texts(run, rows, words=words)})
            seed = f"seed {run.seed}" if len(group.runs) > 1 else ""
            classes = len(rows[0]["position_logits"]) // len(rows[0]["attention"])
            entries.append(
                {
                    "title": DOT.join(filter(None, [group.title, seed])),
                    "classes": [str(one) for one in run.manifest.get("classes") or range(classes)],
                    "epsilon": rows[0]["epsilon"],
                    "block": name,
                }
            )
            break
    return entries


def parts(rows: Sequence[dict[str, Any]]) -> list[Part]:
    """The arrays of one run's block, in full precision: the page's predictions are the model's to the last digits."""
    arrays = {"attention": "attention", "logits": "position_logits", "farthest": "farthest"}
    joined = [
        Part.of(name, np.concatenate([np.array(row[column], np.float64) for row in rows]))
        for name, column in arrays.items()
    ]
    flipping = np.concatenate([np.array(row["flipping"], np.uint8) for row in rows])
    return [*joined, Part.of("flipping", flipping)]


def texts(run: Run, rows: Sequence[dict[str, Any]], *, words: bool) -> list[dict[str, Any]]:
    """What the page says of each text beside its numbers."""
    ids = [row["example_id"] for row in rows]
    columns = ["example_id", "label", *(["tokens"] if words else [])]
    examples = RunDirectory(run.directory).examples(run.split, columns, ids).to_pylist()
    known = {example["example_id"]: example for example in examples}
    made = []
    for row in rows:
        own, length = known.get(row["example_id"]), len(row["attention"])
        if own is None or (words and len(own["tokens"]) != length):
            raise damaged(
                RunDirectory(run.directory) / PLAYGROUND,
                f"example {row['example_id']} is none of the {run.split} split, or has another number of words there",
            )
        tokens = own["tokens"] if words else [str(place + 1) for place in range(length)]
        made.append(
            {
                "id": row["example_id"],
                "label": own["label"],
                "words": tokens,
                "jsd": row["jsd"],
                "bound": row["upper_bound"],
                "exact": row["is_exact"],
                "flips": row["flips_to"],
            }
        )
    return made
