"""The browser over examples and the playground: what they show of each run, packed for the page.

Every example's numbers are in the page; its heat maps too, unless those of all examples would make the page too large:
then `select_examples` chooses whose heat maps stay.
"""

import base64
import gzip
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Float, Int, UInt

from attnprobe.evidence.reading import Column, HeatMap, columns_in, maps_in
from attnprobe.findings.groups import DOT, Group, Run
from attnprobe.plots.example_selection import select_examples
from attnprobe.results.directory import PLAYGROUND, SITE, VOCABULARY, table_file
from attnprobe.results.files import damaged, read_json
from attnprobe.results.playground import read_playground
from attnprobe.results.table import read_rows

MEGABYTES = 60
"""What a page may weigh; `--megabytes` on the command line."""
PER_VALUE = 2.4
"""Bytes of the page that a weight takes: gzip gains about what base64 loses, less on real texts."""
PER_PIECE = 3
"""Values that a piece of a word takes: which it is, the word that it belongs to, and its weight."""
PER_BLOCK = 120_000
"""Weights of one map in a block: the page unpacks a block at a time, in some milliseconds."""
MOST_CLASSES = 6
"""With more classes only the probabilities of the predicted class and of the label are kept."""
TYPES = {"u1": "Uint8Array", "u2": "Uint16Array", "u4": "Uint32Array",
         "i4": "Int32Array", "f4": "Float32Array", "f8": "Float64Array"}  # fmt: skip
"""numpy's name → the browser's typed array."""
LEVELS = 2**16 - 2
"""Of a quantised weight; the number above stands for NaN."""
PIECES = ("pieces", "piece_word", "piece_attention")
"""Columns of the examples' table where a model reads pieces of words: the pieces, the word that each belongs to (−1: none
of the text), and its weight."""
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
"""Those of a model that reads pieces."""
OTHER_TEXT = {"first": "Second text", "second": "First text"}
"""What was read beside the text whose attention is shown, by `data.attend_to`; of data without pairs it is a question."""


class Block(NamedTuple):
    """Content of the page as text: base64 of a gzip file. `type`: a typed array of the browser, or `JSON`."""

    type: str
    text: str


def packed(content: Any) -> Block:
    """An array (little endian), or whatever JSON can say. Base64 can neither end a script element nor be read as markup.

    Raises:
        KeyError: an array of a type that browsers do not have.
    """
    if isinstance(content, np.ndarray):
        kind = TYPES[content.dtype.str[1:]]
        raw = np.ascontiguousarray(content, content.dtype.newbyteorder("<")).tobytes()
    else:
        kind, raw = "JSON", json.dumps(content, separators=(",", ":")).encode()
    return Block(kind, base64.b64encode(gzip.compress(raw, 6, mtime=0)).decode("ascii"))


def quantised(values: Float[np.ndarray, " values"]) -> UInt[np.ndarray, " values"]:
    """Numbers from 0 to 1 in 16 bits, NaN as the largest of them.

    The square root is rounded, so that small weights, of which a text has many, keep more digits than large ones: a
    value v comes back within √v / `LEVELS`.

    >>> quantised(np.array([0.0, 0.25, 1.0, np.nan]))
    array([    0, 32767, 65534, 65535], dtype=uint16)
    """
    levels = np.rint(np.sqrt(np.clip(values, 0, 1)) * LEVELS)
    return np.where(np.isnan(levels), LEVELS + 1, levels).astype(np.uint16)


@dataclass
class Browser:
    """What the page's script reads: `index` (JSON) and `blocks` by name. `remark` says which examples have heat maps where
    not all do."""

    index: dict[str, Any]
    blocks: dict[str, Block] = field(default_factory=dict)
    remark: str = ""

    def add(self, name: str, contents: dict[str, Any]) -> dict[str, str]:
        """Pack contents; returns the name of each one's block by its key."""
        names = {key: f"{name}-{key}" for key in contents}
        self.blocks |= {names[key]: packed(content) for key, content in contents.items()}
        return names


class Source(NamedTuple):
    """A heat map or a number of one run: of a probe's table, or (`probe` None) of the examples' own; `site`: of which of the
    model's attentions, where the table has several."""

    probe: str | None
    shown: Any
    site: str = ""

    @property
    def key(self) -> str:
        """Its name in the page, unique there."""
        name = self.shown.metric if self.probe is None else f"{self.probe}-{self.shown.metric}"
        return name + re.sub(r"\W+", "_", f" {self.site}" if self.site else "")


@dataclass(frozen=True)
class Browsed:
    """A run on its way into the page. `texts`: their place in the index; `items`: positions per text; `words`: words per
    text, which are more where the positions are sentences; `unknown`: numbers of the words that its model does not know."""

    run: Run
    title: str
    texts: int
    items: UInt[np.ndarray, " examples"]
    words: UInt[np.ndarray, " examples"]
    unknown: UInt[np.ndarray, " unknown"]
    maps: list[Source]
    pieces: int

    @property
    def values(self) -> int:
        """Weights of all its maps, and what its pieces take."""
        of_maps = (self.words if source.key == INNER else self.items for source in self.maps)
        return PER_PIECE * self.pieces + sum(int(lengths.sum()) for lengths in of_maps)


def browse(
    groups: Sequence[Group],
    *,
    words: bool = True,
    megabytes: float = MEGABYTES,
    tell: Callable[[str], None] = lambda _: None,
) -> Browser:
    """Pack the examples of all runs.

    Args:
        groups: the runs.
        words: False leaves the texts out; positions, numbers and classes stay.
        megabytes: what all blocks together may weigh, about; where the heat maps take more, only some examples of each run
            keep theirs.
        tell: progress callback.
    """
    browser = Browser({"runs": [], "texts": [], "words": words})
    known: list[dict[str, Block]] = []
    browsed: list[Browsed] = []
    for title, run in ((f"{group.title}{DOT}seed {run.seed}", run) for group in groups for run in group.runs):
        table = examples_of(run)
        texts = texts_of(table, words=words)
        same = {key: packed(content) for key, content in texts.items()}
        if same not in known:  # runs that read the same texts share them
            browser.blocks |= {f"texts-{len(known)}-{key}": block for key, block in same.items()}
            browser.index["texts"].append({key: f"texts-{len(known)}-{key}" for key in same})
            known.append(same)
        items = texts["items"]
        inner = _added_up(texts["sentence"], items) if "sentence" in texts else items
        pieces = int(lengths_of(table["pieces"]).sum()) if words and "pieces" in table.column_names else 0
        browsed.append(
            Browsed(run, title, known.index(same), items, inner,
                    unknown_words(run, texts.get("vocabulary", ())), maps_of(run, table.column_names), pieces)
        )  # fmt: skip
    left = megabytes * 1e6 - sum(len(block.text) for block in browser.blocks.values())
    share = min(1.0, max(0.0, left / max(1.0, PER_VALUE * sum(one.values for one in browsed))))
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


def texts_of(table: pa.Table, *, words: bool) -> dict[str, Any]:
    """The texts of a run's examples: `items` counts the positions of each, `words` numbers the words in `vocabulary`, all
    texts in a row. In a hierarchical model the positions are sentences, and `sentence` counts the words of each. `question`
    and `question_length`: of texts that were read with one. Without `words` the lengths alone."""
    hierarchical = "words" in table.column_names
    lists = table["words" if hierarchical else "tokens"]
    texts: dict[str, Any] = {"items": lengths_of(lists)}
    flat = pc.list_flatten(lists)
    if hierarchical:
        texts["sentence"] = lengths_of(flat)
        flat = pc.list_flatten(flat)
    if not words:
        return texts
    asked = flat.slice(0, 0)
    if "question" in table.column_names:
        column = table["question"]
        split = column if pa.types.is_list(column.type) else pc.utf8_split_whitespace(pc.fill_null(column, ""))
        texts["question_length"] = lengths_of(split)
        asked = pc.list_flatten(split)
    numbers, texts["vocabulary"] = numbered([*flat.chunks, *asked.chunks])
    return texts | {"words": numbers[: len(flat)], "question": numbers[len(flat) :]}


def numbered(chunks: Sequence[pa.Array]) -> tuple[UInt[np.ndarray, " words"], list[str]]:
    """Words as numbers in the list of the different ones."""
    strings = pa.chunked_array([chunk.cast(pa.string()) for chunk in chunks], pa.string())
    words = strings.combine_chunks().dictionary_encode()
    kind = np.uint16 if len(words.dictionary) < 2**16 else np.uint32
    return words.indices.to_numpy(zero_copy_only=False).astype(kind), words.dictionary.to_pylist()


def lengths_of(lists: pa.ChunkedArray) -> UInt[np.ndarray, " lists"]:
    """How long each list is."""
    return pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.uint32)


def _ends(lengths: np.ndarray) -> np.ndarray:
    # 0, and where each part ends, the parts in a row
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def _added_up(values: np.ndarray, lengths: UInt[np.ndarray, " parts"]) -> UInt[np.ndarray, " parts"]:
    # the sum of each part's values, the parts in a row; 0 of an empty one
    return np.diff(_ends(values)[_ends(lengths)]).astype(np.uint32)


def unknown_words(run: Run, words: Sequence[str]) -> UInt[np.ndarray, " unknown"]:
    """The places of the words that the run's model has no vector of its own for; none where its tokenizer cuts words into
    pieces that it knows, or where the run has no vocabulary."""
    directory, model = run.files, run.manifest.get("training", {}).get("model", {})
    if not words or "_target_" in model or VOCABULARY not in directory.manifest()["files"]:
        return np.zeros(0, np.uint32)
    known = read_json(directory.file(VOCABULARY))
    return np.array([place for place, word in enumerate(words) if word not in known], np.uint32)


def maps_of(run: Run, columns: Sequence[str]) -> list[Source]:
    """The heat maps that a run has weights for; those of single layers and heads in the order of their numbers."""
    first, last = ([Source(None, one)] if one.metric in columns else [] for one in OWN_MAPS)
    of_probes = []
    for probe, shown in maps_in(run.numbers):
        rows = read_rows([run.files.file(table_file(probe))], (), [shown.metric], columns=[SITE])
        sites = {site or "" for site in rows[SITE].unique().to_pylist()}
        ordered = sorted(sites, key=lambda site: [int(number) for number in re.findall(r"\d{1,9}", site)])
        of_probes += [Source(probe, shown, site) for site in ordered]
    return [*first, *of_probes, *last]


def columns_of(run: Run, table: pa.Table) -> list[Source]:
    """The numbers that are shown with each example: first those that the list can be sorted by, leading ones before all."""
    # with several labels at once no class is ahead of another
    absent = {"margin"} if pa.types.is_list(table["label"].type) else set()
    absent |= {one.metric for one in OF_PIECES}.difference(table.column_names)
    columns = [Source(probe, one) for probe, one in columns_in(run.numbers)]
    columns += [Source(None, one) for one in (*OWN_COLUMNS, *OF_PIECES) if one.metric not in absent]
    return sorted(columns, key=lambda source: (not source.shown.sorts, not source.shown.leads))


def values_of(one: Browsed, source: Source, table: pa.Table) -> Float[np.ndarray, " examples"]:
    """A number of every example, NaN where it is undefined."""
    if source.probe is not None:
        rows = one.run.numbers.rows(source.probe, (source.shown.metric,))
        values = rows.set_index("example_id")["value"].reindex(table["example_id"].to_numpy()).to_numpy()
        return 1 - values if source.shown.one_minus else values
    match source.shown.metric:
        case "length":
            return one.items.astype(float)
        case "margin":
            ordered = np.sort(np.array(table["probability"].to_pylist(), float), axis=-1)
            return ordered[:, -1] - ordered[:, -2] if len(ordered) else np.zeros(0)
        case "max_attention":
            weights = pd.Series(pc.list_flatten(table["attention"]).to_numpy().astype(float))
            text = np.repeat(np.arange(len(table)), lengths_of(table["attention"]))
            return weights.groupby(text).max().reindex(range(len(table))).to_numpy()
        case name:
            return table[name].to_numpy()


def add_run(browser: Browser, one: Browsed, share: float) -> dict[str, Any]:
    """Pack one run's numbers and weights; returns what the index says of it."""
    run, table = one.run, examples_of(one.run)
    ids = table["example_id"].to_numpy()
    columns = {source: values_of(one, source, table) for source in columns_of(run, table)}
    sorting = {source.key: values for source, values in columns.items() if source.shown.sorts}
    both_ends = sorting | {f"{key} down": -values for key, values in sorting.items()}
    rows = np.sort(list(select_examples(np.arange(len(ids)), int(share * len(ids)), scores=both_ends))).astype(int)
    kept = np.isin(np.arange(len(ids)), rows)
    contents = {"example_id": ids.astype(np.float64), "kept": kept.astype(np.uint8), "unknown": one.unknown}
    contents |= decisions(table) | {source.key: values.astype(np.float32) for source, values in columns.items()}
    some = table.filter(pa.array(kept))
    stretches = spans(one.words[kept], PER_BLOCK)
    classes = len(table["probability"][0]) if len(table) else 0
    return {
        "title": one.title,
        "data": run.data,
        "run_id": run.run_id,
        "examples": len(ids),
        "classes": [str(name) for name in run.manifest.get("classes") or range(classes)],
        "texts": one.texts,
        "numbers": browser.add(f"numbers-{len(browser.index['runs'])}", contents),
        "blocks": [{"first": first, "count": stop - first} for first, stop in stretches],
        "maps": list(add_maps(browser, one, some, kept, stretches)),
        "measures": [
            {"key": source.key} | {name: getattr(source.shown, name) for name in ("title", "digits", "sorts", "truth")}
            for source in columns
        ],
        "hierarchical": "words" in table.column_names,
        "other_text": OTHER_TEXT.get(run.manifest.get("training", {}).get("data", {}).get("attend_to"), "Question"),
        "pieces": add_pieces(browser, one, some, kept, stretches) if one.pieces else None,
    }


def decisions(table: pa.Table) -> dict[str, Any]:
    """Labels, predictions, probabilities and candidates of every example; several labels at once as lists."""
    probability = np.array(table["probability"].to_pylist(), np.float32)
    several = pa.types.is_list(table["label"].type)
    found: dict[str, Any] = {}
    for side in ("label", "prediction"):
        rows = table[side]
        found[side] = (
            [[number for number, on in enumerate(row) if on] for row in rows.to_pylist()]
            if several
            else rows.to_numpy().astype(np.int32)
        )
        if probability.ndim == 2 and probability.shape[1] > MOST_CLASSES and not several:
            chosen = np.clip(found[side], 0, probability.shape[1] - 1)
            found[f"p_{side}"] = probability[np.arange(len(chosen)), chosen]
    if "p_label" not in found:
        found["probability"] = probability.ravel()
    if "candidates" in table.column_names:
        found["candidates"] = [row and list(map(str, row)) for row in table["candidates"].to_pylist()]
    return found


def spans(lengths: Int[np.ndarray, " examples"], most: int) -> list[tuple[int, int]]:
    """Stretches `[first, stop)` of examples with about `most` positions each, at least one example in each."""
    if len(lengths) == 0:
        return []
    part = (np.cumsum(lengths.astype(np.int64)) - 1) // most
    edges = [0, *(np.flatnonzero(np.diff(np.maximum(part, 0))) + 1).tolist(), len(lengths)]
    return [(a, b) for a, b in pairwise(edges) if b > a]


def add_maps(
    browser: Browser, one: Browsed, kept_rows: pa.Table, kept: np.ndarray, stretches: Sequence[tuple[int, int]]
) -> Iterator[dict[str, Any]]:
    """Pack the weights of the kept examples' maps; what the index says of each.

    Raises:
        DamagedRun: a table has a position that its text does not have.
    """
    ids, count = kept_rows["example_id"].to_numpy(), np.arange(len(kept_rows))
    numbered_maps = enumerate(one.maps)
    for (probe, metric), same in groupby(numbered_maps, lambda pair: (pair[1].probe, pair[1].shown.metric)):
        # of a probe's table, once for all its sites
        read = None if probe is None else one.run.numbers.rows(probe, (), stepped=(metric,), example_ids=ids.tolist())
        for place, source in same:
            lengths = (one.words if source.key == INNER else one.items)[kept].astype(np.int64)
            if read is None:
                own, flat = flattened(kept_rows[metric])
                row, value = np.repeat(count, own), flat.to_numpy().astype(float)
                step = np.arange(len(row)) - np.repeat(_ends(own)[:-1], own)
            else:
                rows = read[read["value"].notna() & (read[SITE] == source.site)]
                row, value = np.searchsorted(ids, rows["example_id"]), rows["value"].to_numpy()
                step = rows["step"].to_numpy().astype(np.int64)
            ends = _ends(lengths)
            dense = np.zeros(ends[-1])
            dense[ends[row] + step] = value
            dense[np.repeat(~np.isin(count, row), lengths)] = np.nan  # a text without any
            unit = float(np.nanmax(dense, initial=1.0))  # distances of scores do not end at 1
            parts = {str(number): quantised(dense[ends[a] : ends[b]] / unit) for number, (a, b) in enumerate(stretches)}
            yield {
                "key": source.key,
                "title": f"{source.shown.title}: {source.site}" if source.site else source.shown.title,
                "site": source.site,
                "about": source.shown.about,
                "relative": source.shown.relative,
                "unit": unit,
                "inner": source.key == INNER,
                "blocks": list(browser.add(f"maps-{len(browser.index['runs'])}-{place}", parts).values()),
            }


def flattened(lists: pa.ChunkedArray) -> tuple[Int[np.ndarray, " examples"], pa.ChunkedArray]:
    """How many numbers each example has, and all of them in a row; of lists of lists the inner ones one after the other."""
    if not pa.types.is_list(lists.type.value_type):
        return lengths_of(lists).astype(np.int64), pc.list_flatten(lists)
    inner = pc.list_flatten(lists)
    return _added_up(lengths_of(inner), lengths_of(lists)).astype(np.int64), pc.list_flatten(inner)


def add_pieces(
    browser: Browser, one: Browsed, kept_rows: pa.Table, kept: np.ndarray, stretches: Sequence[tuple[int, int]]
) -> dict[str, Any]:
    """Pack the pieces of the kept examples' words; what the index says of them."""
    lengths = lengths_of(kept_rows["pieces"])
    piece, word, weight = (pc.list_flatten(kept_rows[name]) for name in PIECES)
    numbers, vocabulary = numbered(piece.chunks)
    words, weights = word.to_numpy(), weight.to_numpy().astype(float)
    name, ends = f"maps-{len(browser.index['runs'])}-pieces", _ends(lengths)
    blocks = []
    for number, (first, stop) in enumerate(stretches):
        own = slice(ends[first], ends[stop])
        contents = {"piece": numbers[own], "word": words[own], "weights": quantised(weights[own])}
        blocks.append(browser.add(f"{name}-{number}", contents | {"lengths": lengths[first:stop]}))
    return browser.add(name, {"vocabulary": vocabulary}) | {"blocks": blocks}


def playgrounds(groups: Sequence[Group], browser: Browser, *, words: bool = True) -> list[dict[str, Any]]:
    """Pack the playground's texts, of each group's first run that has any, in full precision: the page's predictions are the
    model's to the last digits. Returns what the index says of them; `browser` takes in one block per run."""
    entries: list[dict[str, Any]] = []
    for group in groups:
        for run in group.runs:
            rows = read_playground(run.files)
            if not rows:
                continue
            columns = ["example_id", "label", *(["tokens"] if words else [])]
            examples = run.files.examples(run.split, columns, [row["example_id"] for row in rows]).to_pylist()
            known = {example["example_id"]: example for example in examples}
            texts = []
            for row in rows:
                own, length = known.get(row["example_id"]), len(row["attention"])
                if own is None or (words and len(own["tokens"]) != length):
                    raise damaged(
                        run.files / PLAYGROUND,
                        f"example {row['example_id']} is none of the {run.split} split, or has another number of words",
                    )
                shown = own["tokens"] if words else [str(place + 1) for place in range(length)]
                texts.append(row | {"label": own["label"], "words": shown})
            seed = f"seed {run.seed}" if len(group.runs) > 1 else ""
            classes = range(len(rows[0]["position_logits"]) // len(rows[0]["attention"]))
            browser.blocks[f"play-{len(entries)}"] = packed(texts)
            entry = {"title": DOT.join(filter(None, [group.title, seed])), "epsilon": rows[0]["epsilon"]}
            named = [str(one) for one in run.manifest.get("classes") or classes]
            entries.append(entry | {"classes": named, "block": f"play-{len(entries)}"})
            break
    return entries
