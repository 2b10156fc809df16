"""The browser over examples and the playground: what they show of each run, packed for the page."""

import base64
import gzip
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from jaxtyping import Float, Int

from attnprobe.evidence.reading import Column, HeatMap, columns_in, maps_in
from attnprobe.findings.groups import DOT, Group, Run
from attnprobe.plots.example_selection import select_examples
from attnprobe.results.directory import SITE, VOCABULARY, table_file
from attnprobe.results.files import read_json
from attnprobe.results.playground import read_playground
from attnprobe.results.table import read_rows

MEGABYTES = 60
"""What a page may weigh; `--megabytes` on the command line."""
PER_VALUE = 3.5
"""Bytes of the page that a weight takes, packed."""
PER_PIECE = 3
"""Values that a piece of a word takes: its name, the word that it belongs to, and its weight."""
PER_BLOCK = 500
"""Examples whose weights are in one block: the page unpacks a block at a time, in some
milliseconds."""
MOST_CLASSES = 6
"""With more classes only the probabilities of the predicted class and of the label are kept."""
PIECES = ("pieces", "piece_word", "piece_attention")
"""Columns of the examples' table: the pieces, the word that each belongs to (−1: none of the text),
and its weight."""
INNER = "word_attention"
"""The map over the words of a text whose positions are sentences."""
OWN_MAPS = (
    HeatMap("attention", "Attention", ""),
    HeatMap(INNER, "Attention to words", "within each sentence; sums to 1 there"),
)
"""The maps of the examples' table: the first comes before all others, the second after them."""
OWN_COLUMNS = (
    Column("max_attention", "largest weight"),
    Column("margin", "how sure the model is"),
    Column("length", "length", digits=0),
)
OF_PIECES = (
    Column("special_mass", "share of the attention on no word of the text"),
    Column("start_mass", "on the first piece that the model reads"),
    Column("first_word_mass", "on the first word of the text"),
    Column("second_mass", "on the second text of the pair"),
    Column("first_words", "words of the first text", digits=0),
)
OTHER_TEXT = {"first": "Second text", "second": "First text"}
"""What was read beside the text whose attention is shown, by `data.attend_to`; of data without
pairs it is a question."""


def packed(content: Any) -> str:
    """Content of the page as text: base64 of a gzip file of JSON. It can neither end a script
    element nor be markup."""
    raw = json.dumps(content, separators=(",", ":")).encode()
    return base64.b64encode(gzip.compress(raw, 6, mtime=0)).decode("ascii")


def rounded(values: Iterable[float], digits: int = 5) -> list[float | None]:
    """Numbers as JSON has them, with so many digits; None where undefined."""
    return [None if value != value else float(f"{value:.{digits}g}") for value in values]


@dataclass
class Browser:
    """What the page's script reads; `remark` says which examples have heat maps where not all
    do."""

    index: dict[str, Any]
    blocks: dict[str, str] = field(default_factory=dict)
    remark: str = ""

    def add_rows(self, name: str, rows: Sequence[Any]) -> list[str]:
        """Pack a list in blocks of `PER_BLOCK`; returns their names."""
        starts = range(0, len(rows), PER_BLOCK)
        self.blocks |= {
            f"{name}-{start}": packed(rows[start : start + PER_BLOCK]) for start in starts
        }
        return [f"{name}-{start}" for start in starts]


class Source(NamedTuple):
    """A heat map or a number: of a probe's table, or (`probe` None) of the examples' own; `site`:
    of which attention."""

    probe: str | None
    shown: Any
    site: str = ""

    @property
    def key(self) -> str:
        name = self.shown.metric if self.probe is None else f"{self.probe}-{self.shown.metric}"
        return name + re.sub(r"\W+", "_", f" {self.site}" if self.site else "")


@dataclass(frozen=True)
class Browsed:
    """A run on its way into the page. `texts`: their place in the index; `items` and `words`:
    positions and words per text; `unknown`: words that its model does not know; `weighs`: how many
    values its heat maps and pieces have."""

    run: Run
    title: str
    texts: int
    items: list[int]
    words: list[int]
    unknown: list[str]
    maps: list[Source]
    weighs: int


def browse(
    groups: Sequence[Group],
    *,
    words: bool = True,
    megabytes: float = MEGABYTES,
    tell: Callable[[str], None] = lambda _: None,
) -> Browser:
    """Pack the examples of all runs.

    Args:
        words: False leaves the texts out; positions, numbers and classes stay.
        megabytes: about what all blocks may weigh; where the heat maps take more, some examples of
            each run keep theirs.
    """
    browser = Browser({"runs": [], "texts": [], "words": words, "per_block": PER_BLOCK})
    known: list[str] = []
    browsed: list[Browsed] = []
    for title, run in (
        (f"{group.title}{DOT}seed {run.seed}", run) for group in groups for run in group.runs
    ):
        table = examples_of(run)
        texts = table["words" if "words" in table.column_names else "tokens"].to_pylist()
        # of a text of a hierarchical model a list, the words of each sentence
        lengths = [
            [*map(len, text)] if text and isinstance(text[0], list) else len(text) for text in texts
        ]
        content: dict[str, Any] = {"lengths": lengths}
        if words:
            asked = table["question"].to_pylist() if "question" in table.column_names else []
            question = [
                (one or "").split() if one is None or isinstance(one, str) else one for one in asked
            ]
            content |= {"words": texts} | ({"question": question} if asked else {})
        block = packed(content)
        if block not in known:  # runs that read the same texts share them
            browser.index["texts"].append(f"texts-{len(known)}")
            browser.blocks[f"texts-{len(known)}"] = block
            known.append(block)
        inner = [sum(one) if isinstance(one, list) else one for one in lengths]
        items = [len(one) if isinstance(one, list) else one for one in lengths]
        unknown: list[str] = []
        # a tokenizer cuts words into pieces that it knows
        pretrained = "_target_" in run.manifest.get("training", {}).get("model", {})
        if words and not pretrained and VOCABULARY in run.files.manifest()["files"]:
            vocabulary = read_json(run.files.file(VOCABULARY))
            every = (
                word
                for text in texts
                for part in text
                for word in ([part] if isinstance(part, str) else part)
            )
            unknown = [word for word in dict.fromkeys(every) if word not in vocabulary]
        maps = [Source(None, one) for one in OWN_MAPS[:1] if one.metric in table.column_names]
        for probe, shown in maps_in(run.numbers):
            rows = read_rows(
                [run.files.file(table_file(probe))], (), [shown.metric], columns=[SITE]
            )
            sites = {site or "" for site in rows[SITE].unique().to_pylist()}
            # single layers and heads in the order of their numbers
            ordered = sorted(
                sites, key=lambda site: [int(number) for number in re.findall(r"\d{1,9}", site)]
            )
            maps += [Source(probe, shown, site) for site in ordered]
        maps += [Source(None, one) for one in OWN_MAPS[1:] if one.metric in table.column_names]
        weighs = sum(sum(inner if source.key == INNER else items) for source in maps)
        if words and "pieces" in table.column_names:
            weighs += PER_PIECE * sum(map(len, table["pieces"].to_pylist()))
        browsed.append(Browsed(run, title, known.index(block), items, inner, unknown, maps, weighs))
    left = megabytes * 1e6 - sum(map(len, browser.blocks.values()))
    share = min(1.0, max(0.0, left / max(1.0, PER_VALUE * sum(one.weighs for one in browsed))))
    for one in browsed:
        tell(f"examples of {one.title}")
        browser.index["runs"].append(add_run(browser, one, share))
    if share < 1:
        browser.remark = (
            f"Heat maps are kept for {share:.0%} of each run's examples, so that the page stays below {megabytes:g} MB: "
            f"half of these are spread evenly over the split, the others have the largest and smallest values of the "
            f"measures that the list can be sorted by. The numbers are of all examples; `--megabytes` keeps more."
        )
    return browser


def examples_of(run: Run) -> pa.Table:
    """The examples of a run's split, whose ids ascend, without their texts as they were."""
    names = [name for name in run.files.example_columns(run.split).names if name != "text"]
    return run.files.examples(run.split, names)


def values_of(one: Browsed, source: Source, table: pa.Table) -> Float[np.ndarray, " examples"]:
    """A number of every example, NaN where it is undefined."""
    if source.probe is not None:
        rows = one.run.numbers.rows(source.probe, (source.shown.metric,))
        values = (
            rows.set_index("example_id")["value"].reindex(table["example_id"].to_numpy()).to_numpy()
        )
        return 1 - values if source.shown.one_minus else values
    match source.shown.metric:
        case "length":
            return np.array(one.items, float)
        case "margin":
            ordered = np.sort(np.array(table["probability"].to_pylist(), float), axis=-1)
            return ordered[:, -1] - ordered[:, -2] if len(ordered) else np.zeros(0)
        case "max_attention":
            return np.array(
                [max(weights, default=np.nan) for weights in table["attention"].to_pylist()]
            )
        case name:
            return table[name].to_numpy()


def add_run(browser: Browser, one: Browsed, share: float) -> dict[str, Any]:
    """Pack one run's numbers and weights; returns what the index says of it."""
    table = examples_of(one.run)
    run = one.run
    ids = table["example_id"].to_numpy()
    # with several labels at once no class is ahead of another
    absent = {"margin"} if pa.types.is_list(table["label"].type) else set()
    absent |= {column.metric for column in OF_PIECES}.difference(table.column_names)
    shown = [Source(probe, column) for probe, column in columns_in(run.numbers)]
    shown += [
        Source(None, column) for column in (*OWN_COLUMNS, *OF_PIECES) if column.metric not in absent
    ]
    # those that the list can be sorted by first, leading ones before all
    shown.sort(key=lambda source: (not source.shown.sorts, not source.shown.leads))
    columns = {source: values_of(one, source, table) for source in shown}
    sorting = {source.key: values for source, values in columns.items() if source.shown.sorts}
    both_ends = sorting | {f"{key} down": -values for key, values in sorting.items()}
    rows = np.sort(
        list(select_examples(np.arange(len(ids)), int(share * len(ids)), scores=both_ends))
    ).astype(int)
    some = table.take(rows)
    contents = {"example_id": ids.tolist(), "kept": rows.tolist(), "unknown": one.unknown}
    contents |= decisions(table) | {
        source.key: rounded(values, 8) for source, values in columns.items()
    }
    classes = len(table["probability"][0]) if len(table) else 0
    number = len(browser.index["runs"])
    browser.blocks[f"numbers-{number}"] = packed(contents)
    # those of a page without words would be words
    pieces = (
        some.select(PIECES).to_pylist()
        if browser.index["words"] and "pieces" in table.column_names
        else None
    )
    return {
        "title": one.title,
        "data": run.data,
        "run_id": run.run_id,
        "examples": len(ids),
        "classes": [str(name) for name in run.manifest.get("classes") or range(classes)],
        "texts": one.texts,
        "numbers": f"numbers-{number}",
        "maps": list(add_maps(browser, one, some, rows)),
        "measures": [
            {"key": source.key}
            | {name: getattr(source.shown, name) for name in ("title", "digits", "sorts", "truth")}
            for source in columns
        ],
        "hierarchical": "words" in table.column_names,
        "other_text": OTHER_TEXT.get(
            run.manifest.get("training", {}).get("data", {}).get("attend_to"), "Question"
        ),
        "pieces": None if pieces is None else browser.add_rows(f"maps-{number}-pieces", pieces),
    }


def decisions(table: pa.Table) -> dict[str, Any]:
    """Labels, predictions, probabilities and candidates of every example; several labels at once as
    lists."""
    probability = table["probability"].to_pylist()
    several = pa.types.is_list(table["label"].type)
    found: dict[str, Any] = {}
    for side in ("label", "prediction"):
        found[side] = table[side].to_pylist()
        if several:
            found[side] = [[number for number, on in enumerate(row) if on] for row in found[side]]
        elif (
            probability and isinstance(probability[0], list) and len(probability[0]) > MOST_CLASSES
        ):
            pairs = zip(probability, found[side], strict=True)
            found[f"p_{side}"] = rounded(row[min(max(own, 0), len(row) - 1)] for row, own in pairs)
    if "p_label" not in found:
        found["probability"] = [rounded(row) for row in probability]
    if "candidates" in table.column_names:
        found["candidates"] = [
            row and list(map(str, row)) for row in table["candidates"].to_pylist()
        ]
    return found


def add_maps(
    browser: Browser, one: Browsed, kept_rows: pa.Table, kept: Int[np.ndarray, " kept"]
) -> Iterator[dict[str, Any]]:
    """Pack the weights of the kept examples' maps, a list for each example; what the index says of
    each map."""
    ids = kept_rows["example_id"].to_numpy()
    for (probe, metric), same in groupby(
        enumerate(one.maps), lambda pair: (pair[1].probe, pair[1].shown.metric)
    ):
        # of a probe's table, once for all its sites
        read = (
            None
            if probe is None
            else one.run.numbers.rows(probe, (), stepped=(metric,), example_ids=ids.tolist())
        )
        for place, source in same:
            lengths = np.array(one.words if source.key == INNER else one.items, int)[kept]
            if read is None:
                rows = kept_rows[metric].to_pylist()
                weights = [np.hstack(row).astype(float) if row else () for row in rows]
            else:
                rows = read[read["value"].notna() & (read[SITE] == source.site)]
                row = np.searchsorted(ids, rows["example_id"])
                step = rows["step"].to_numpy().astype(np.int64)
                ends = np.concatenate([[0], np.cumsum(lengths)])
                dense = np.zeros(ends[-1])
                dense[ends[row] + step] = rows["value"]
                there = np.isin(np.arange(len(ids)), row)  # or it is a text without any
                weights = [
                    dense[a:b] if known else ()
                    for a, b, known in zip(ends, ends[1:], there, strict=False)
                ]
            name = f"maps-{len(browser.index['runs'])}-{place}"
            yield {
                "key": source.key,
                "title": f"{source.shown.title}: {source.site}"
                if source.site
                else source.shown.title,
                "site": source.site,
                "about": source.shown.about,
                "relative": source.shown.relative,
                "inner": source.key == INNER,
                "blocks": browser.add_rows(name, [rounded(own) for own in weights]),
            }


def playgrounds(
    groups: Sequence[Group], browser: Browser, *, words: bool = True
) -> list[dict[str, Any]]:
    """Pack the playground's texts, of each group's first run that has any, in full precision; what
    the index says of them."""
    entries: list[dict[str, Any]] = []
    for group in groups:
        for run in group.runs:
            rows = read_playground(run.files)
            if not rows:
                continue
            columns = ["example_id", "label", *(["tokens"] if words else [])]
            examples = run.files.examples(
                run.split, columns, [row["example_id"] for row in rows]
            ).to_pylist()
            known = {example["example_id"]: example for example in examples}
            texts = []
            for row in rows:
                own = known[row["example_id"]]
                shown = (
                    own["tokens"]
                    if words
                    else [str(place + 1) for place in range(len(row["attention"]))]
                )
                texts.append(row | {"label": own["label"], "words": shown})
            seed = f"seed {run.seed}" if len(group.runs) > 1 else ""
            classes = range(len(rows[0]["position_logits"]) // len(rows[0]["attention"]))
            browser.blocks[f"play-{len(entries)}"] = packed(texts)
            entry = {
                "title": DOT.join(filter(None, [group.title, seed])),
                "epsilon": rows[0]["epsilon"],
            }
            named = [str(one) for one in run.manifest.get("classes") or classes]
            entries.append(entry | {"classes": named, "block": f"play-{len(entries)}"})
            break
    return entries
