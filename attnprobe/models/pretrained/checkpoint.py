"""Open a checkpoint of `transformers`: safetensors only, no code of its own, offline where a cache
has it."""

import base64
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from attnprobe.core.batch import Task
from attnprobe.core.errors import UserError
from attnprobe.core.settings import listed, nearest
from attnprobe.data.pieces import TEXT, PieceReader, foreign
from attnprobe.data.sources import HUB_NAME
from attnprobe.models.pretrained.heads import classes_of_score, keep_labels_only, label_pieces

LONGEST = 512
"""Pieces of a text where nobody says otherwise, if the model takes that many."""
WEIGHTS = {
    "use_safetensors": True,
    "output_loading_info": True,
    "dtype": "float32",
    "attn_implementation": "eager",
}
"""How a network's weights are read: attention is computed step by step, so that it can be seen and
replaced."""


class Checkpoint(NamedTuple):
    """A classifier as `transformers` opened it, on the CPU, in float32.

    Attributes:
        network: a `…ForSequenceClassification`, or a `…ForCausalLM` of whose head only the rows of
            the classes are left.
        reader: its tokenizer, and the prompt.
        classes: the data's, then those that the network knows besides.
        order: the network's output for each of these.
        matched: how the data's classes were found among the network's, as a sentence; empty where
            they were not.
        mask: the piece that stands for a masked one; None where its tokenizer has none.
        padding: the piece that fills up short texts; without one, the end of a text, which is
            masked all the same.
        tags: it gives a class to every word.
    """

    network: Any
    reader: PieceReader
    classes: list[str]
    order: list[int]
    matched: str
    mask: int | None
    padding: int
    tags: bool = False


class Matching(NamedTuple):
    """Which output of a network is which class.

    Attributes:
        order: an output per class; empty: the classes are new to the network.
        classes: the data's, then those that the network knows besides.
        sentence: how they were matched.
    """

    order: list[int]
    classes: list[str]
    sentence: str = ""


@contextmanager
def _quiet_transformers() -> Iterator[Any]:
    """The library, without its remarks on new heads and unused weights, which concern no user of
    this program."""
    try:
        import transformers
    except ImportError:
        raise UserError(
            "model=pretrained needs the package transformers: pip install 'attnprobe[transformers]'"
        ) from None
    before = transformers.logging.get_verbosity()
    progress = transformers.utils.logging.is_progress_bar_enabled()
    transformers.logging.set_verbosity(logging.CRITICAL)
    transformers.utils.logging.disable_progress_bar()
    try:
        yield transformers
    finally:
        transformers.logging.set_verbosity(before)
        if progress:
            transformers.utils.logging.enable_progress_bar()


def open_checkpoint(
    path: str,
    classes: Sequence[str],
    task: Task,
    *,
    trains: bool,
    tags: bool = False,
    max_pieces: int | None = None,
    offline: bool = False,
    prompt: str | None = None,
    labels: Mapping[str, str],
    threshold: float | None = None,
    in_order: bool = False,
) -> Checkpoint:
    """Open a folder as `save_pretrained` writes it, or a name on the hub.

    The arguments are settings of `PretrainedClassifier`.

    Raises:
        UserError: it is no classifier of these classes, or would need code of its own.
    """
    _check_path(path)
    with _quiet_transformers() as library:
        settings = _read(path, library.AutoConfig.from_pretrained, offline)
        tokenizer = _read(path, library.AutoTokenizer.from_pretrained, offline)
        _check_tokenizer(path, tokenizer)
        _check_precision(path, settings)
        if threshold is not None:
            _check_threshold(threshold, settings, classes, task, prompted=prompt is not None)

        takes_tags = prompt is None and (tags or not trains)
        tags = takes_tags and _is_tagger(settings)
        if threshold is not None:
            sentence = f"scores above {threshold:g} are {classes[1]}, the others {classes[0]}"
            matching = Matching([0, 1], list(classes), sentence)
        elif prompt is not None:
            names = [*classes, *(name for name in labels if name not in classes)]
            matching = Matching(list(range(len(names))), names)
        else:
            if not trains:
                _refuse_head(path, settings, task)
            matching = _match_classes(path, settings, classes, trains=trains, in_order=in_order)

        head = "TokenClassification" if tags else "SequenceClassification"
        if prompt is not None:
            head = "CausalLM"
        network = _read_network(
            path,
            getattr(library, f"AutoModelFor{head}").from_pretrained,
            offline,
            new_classes=0 if matching.order else len(classes),
            is_complete=not trains or prompt is not None or threshold is not None,
        )

    vocabulary = network.get_input_embeddings().num_embeddings
    padding = _padding(tokenizer, network, vocabulary)
    network.config.pad_token_id = padding
    longest = _longest_text(path, tokenizer, network)
    if max_pieces is not None and max_pieces > longest:
        raise UserError(
            f"model.max_pieces={max_pieces}: this model takes texts of at most {longest} pieces"
        )
    reader = PieceReader(
        tokenizer,
        max_pieces or min(longest, LONGEST),
        vocabulary,
        TEXT if prompt is None else prompt,
    )

    if prompt is not None:
        keep_labels_only(network, reader, label_pieces(reader, labels, matching.classes))
    if threshold is not None:
        classes_of_score(network, reader, threshold)
    return Checkpoint(
        network=network,
        reader=reader,
        classes=matching.classes,
        order=matching.order or list(range(len(matching.classes))),
        matched=matching.sentence,
        mask=tokenizer.mask_token_id,
        padding=padding,
        tags=tags,
    )


def _check_path(path: str) -> None:
    """Refuse a folder that is missing, or whose files would do harm; a name on the hub may pass."""
    folder = Path(path)
    if folder.is_dir():
        _check_folder(folder)
        return
    looks_local = folder.parent.is_dir() or not HUB_NAME.fullmatch(path)
    if "/" in path and looks_local and not folder.exists():
        near = nearest(folder.name, [sibling.name for sibling in folder.parent.glob("*")])
        raise UserError(
            f"model.path={path}: there is no such folder{near}; expected one as save_pretrained "
            f"writes it"
        )


def _check_tokenizer(path: str, tokenizer: Any) -> None:
    """Refuse a tokenizer without words, or one that does not say where a piece stands."""
    words = {*tokenizer.get_vocab()}
    words -= {*tokenizer.all_special_tokens}
    words -= {*tokenizer.get_added_vocab()}
    if tokenizer.is_fast and words:
        return
    fault = "does not say which characters a piece stands for"
    if tokenizer.is_fast:
        fault = "knows no word"
    raise UserError(
        f"model.path={path}: its tokenizer {fault}: expected its files (tokenizer.json or "
        f"vocab.txt, …) beside the weights, as transformers' "
        f"AutoTokenizer.from_pretrained(…).save_pretrained(FOLDER) writes them"
    )


def _check_precision(path: str, settings: Any) -> None:
    """Refuse a quantised network."""
    quantisation = getattr(settings, "quantization_config", None)
    if quantisation:
        raise UserError(
            f"model.path={path}: quantization_config={str(quantisation)[:60]} is not supported: "
            f"expected the model that it was made from, or what model.dequantize() gives"
        )


def _check_threshold(
    threshold: float,
    settings: Any,
    classes: Sequence[str],
    task: Task,
    *,
    prompted: bool,
) -> None:
    """Refuse a threshold where there is not one score, or not two exclusive classes."""
    gives_score = settings.num_labels == 1 and not prompted
    two_classes = len(classes) == 2 and task is not Task.MULTI_LABEL
    if gives_score and two_classes:
        return
    raise UserError(
        f"model.threshold={threshold}: expected a checkpoint that gives one score (num_labels=1, "
        f"this one: {settings.num_labels}), no prompt, and data of two classes, one label each, "
        f"the second of which is that of high scores (data.labels=[low, high]; data.above=NUMBER "
        f"where labels are numbers); they have {', '.join(classes)}"
    )


def _is_tagger(settings: Any) -> bool:
    """Whether the checkpoint's head gives a class to every word."""
    heads = settings.architectures or []
    return any(name.endswith("TokenClassification") for name in heads)


def _read_network(
    path: str,
    read: Callable[..., Any],
    offline: bool,
    *,
    new_classes: int,
    is_complete: bool,
) -> Any:
    """Read the weights.

    Args:
        path: the checkpoint.
        read: the library's function that reads a network with a head of the right kind.
        offline: see `_read`.
        new_classes: the outputs of a new head; 0: the checkpoint's head is kept.
        is_complete: it is not trained, so that no weight may be missing.
    """
    new_head: dict[str, Any] = {}
    if new_classes:
        new_head = {"num_labels": new_classes, "ignore_mismatched_sizes": True}
    network, loading = _read(path, partial(read, **WEIGHTS, **new_head), offline)
    if is_complete and loading["missing_keys"]:
        absent = ", ".join(sorted(loading["missing_keys"]))[:200]
        raise UserError(
            f"model.path={path}: training=none takes it as it is, and it lacks {absent} (is it a "
            f"classifier?): train it with training=finetune"
        )
    return network


def _padding(tokenizer: Any, network: Any, vocabulary: int) -> int:
    """The piece that fills up short texts: the first of several candidates that the network
    knows."""
    candidates = (
        tokenizer.pad_token_id,
        network.config.pad_token_id,
        tokenizer.eos_token_id,
        0,
    )
    return next(int(piece) for piece in candidates if piece is not None and int(piece) < vocabulary)


def _longest_text(path: str, tokenizer: Any, network: Any) -> int:
    """The longest text that the network and its tokenizer take, in pieces."""
    positions = getattr(network.config, "max_position_embeddings", None) or 10**9
    for name, module in network.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            positions = module.num_embeddings
            if module.padding_idx is not None:  # RoBERTa's positions begin after the padding's
                positions -= module.padding_idx + 1
            break
    limit = tokenizer.model_max_length
    if not isinstance(limit, int | float) or not limit >= 2:
        raise UserError(
            f"model.path={path}: tokenizer_config.json has model_max_length={limit!r:.60}: "
            f"expected the number of pieces of its longest text"
        )
    return int(min(positions, limit))


def _read(path: str, read: Callable[..., Any], offline: bool) -> Any:
    """Call a `from_pretrained` of the library: without the network first, then with it.

    Args:
        path: a folder, or a name on the hub.
        read: the function.
        offline: never use the network.

    Raises:
        UserError: the library cannot read it.
    """
    is_local = Path(path).is_dir()
    if not is_local and Path(path).exists():
        raise UserError(
            f"model.path={path}: expected a folder as save_pretrained writes it, or a name on the "
            f"hub"
        )
    failure: BaseException | None = None
    for local_files_only in [True] if is_local or offline else [True, False]:
        try:
            return read(path, trust_remote_code=False, local_files_only=local_files_only)
        except BaseException as error:  # a damaged file may make the library raise anything
            failure = foreign(error)
        if "trust_remote_code" in str(failure) or "custom code" in str(failure):
            reason = " ".join(str(failure).split())[:150]
            raise UserError(
                f"model.path={path}: it brings code of its own, which attnprobe never runs "
                f"({reason})"
            )

    reason = " ".join(f"{type(failure).__name__}: {failure}".split())[:300]
    if type(failure).__name__ == "SafetensorError":
        raise UserError(
            f"model.path={path}: transformers cannot open it ({reason}): its weights are damaged "
            f"or were cut short. Copy or download them again"
        ) from failure
    if is_local:
        raise UserError(
            f"model.path={path}: transformers cannot open it ({reason}). Expected a folder with "
            f"config.json, model.safetensors (no .bin: pickles are not loaded) and "
            f"tokenizer.json, as save_pretrained writes them"
        ) from failure
    raise UserError(
        f"model.path={path}: there is no such folder, and the hub gives nothing ({reason}). "
        f"Without a network: `hf download {path} --local-dir FOLDER` where there is one, and "
        f"model.path=FOLDER here"
    ) from failure


CHECKPOINT_FILES = (".safetensors", ".json", ".txt", ".model")
"""Endings of the files that a network and its tokenizer are read from."""
INDEX = "model.safetensors.index.json"
TOKENIZER = "tokenizer.json"
CONFIG = "config.json"
ADAPTER = "adapter_config.json"
MOST_LAYERS = 1000
MOST_GROWTH = 1000
"""Characters that a tokenizer may make of one, before it cuts the text; a compatibility form (NFKC)
makes 18."""


def _check_folder(folder: Path) -> None:
    """Refuse what `transformers` would believe without asking: a folder may be anybody's."""
    if (folder / ADAPTER).exists():
        raise UserError(
            f"model.path={folder} holds an adapter ({ADAPTER}), not the model that it changes: "
            f"expected both merged, with "
            f"peft.AutoPeftModelForSequenceClassification.from_pretrained(FOLDER)"
            f".merge_and_unload().save_pretrained(NEW)"
        )
    for file in folder.iterdir():
        if not (file.is_file() or file.is_dir()):
            raise UserError(
                f"{file} is a pipe, a device or a broken link: expected files as save_pretrained "
                f"writes them"
            )
    _check_index(folder / INDEX)
    _check_normalizer(folder / TOKENIZER)
    _check_config(folder / CONFIG)


def _json_object(file: Path) -> dict[str, Any]:
    """The content of a JSON file; empty where it is none: `transformers` says what is wrong."""
    with suppress(OSError, ValueError, RecursionError):
        content = json.loads(file.read_bytes())
        if isinstance(content, dict):
            return content
    return {}


def _check_index(file: Path) -> None:
    """Refuse an index of weights that names anything but safetensors of the same folder."""
    weight_map = _json_object(file).get("weight_map")
    names = {str(name) for name in weight_map.values()} if isinstance(weight_map, dict) else set()
    for name in sorted(names):
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise UserError(
                f"{file} names the file {name[:100]!r}: expected files of this folder that end in "
                f".safetensors, as save_pretrained writes them (no .bin: pickles are not loaded)"
            )


def _check_normalizer(file: Path) -> None:
    """Refuse a tokenizer that may make very long texts of short ones."""
    rules = _json_object(file)
    growth = _growth([rules.get("normalizer"), rules.get("pre_tokenizer")])
    if growth > MOST_GROWTH:
        raise UserError(
            f"{file}: its normalizer may make {growth:.3g} characters of one: expected at most "
            f"{MOST_GROWTH:,}, as the tokenizers of published models do. Take the tokenizer that "
            f"belongs to the model"
        )


def _check_config(file: Path) -> None:
    """Refuse a network of very many layers, or an attention that would be fetched from the hub, as
    code."""
    for name, value in _json_object(file).items():
        counts_layers = name.endswith(("layer", "layers")) and isinstance(value, int)
        too_deep = counts_layers and value > MOST_LAYERS
        is_fetched = name == "_attn_implementation" and "/" in str(value)
        if too_deep or is_fetched:
            raise UserError(
                f"{file}: {name}={str(value)[:60]} is not supported: expected a model of at most "
                f"{MOST_LAYERS:,} layers with the library's own attention"
            )


def _growth(rules: Any) -> float:
    """How many characters the rules of a tokenizer.json make of one, at most.

    Args:
        rules: normalizers and pre-tokenizers, nested in lists and objects.
    """
    growth = 1.0
    pending = [rules]
    while pending:
        rule = pending.pop()
        if isinstance(rule, list):
            pending += rule
        elif isinstance(rule, dict):
            pending += rule.values()
            growth *= _growth_of_rule(rule)
    return growth


def _growth_of_rule(rule: dict[str, Any]) -> float:
    """The factor of one normalizer or pre-tokenizer."""
    kind = rule.get("type")
    if kind == "ByteLevel":
        return 2.0
    if kind == "Precompiled":
        return _growth_of_table(rule)
    if kind not in ("Replace", "Prepend"):
        return 1.0

    pattern = rule.get("pattern")
    if kind == "Replace" and isinstance(pattern, dict) and pattern.get("String"):
        return max(1.0, len(str(rule.get("content"))) / len(str(pattern["String"])))
    # an expression may be found between any two characters
    return 1.0 + len(str(rule.get("content", rule.get("prepend"))))


def _growth_of_table(rule: dict[str, Any]) -> float:
    """Of SentencePiece's precompiled table: its size, the table, then the texts that it leads to,
    with a zero after each."""
    with suppress(ValueError, TypeError):
        table = base64.b64decode(rule.get("precompiled_charsmap", ""))
        size = int.from_bytes(table[:4], "little")
        texts = table[4 + size :].split(b"\0")
        return float(max(1, *map(len, texts)))
    return 1.0


OTHER_HEADS = (
    "MaskedLM",
    "PreTraining",
    "CausalLM",
    "Model",
    "ConditionalGeneration",
    "QuestionAnswering",
    "MultipleChoice",
)
"""What an architecture's name ends in that is no classifier of texts."""


def _refuse_head(path: str, settings: Any, task: Task) -> None:
    """Refuse a checkpoint that is taken as it is and predicts no classes of texts, or predicts them
    in another way than the data have them."""
    expected = (
        "expected a classifier of texts (…ForSequenceClassification); training=finetune gives it a "
        "head and trains it"
    )
    for name in settings.architectures or []:
        if name.endswith(OTHER_HEADS):
            remedy = expected
            if name.endswith(("CausalLM", "LMHeadModel")):
                remedy += ", or ask it with model.prompt and model.labels"
            raise UserError(f"model.path={path}: it is a {name}: {remedy}")
    if settings.num_labels == 1:
        raise UserError(
            f"model.path={path}: its head gives one number (num_labels=1), a score and no classes: "
            f"{expected}; or give the score from which on a text is of the second class, with "
            f"model.threshold"
        )

    mismatch = ""
    if task is Task.MULTI_LABEL and settings.problem_type == "single_label_classification":
        mismatch = (
            "it gives a text one label, and the data have any number of labels: read them with "
            "data.multi_label=false"
        )
    elif task is not Task.MULTI_LABEL and settings.problem_type == "multi_label_classification":
        mismatch = (
            "it gives a text any number of labels, and the data have one label: read them with "
            "data.multi_label=true"
        )
    if mismatch:
        raise UserError(
            f"model.path={path}: problem_type={settings.problem_type}: {mismatch}, or train it "
            f"anew with training=finetune"
        )


def _match_classes(
    path: str,
    settings: Any,
    classes: Sequence[str],
    *,
    trains: bool,
    in_order: bool,
) -> Matching:
    """Find which output of a checkpoint is each of the classes.

    Args:
        path: the checkpoint, for messages.
        settings: its configuration.
        classes: the data's classes.
        trains: it will be trained. On classes that are not exactly its own it gets a new head.
        in_order: the data's classes are in the order of a checkpoint that has no names for its own.

    Returns:
        The first of `_ways_to_match` that finds every class; an empty order for a new head.

    Raises:
        UserError: a class is not found, and the checkpoint is not trained.
    """
    labels = {int(number): str(label) for number, label in settings.id2label.items()}
    for way, names in _ways_to_match(labels, classes, in_order).items():
        places = {_plain(name): place for place, name in names.items()}
        prefix = "label" if way == "number" else ""
        outputs = [places.get(_plain(name).removeprefix(prefix)) for name in classes]
        order = [place for place in outputs if place is not None]

        all_found = len(set(order)) == len(classes)
        may_have_more = not trains and way != "order"
        if all_found and (len(order) == len(labels) or may_have_more):
            rest = [place for place in labels if place not in order]
            return Matching(
                order=[*order, *rest],
                classes=[*classes, *(names[place] for place in rest)],
                sentence=_matching_sentence(way, classes, order, labels),
            )

    if trains:
        return Matching([], list(classes))
    remedy = "data.labels='{value in the data: label of the checkpoint, …}'"
    if all(_plain(label).startswith("label") for label in labels.values()):
        remedy = (
            f"data.labels=[{', '.join(classes)}] in the order of its training, all {len(labels)} "
            f"of them"
        )
    raise UserError(
        f"model.path={path}: its labels are {', '.join(labels.values())}, those of the data "
        f"{', '.join(classes)}. Say which is which with {remedy}, or train it on them with "
        f"training=finetune"
    )


def _plain(name: object) -> str:
    """A class's name without regard to case, spaces, - and _."""
    return re.sub("[ _-]", "", str(name).casefold())


def _ways_to_match(
    labels: Mapping[int, str],
    classes: Sequence[str],
    in_order: bool,
) -> dict[str, dict[int, str]]:
    """What each output of a checkpoint may be called by the data, from the surest way down.

    `name`: its label. `number`: the one number in its label (LABEL_2 and "3 stars" are 2 and 3), or
    its place where no label has a number. `order`: the data's class at its place, on request and
    where the checkpoint has numbers for names.
    """
    ways = {"name": dict(labels)}

    numbers = {place: re.findall(r"\d+", label) for place, label in labels.items()}
    if not any(numbers.values()):
        ways["number"] = {place: str(place) for place in labels}
    elif all(len(digits) == 1 for digits in numbers.values()):
        ways["number"] = {place: str(int(digits[0])) for place, digits in numbers.items()}

    is_unnamed = all(
        _plain(label).removeprefix("label") == str(place) for place, label in labels.items()
    )
    if in_order and is_unnamed:
        ways["order"] = dict(zip(labels, classes, strict=False))
    return ways


def _matching_sentence(
    way: str,
    classes: Sequence[str],
    order: Sequence[int],
    labels: Mapping[int, str],
) -> str:
    """Say how the classes were matched, and which of the checkpoint's the data do not have."""
    pairs = []
    for name, place in zip(classes, order, strict=True):
        pairs.append(name if name == labels[place] else f"{name} is {labels[place]}")
    absent = [label for place, label in labels.items() if place not in order]
    remark = f"; no row is {listed(absent)}" if absent else ""
    return f"the labels are the checkpoint's by {way}: {listed(pairs)}{remark}"
