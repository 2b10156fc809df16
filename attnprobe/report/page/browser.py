"""The browser over examples and the playground: what they show of each run, packed for the page."""

import base64
import gzip
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from jaxtyping import Float, Int

from attnprobe.core.sanitise import percent
from attnprobe.findings.groups import DOT, Group, Run
from attnprobe.findings.labels import answers_of_labels
from attnprobe.plots.example_selection import select_examples
from attnprobe.readings.reading import Column, HeatMap
from attnprobe.readings.registry import columns_in, maps_in
from attnprobe.report.page import MEGABYTES
from attnprobe.results.directory import SITE, VOCABULARY, table_file
from attnprobe.results.files import read_json
from attnprobe.results.playground import read_playground
from attnprobe.results.table import read_rows

BYTES_PER_VALUE = 2.5
"""What a packed weight takes of the page."""
DECIMALS = 4
"""Decimals of a weight, as many as the page shows."""
DIGITS = 3
"""Digits of the largest weight of a text where decimals leave fewer: the page shades by it."""
MOST_DIGITS = 15
"""Digits of a whole number that the page's script reads as it is written."""
MOST_DECIMALS = 300
"""Decimals from which on ten to their power is infinite to the script, or nearly."""
VALUES_PER_PIECE = 3
"""What a piece of a word takes: its name, the word that it belongs to, and its weight."""
BLOCK_SIZE = 500
"""Examples in one block: the page unpacks a block at a time, in some milliseconds."""
MOST_CLASSES = 6
"""With more classes only the probabilities of the predicted class and of the label are kept."""
UNSEEN = "unseen"
"""Column of the words that an attention cannot see: they have no weight, not even 0."""
PIECES = ("pieces", "piece_word", "piece_attention")
"""Columns of the examples' table: the pieces, the word of each (−1: none), and its weight."""
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
PIECE_COLUMNS = (
    Column("special_mass", "share of the attention on no word of the text"),
    Column("start_mass", "on the first piece that the model reads"),
    Column("first_word_mass", "on the first word of the text"),
    Column("second_mass", "on the second text of the pair"),
    Column("first_words", "words of the first text", digits=0),
)
OTHER_TEXT = {"first": "Second text", "second": "First text"}
"""What was read beside the text whose attention is shown, by `data.attend_to`; else a question."""


def packed(content: Any) -> str:
    """Content of the page as text: base64 of a gzip file of JSON.

    It can neither end a script element nor be markup.
    """
    raw = json.dumps(content, separators=(",", ":")).encode()
    return base64.b64encode(gzip.compress(raw, 6, mtime=0)).decode("ascii")


def rounded(values: Iterable[float], digits: int = 5) -> list[float | None]:
    """Numbers as JSON has them, with so many digits; None where undefined."""
    return [None if value != value else float(f"{value:.{digits}g}") for value in values]


def in_whole_numbers(weights: Sequence[Float[np.ndarray, " words"]]) -> list[list[int | None]]:
    """Weights as the page's script reads them (`weightsOf`), in half the bytes of decimal numbers.

    Args:
        weights: of each text, NaN where undefined; or none.

    Returns:
        For each text how many decimals its weights have, `DECIMALS` or more (fewer, and below 0,
        where the largest one has more than `MOST_DIGITS` digits with them), and each weight times
        ten to that power, None where it is undefined; nothing for a text without weights.

    >>> in_whole_numbers([np.array([0.25, np.nan]), np.array([]), np.array([-2.5e-6, 1e-6])])
    [[4, 2500, None], [], [8, -250, 100]]
    """
    if not weights:
        return []
    lengths = [len(text_weights) for text_weights in weights]
    text = np.repeat(np.arange(len(weights)), lengths)
    values = np.concatenate(weights).astype(float)
    largest = np.zeros(len(weights))
    np.fmax.at(largest, text, np.abs(values))
    magnitude = np.floor(np.log10(np.where(largest > 0, largest, 1.0))).astype(int)
    decimals = np.maximum(DECIMALS, DIGITS - 1 - magnitude)
    decimals = np.minimum(decimals, MOST_DIGITS - 1 - magnitude).clip(max=MOST_DECIMALS)
    scaled = np.round(values * 10.0 ** decimals[text])
    numbers: list[int | None] = np.nan_to_num(scaled).astype(np.int64).tolist()
    for place in np.flatnonzero(np.isnan(scaled)).tolist():
        numbers[place] = None

    rows: list[list[int | None]] = []
    start = 0
    for length, text_decimals in zip(lengths, decimals.tolist(), strict=True):
        rows.append([text_decimals, *numbers[start : start + length]] if length else [])
        start += length
    return rows


@dataclass
class Browser:
    """What the page's script reads.

    Attributes:
        index: what there is, and in which blocks.
        blocks: packed content by name.
        remark: which examples have heat maps, where not all do.
    """

    index: dict[str, Any]
    blocks: dict[str, str] = field(default_factory=dict)
    remark: str = ""

    def add_rows(self, name: str, rows: Sequence[Any]) -> list[str]:
        """Pack a list in blocks of `BLOCK_SIZE`; their names."""
        names = []
        for start in range(0, len(rows), BLOCK_SIZE):
            names.append(f"{name}-{start}")
            self.blocks[names[-1]] = packed(rows[start : start + BLOCK_SIZE])
        return names


class MetricSource(NamedTuple):
    """Where a heat map or a number comes from.

    Attributes:
        probe: whose table; None: the examples' own.
        shown: what the page says of it.
        site: of which attention.
    """

    probe: str | None
    shown: Any
    site: str = ""

    @property
    def key(self) -> str:
        """Its name in the page's data."""
        name = self.shown.metric
        if self.probe is not None:
            name = f"{self.probe}-{name}"
        if self.site:
            name += re.sub(r"\W+", "_", f" {self.site}")
        return name


@dataclass(frozen=True)
class Browsed:
    """A run on its way into the page.

    Attributes:
        run: what is shown.
        title: its group and seed.
        texts: the place of its texts in the index.
        items: positions per text.
        words: words per text.
        unknown: words that its model does not know.
        maps: its heat maps.
        pieces: how many pieces of words its texts have.
    """

    run: Run
    title: str
    texts: int
    items: list[int]
    words: list[int]
    unknown: list[str]
    maps: list[MetricSource]
    pieces: int

    @property
    def values(self) -> int:
        """How many values its heat maps and pieces have."""
        weights = sum(
            sum(self.words if source.key == INNER else self.items) for source in self.maps
        )
        return weights + VALUES_PER_PIECE * self.pieces


def browse(
    groups: Sequence[Group],
    *,
    words: bool = True,
    megabytes: float = MEGABYTES,
    tell: Callable[[str], None] = lambda _: None,
) -> Browser:
    """Pack the examples of all runs.

    Args:
        groups: of the runs.
        words: False leaves the texts out; positions, numbers and classes stay.
        megabytes: about what all blocks may weigh; where the heat maps take more, some examples of
            each run keep theirs.
        tell: called with a line about every run.
    """
    browser = Browser({"runs": [], "texts": [], "words": words, "per_block": BLOCK_SIZE})
    known_texts: list[str] = []
    runs = []
    for group in groups:
        for run in group.runs:
            title = f"{group.title}{DOT}seed {run.seed}"
            runs.append(_add_texts(browser, run, title, known_texts))
    remaining = megabytes * 1e6 - sum(map(len, browser.blocks.values()))
    needed = BYTES_PER_VALUE * sum(browsed.values for browsed in runs)
    share = min(1.0, max(0.0, remaining / max(1.0, needed)))
    for browsed in runs:
        tell(f"examples of {browsed.title}")
        browser.index["runs"].append(add_run(browser, browsed, share))
    if share < 1:
        browser.remark = (
            f"Heat maps are kept for {percent(share)} of each run's examples, so that the page "
            f"stays below {megabytes:g} MB: half of these are spread evenly over the split, the "
            f"others have the largest and smallest values of the measures that the list can be "
            f"sorted by. The numbers are of all examples; `--megabytes` keeps more."
        )
    return browser


def _add_texts(browser: Browser, run: Run, title: str, known_texts: list[str]) -> Browsed:
    """Pack a run's texts, unless an earlier run has read the same.

    Args:
        browser: that they are packed into.
        run: whose.
        title: of the run.
        known_texts: the packed texts so far, which the run's may join.
    """
    words = bool(browser.index["words"])
    table = examples_of(run)
    texts = table["words" if "words" in table.column_names else "tokens"].to_pylist()
    lengths = [_length_of(text) for text in texts]
    content: dict[str, Any] = {"lengths": lengths}
    if words:
        content["words"] = texts
        if "question" in table.column_names:
            content["question"] = [_words_of(asked) for asked in table["question"].to_pylist()]
    block = packed(content)
    if block not in known_texts:
        name = f"texts-{len(known_texts)}"
        browser.index["texts"].append(name)
        browser.blocks[name] = block
        known_texts.append(block)

    browsed = Browsed(
        run=run,
        title=title,
        texts=known_texts.index(block),
        items=[len(length) if isinstance(length, list) else length for length in lengths],
        words=[sum(length) if isinstance(length, list) else length for length in lengths],
        unknown=_unknown_words(run, texts) if words else [],
        maps=_maps_of(run, table.column_names),
        pieces=0,
    )
    if words and "pieces" in table.column_names:
        pieces = sum(map(len, table["pieces"].to_pylist()))
        return replace(browsed, pieces=pieces)
    return browsed


def _length_of(text: Sequence[Any]) -> int | list[int]:
    """Words of a text; of each sentence where a text of a hierarchical model is a list of these."""
    if text and isinstance(text[0], list):
        return [len(sentence) for sentence in text]
    return len(text)


def _words_of(question: str | list[str] | None) -> list[str]:
    """The words of a question, which may be one string or none."""
    if question is None:
        return []
    return question.split() if isinstance(question, str) else question


def _unknown_words(run: Run, texts: Iterable[Any]) -> list[str]:
    """Words that are not in the model's vocabulary, each once.

    None of a pretrained model, whose tokenizer cuts words into pieces that it knows.
    """
    is_pretrained = "_target_" in run.manifest.get("training", {}).get("model", {})
    if is_pretrained or VOCABULARY not in run.files.manifest()["files"]:
        return []
    vocabulary = read_json(run.files.file(VOCABULARY))
    seen: dict[str, None] = {}
    for text in texts:
        for word_or_sentence in text:
            if isinstance(word_or_sentence, str):
                seen[word_or_sentence] = None
            else:
                seen |= dict.fromkeys(word_or_sentence)
    return [word for word in seen if word not in vocabulary]


def _maps_of(run: Run, columns: Sequence[str]) -> list[MetricSource]:
    """A run's heat maps; single layers and heads in the order of their numbers."""
    first, last = OWN_MAPS
    maps = [MetricSource(None, first)] if first.metric in columns else []
    for probe, shown in maps_in(run.numbers, run.manifest.get("classes", [])):
        file = run.files.file(table_file(probe))
        rows = read_rows([file], (), [shown.metric], columns=[SITE])
        sites = {site or "" for site in rows[SITE].unique().to_pylist()}
        maps += [MetricSource(probe, shown, site) for site in sorted(sites, key=_numbers_in)]
    if last.metric in columns:
        maps.append(MetricSource(None, last))
    return maps


def _numbers_in(site: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d{1,9}", site)]


def examples_of(run: Run) -> pa.Table:
    """The examples of a run's split, whose ids ascend, without their texts as they were."""
    names = [name for name in run.files.example_columns(run.split).names if name != "text"]
    return run.files.examples(run.split, names)


def values_of(
    browsed: Browsed, sources: Sequence[MetricSource], table: pa.Table
) -> dict[MetricSource, Float[np.ndarray, " examples"]]:
    """Numbers of every example, NaN where they are undefined.

    Args:
        browsed: the run.
        sources: of the numbers.
        table: the run's examples.
    """
    example_ids = table["example_id"].to_numpy()
    metrics_of_probe: dict[str, list[str]] = {}
    for source in sources:
        if source.probe is not None:
            metrics_of_probe.setdefault(source.probe, []).append(source.shown.metric)
    rows_of_probe = {
        probe: browsed.run.numbers.rows(probe, metrics)
        for probe, metrics in metrics_of_probe.items()
    }
    columns = {}
    for source in sources:
        if source.probe is None:
            columns[source] = _own_values(browsed, source.shown.metric, table)
            continue
        rows = rows_of_probe[source.probe]
        rows = rows[rows["metric"] == source.shown.metric]
        values = rows.set_index("example_id")["value"].reindex(example_ids).to_numpy()
        columns[source] = 1 - values if source.shown.one_minus else values
    return columns


def _own_values(browsed: Browsed, metric: str, table: pa.Table) -> Float[np.ndarray, " examples"]:
    """A number of every example that the examples' table has or follows from it."""
    match metric:
        case "length":
            return np.array(browsed.items, float)
        case "margin":
            ordered = np.sort(np.array(table["probability"].to_pylist(), float), axis=-1)
            return ordered[:, -1] - ordered[:, -2] if len(ordered) else np.zeros(0)
        case "max_attention":
            attention = table["attention"].to_pylist()
            return np.array([max(weights, default=np.nan) for weights in attention])
        case name:
            return table[name].to_numpy()


def add_run(browser: Browser, browsed: Browsed, share: float) -> dict[str, Any]:
    """Pack one run's numbers and weights.

    Args:
        browser: that they are packed into.
        browsed: the run.
        share: of the examples that keep their heat maps.

    Returns:
        What the index says of the run.
    """
    run = browsed.run
    table = examples_of(run)
    columns = values_of(browsed, _columns_of(run, table), table)
    example_ids = table["example_id"].to_numpy()
    kept = _kept_rows(columns, int(share * len(example_ids)), len(example_ids))

    number = len(browser.index["runs"])
    contents: dict[str, Any] = {
        "example_id": example_ids.tolist(),
        "kept": kept.tolist(),
        "unknown": browsed.unknown,
        **decisions(table),
    }
    measures: list[dict[str, Any]] = []
    name_of_column: dict[tuple[float | None, ...], str] = {}
    for source, values in columns.items():
        column = rounded(values, 8)
        # what an exact method finds is its own bound: both are one column
        name = name_of_column.setdefault(tuple(column), source.key)
        contents[name] = column
        measures.append(_measure(source, name))
    browser.blocks[f"numbers-{number}"] = packed(contents)

    kept_table = table.take(kept)
    pieces = None
    # those of a page without words would be words
    if browser.index["words"] and "pieces" in table.column_names:
        pieces = browser.add_rows(f"maps-{number}-pieces", kept_table.select(PIECES).to_pylist())
    classes = len(table["probability"][0]) if len(table) else 0
    attend_to = run.manifest.get("training", {}).get("data", {}).get("attend_to", "")
    return {
        "title": browsed.title,
        "data": run.data,
        "run_id": run.run_id,
        "examples": len(example_ids),
        "classes": [str(name) for name in run.manifest.get("classes") or range(classes)],
        "texts": browsed.texts,
        "numbers": f"numbers-{number}",
        "maps": list(add_maps(browser, browsed, kept_table, kept)),
        "measures": measures,
        "hierarchical": "words" in table.column_names,
        "labels": answers_of_labels(run),
        "other_text": OTHER_TEXT.get(attend_to, "Question"),
        "pieces": pieces,
    }


def _columns_of(run: Run, table: pa.Table) -> list[MetricSource]:
    """The numbers of a run's examples.

    Those that the list can be sorted by come first, leading ones before all.
    """
    # with several labels at once no class is ahead of another
    absent = {"margin"} if pa.types.is_list(table["label"].type) else set()
    absent |= {column.metric for column in PIECE_COLUMNS}.difference(table.column_names)
    sources = [MetricSource(probe, column) for probe, column in columns_in(run.numbers)]
    for column in (*OWN_COLUMNS, *PIECE_COLUMNS):
        if column.metric not in absent:
            sources.append(MetricSource(None, column))
    return sorted(sources, key=lambda source: (not source.shown.sorts, not source.shown.leads))


def _kept_rows(
    columns: Mapping[MetricSource, np.ndarray], most: int, count: int
) -> Int[np.ndarray, " kept"]:
    """Rows of the examples that keep their heat maps, ascending."""
    scores = {source.key: values for source, values in columns.items() if source.shown.sorts}
    scores |= {f"{key} down": -values for key, values in scores.items()}
    return np.sort(list(select_examples(np.arange(count), most, scores=scores))).astype(int)


def _measure(source: MetricSource, column: str) -> dict[str, Any]:
    """What the index says of a number; `column` has it, which may have been packed for another."""
    shown = source.shown
    return {
        "key": source.key,
        "column": column,
        "title": shown.title,
        "digits": shown.digits,
        "sorts": shown.sorts,
        "truth": shown.truth,
    }


def decisions(table: pa.Table) -> dict[str, Any]:
    """Labels, predictions, probabilities and candidates of every example.

    Several labels at once are lists.
    """
    probability = table["probability"].to_pylist()
    content: dict[str, Any] = {}
    for side in ("label", "prediction"):
        content[side] = table[side].to_pylist()
    if pa.types.is_list(table["label"].type):
        for side, rows in content.items():
            content[side] = [[number for number, is_on in enumerate(row) if is_on] for row in rows]
        content["probability"] = [rounded(row) for row in probability]
    elif probability and isinstance(probability[0], list) and len(probability[0]) > MOST_CLASSES:
        content["p_label"] = _probability_of(content["label"], probability)
        content["p_prediction"] = _probability_of(content["prediction"], probability)
    else:
        content["probability"] = [rounded(row) for row in probability]
    if "candidates" in table.column_names:
        candidates = table["candidates"].to_pylist()
        content["candidates"] = [row and list(map(str, row)) for row in candidates]
    return content


def _probability_of(
    classes: Sequence[int], probability: Sequence[Sequence[float]]
) -> list[float | None]:
    """The probability of one class of each example."""
    pairs = zip(probability, classes, strict=True)
    return rounded(row[min(max(class_, 0), len(row) - 1)] for row, class_ in pairs)


def add_maps(
    browser: Browser, browsed: Browsed, table: pa.Table, kept: Int[np.ndarray, " kept"]
) -> Iterator[dict[str, Any]]:
    """Pack the weights of the kept examples' maps, a list for each example.

    Args:
        browser: that they are packed into.
        browsed: the run.
        table: the kept examples.
        kept: their rows among all examples.

    Yields:
        What the index says of each map.
    """
    example_ids = table["example_id"].to_numpy()
    unseen = table[UNSEEN].to_pylist() if UNSEEN in table.column_names else None
    sources = enumerate(browsed.maps)
    by_metric = groupby(sources, lambda pair: (pair[1].probe, pair[1].shown.metric))
    for (probe, metric), same_metric in by_metric:
        long_rows = None
        if probe is not None:  # read once for all its sites
            long_rows = browsed.run.numbers.rows(
                probe, (), stepped=(metric,), example_ids=example_ids.tolist()
            )
        for place, source in same_metric:
            if long_rows is None:
                rows = table[metric].to_pylist()
                weights = [np.hstack(row).astype(float) if row else np.zeros(0) for row in rows]
                if metric == "attention" and unseen is not None:
                    weights = [
                        np.where(row, np.nan, values)
                        for row, values in zip(unseen, weights, strict=True)
                    ]
            else:
                counts = browsed.words if source.key == INNER else browsed.items
                is_shown = long_rows["value"].notna() & (long_rows[SITE] == source.site)
                weights = _weights_of(
                    long_rows[is_shown],
                    example_ids,
                    np.array(counts, int)[kept],
                    None if source.key == INNER else unseen,
                )
            name = f"maps-{len(browser.index['runs'])}-{place}"
            shown = source.shown
            yield {
                "key": source.key,
                "title": f"{shown.title}: {source.site}" if source.site else shown.title,
                "site": source.site,
                "about": shown.about,
                "relative": shown.relative,
                "is_set": shown.is_set,
                "inner": source.key == INNER,
                "blocks": browser.add_rows(name, in_whole_numbers(weights)),
            }


def _weights_of(
    rows: pd.DataFrame,
    example_ids: np.ndarray,
    lengths: Int[np.ndarray, " kept"],
    unseen: Sequence[Sequence[bool]] | None,
) -> list[Float[np.ndarray, " words"]]:
    """A weight per position of each example from long rows; nothing for an example without any.

    Args:
        rows: that have a number each.
        example_ids: of the kept examples.
        lengths: how many positions each of these has.
        unseen: of each, the words that the attention cannot see. Where these have no row they have
            no number (NaN), and the other positions 0.
    """
    row = np.searchsorted(example_ids, rows["example_id"])
    step = rows["step"].to_numpy().astype(np.int64)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    flat = np.zeros(ends[-1])
    if unseen is not None:
        flat[np.hstack(unseen).astype(bool)] = np.nan
    flat[ends[row] + step] = rows["value"]
    has_weights = np.isin(np.arange(len(example_ids)), row)
    return [
        flat[start:end] if is_known else np.zeros(0)
        for start, end, is_known in zip(ends, ends[1:], has_weights, strict=False)
    ]


def playgrounds(
    groups: Sequence[Group], browser: Browser, *, words: bool = True
) -> list[dict[str, Any]]:
    """Pack the playground's texts, of each group's first run that has any, in full precision.

    Args:
        groups: of the runs.
        browser: that they are packed into.
        words: False shows the positions' numbers.

    Returns:
        What the index says of them.
    """
    entries: list[dict[str, Any]] = []
    for group in groups:
        for run in group.runs:
            rows = read_playground(run.files)
            if not rows:
                continue
            block = f"play-{len(entries)}"
            browser.blocks[block] = packed(_playground_texts(run, rows, words=words))
            classes = range(len(rows[0]["position_logits"]) // len(rows[0]["attention"]))
            seed = f"seed {run.seed}" if len(group.runs) > 1 else ""
            entries.append(
                {
                    "title": DOT.join(filter(None, [group.title, seed])),
                    "epsilon": rows[0]["epsilon"],
                    "classes": [str(name) for name in run.manifest.get("classes") or classes],
                    "block": block,
                }
            )
            break
    return entries


def _playground_texts(
    run: Run, rows: Sequence[dict[str, Any]], *, words: bool
) -> list[dict[str, Any]]:
    """The playground's rows with their labels and words, and what is asked of them."""
    columns = ["example_id", "label"]
    if words:
        columns.append("tokens")
    if words and "question" in run.files.example_columns(run.split).names:
        columns.append("question")
    table = run.files.examples(run.split, columns, [row["example_id"] for row in rows])
    examples = {example["example_id"]: example for example in table.to_pylist()}
    texts = []
    for row in rows:
        example = examples[row["example_id"]]
        tokens = [str(place + 1) for place in range(len(row["attention"]))]
        if words:
            tokens = example["tokens"]
        text = row | {"label": example["label"], "words": tokens}
        if example.get("question"):
            text["asked"] = " ".join(example["question"])
        texts.append(text)
    return texts
