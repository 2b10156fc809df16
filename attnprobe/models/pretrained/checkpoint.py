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
        network: a `…ForSequenceClassification`, or a `…ForCausalLM` of whose head the classes' rows
            are left.
        classes: the data's, then those that the network knows besides.
        order: the network's output for each of these.
        matched: how the data's classes were found among the network's, as a sentence; empty where
            they were not.
        mask: the piece that stands for a masked one, None where its tokenizer has none.
        padding: the piece that fills up short texts; where there is none, the end of a text, which
            is masked all the same.
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
    """Open a folder as `save_pretrained` writes it, or a name on the hub; the settings are those of
    `PretrainedClassifier`. A UserError where it is no classifier of these classes, or would need
    code of its own."""
    folder = Path(path)
    if folder.is_dir():
        _check_folder(folder)
    elif (
        not folder.exists()
        and "/" in path
        and (folder.parent.is_dir() or not HUB_NAME.fullmatch(path))
    ):
        near = nearest(folder.name, [one.name for one in folder.parent.glob("*")])
        raise UserError(
            f"model.path={path}: there is no such folder{near}; expected one as save_pretrained writes it"
        )
    with _quiet_transformers() as library:
        settings = _read(path, library.AutoConfig.from_pretrained, offline)
        tokenizer = _read(path, library.AutoTokenizer.from_pretrained, offline)
        words = (
            {*tokenizer.get_vocab()}
            - {*tokenizer.all_special_tokens}
            - {*tokenizer.get_added_vocab()}
        )
        if not (tokenizer.is_fast and words):
            lacks = (
                "knows no word"
                if tokenizer.is_fast
                else "does not say which characters a piece stands for"
            )
            raise UserError(
                f"model.path={path}: its tokenizer {lacks}: expected its files (tokenizer.json or vocab.txt, …) beside the "
                f"weights, as transformers' AutoTokenizer.from_pretrained(…).save_pretrained(FOLDER) writes them"
            )
        if quantised := getattr(settings, "quantization_config", None):
            raise UserError(
                f"model.path={path}: quantization_config={str(quantised)[:60]} is not supported: expected the model that it "
                f"was made from, or what model.dequantize() gives"
            )
        heads = tuple(settings.architectures or [])
        tags = (
            prompt is None
            and (tags or not trains)
            and any(one.endswith("TokenClassification") for one in heads)
        )
        prompted = prompt is not None
        if threshold is not None and (
            settings.num_labels != 1 or len(classes) != 2 or task is Task.MULTI_LABEL or prompted
        ):
            raise UserError(
                f"model.threshold={threshold}: expected a checkpoint that gives one score (num_labels=1, this one: "
                f"{settings.num_labels}), no prompt, and data of two classes, one label each, the second of which is that of "
                f"high scores (data.labels=[low, high]; data.above=NUMBER where labels are numbers); they have "
                f"{', '.join(classes)}"
            )
        names = (
            [*classes, *(name for name in labels if name not in classes)]
            if prompted
            else list(classes)
        )
        order = list(range(len(names)))
        matched = ""
        if threshold is not None:
            matched = f"scores above {threshold:g} are {classes[1]}, the others {classes[0]}"
        elif not prompted:
            if not trains:
                _refuse_head(path, settings, task)
            order, names, matched = _matched(
                path, settings, classes, trains=trains, in_order=in_order
            )
        new_head = {"num_labels": len(classes), "ignore_mismatched_sizes": True}
        kind = (
            "CausalLM" if prompted else "TokenClassification" if tags else "SequenceClassification"
        )
        read_network = getattr(library, f"AutoModelFor{kind}").from_pretrained
        network, loading = _read(
            path, partial(read_network, **WEIGHTS, **({} if order else new_head)), offline
        )
        if (prompted or threshold is not None or not trains) and loading["missing_keys"]:
            absent = ", ".join(sorted(loading["missing_keys"]))[:200]
            raise UserError(
                f"model.path={path}: training=none takes it as it is, and it lacks {absent} (is it a classifier?): train it "
                f"with training=finetune"
            )
    fillers = (tokenizer.pad_token_id, network.config.pad_token_id, tokenizer.eos_token_id, 0)
    known = network.get_input_embeddings().num_embeddings
    padding = next(int(number) for number in fillers if number is not None and int(number) < known)
    network.config.pad_token_id = padding
    positions = getattr(network.config, "max_position_embeddings", None) or 10**9
    for name, module in network.named_modules():
        if name.endswith("position_embeddings") and isinstance(
            module, nn.Embedding
        ):  # RoBERTa's begin after the padding's
            positions = module.num_embeddings - (
                0 if module.padding_idx is None else module.padding_idx + 1
            )
            break
    limit = tokenizer.model_max_length
    if not isinstance(limit, int | float) or not limit >= 2:
        raise UserError(
            f"model.path={path}: tokenizer_config.json has model_max_length={limit!r:.60}: expected the number of pieces of "
            f"its longest text"
        )
    longest = int(min(positions, limit))
    if max_pieces is not None and max_pieces > longest:
        raise UserError(
            f"model.max_pieces={max_pieces}: this model takes texts of at most {longest} pieces"
        )
    reader = PieceReader(
        tokenizer, max_pieces or min(longest, LONGEST), known, TEXT if prompt is None else prompt
    )
    if prompted:
        keep_labels_only(network, reader, label_pieces(reader, labels, names))
    if threshold is not None:
        classes_of_score(network, reader, threshold)
    return Checkpoint(
        network,
        reader,
        names,
        order or list(range(len(names))),
        matched,
        tokenizer.mask_token_id,
        padding,
        tags,
    )


def _read(path: str, read: Callable[..., Any], offline: bool) -> Any:
    """What `read` gives, without the network first, and with it where nothing is there; else a
    UserError."""
    local = Path(path).is_dir()
    if not local and Path(path).exists():
        raise UserError(
            f"model.path={path}: expected a folder as save_pretrained writes it, or a name on the hub"
        )
    failure: BaseException | None = None
    for elsewhere in [False] if local or offline else [False, True]:
        try:
            return read(path, trust_remote_code=False, local_files_only=not elsewhere)
        except (
            BaseException
        ) as error:  # what is wrong in a file of somebody else's, the library does not ask
            failure = foreign(error)
        if "trust_remote_code" in str(failure) or "custom code" in str(failure):
            reason = " ".join(str(failure).split())[:150]
            raise UserError(
                f"model.path={path}: it brings code of its own, which attnprobe never runs ({reason})"
            )
    reason = " ".join(f"{type(failure).__name__}: {failure}".split())[:300]
    if type(failure).__name__ == "SafetensorError":
        raise UserError(
            f"model.path={path}: transformers cannot open it ({reason}): its weights are damaged or were cut short. Copy or "
            f"download them again"
        ) from failure
    if local:
        raise UserError(
            f"model.path={path}: transformers cannot open it ({reason}). Expected a folder with config.json, "
            f"model.safetensors (no .bin: pickles are not loaded) and tokenizer.json, as save_pretrained writes them"
        ) from failure
    raise UserError(
        f"model.path={path}: there is no such folder, and the hub gives nothing ({reason}). Without a network: "
        f"`hf download {path} --local-dir FOLDER` where there is one, and model.path=FOLDER here"
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
            f"model.path={folder} holds an adapter ({ADAPTER}), not the model that it changes: expected both merged, with "
            f"peft.AutoPeftModelForSequenceClassification.from_pretrained(FOLDER).merge_and_unload().save_pretrained(NEW)"
        )
    for file in folder.iterdir():
        if not (file.is_file() or file.is_dir()):
            raise UserError(
                f"{file} is a pipe, a device or a broken link: expected files as save_pretrained writes them"
            )
    content: dict[str, dict[str, Any]] = {INDEX: {}, TOKENIZER: {}, CONFIG: {}}
    for name in content:
        with suppress(
            OSError, ValueError, RecursionError
        ):  # what is wrong with a damaged file `transformers` says
            found = json.loads((folder / name).read_bytes())
            content[name] = found if isinstance(found, dict) else {}
    named = content[INDEX].get("weight_map")
    files = set(map(str, named.values())) if isinstance(named, dict) else {}
    if wrong := sorted(
        one for one in files if not (Path(one).name == one and one.endswith(".safetensors"))
    ):
        raise UserError(
            f"{folder / INDEX} names the file {wrong[0][:100]!r}: expected files of this folder that end in .safetensors, as "
            f"save_pretrained writes them (no .bin: pickles are not loaded)"
        )
    rules = content[TOKENIZER]
    if (grown := _growth([rules.get("normalizer"), rules.get("pre_tokenizer")])) > MOST_GROWTH:
        raise UserError(
            f"{folder / TOKENIZER}: its normalizer may make {grown:.3g} characters of one: expected at most "
            f"{MOST_GROWTH:,}, as the tokenizers of published models do. Take the tokenizer that belongs to the model"
        )
    for name, value in content[CONFIG].items():
        depth = (
            name.endswith(("layer", "layers")) and isinstance(value, int) and value > MOST_LAYERS
        )
        foreign = name == "_attn_implementation" and "/" in str(
            value
        )  # would be fetched from the hub, as code
        if depth or foreign:
            raise UserError(
                f"{folder / CONFIG}: {name}={str(value)[:60]} is not supported: expected a model of at most "
                f"{MOST_LAYERS:,} layers with the library's own attention"
            )


def _growth(rules: Any) -> float:
    """How many characters the normalizers and pre-tokenizers of a tokenizer.json make of one, at
    most."""
    grown = 1.0
    rest = [rules]
    while rest:
        rule = rest.pop()
        rest += rule.values() if isinstance(rule, dict) else rule if isinstance(rule, list) else ()
        kind = rule.get("type") if isinstance(rule, dict) else None
        if (
            kind == "Replace"
            and isinstance(pattern := rule.get("pattern"), dict)
            and pattern.get("String")
        ):
            grown *= max(1, len(str(rule.get("content"))) / len(str(pattern["String"])))
        elif kind in (
            "Replace",
            "Prepend",
        ):  # an expression may be found between any two characters
            grown *= 1 + len(str(rule.get("content", rule.get("prepend"))))
        elif (
            kind == "Precompiled"
        ):  # a table, then the texts that it leads to, with a zero after each
            with suppress(ValueError, TypeError):
                table = base64.b64decode(rule.get("precompiled_charsmap", ""))
                grown *= max(
                    1, *map(len, table[4 + int.from_bytes(table[:4], "little") :].split(b"\0"))
                )
        elif kind == "ByteLevel":
            grown *= 2
    return grown


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
    """Refuse, by its name, a checkpoint that is taken as it is and says no classes of texts, or
    says them in another way."""
    way = "expected a classifier of texts (…ForSequenceClassification); training=finetune gives it a head and trains it"
    for name in settings.architectures or []:
        if name.endswith(OTHER_HEADS):
            asked = ", or ask it with model.prompt and model.labels" * name.endswith(
                ("CausalLM", "LMHeadModel")
            )
            raise UserError(f"model.path={path}: it is a {name}: {way}{asked}")
    if settings.num_labels == 1:
        raise UserError(
            f"model.path={path}: its head gives one number (num_labels=1), a score and no classes: {way}; "
            f"or give the score from which on a text is of the second class, with model.threshold"
        )
    several = task is Task.MULTI_LABEL
    if settings.problem_type == (
        "single_label_classification" if several else "multi_label_classification"
    ):
        gives, read = ("one label", "any number of labels")[:: 1 if several else -1]
        raise UserError(
            f"model.path={path}: problem_type={settings.problem_type}: it gives a text {gives}, and the data have "
            f"{read}: read them with data.multi_label={str(not several).lower()}, or train it anew with training=finetune"
        )


def _matched(
    path: str, settings: Any, classes: Sequence[str], *, trains: bool, in_order: bool
) -> tuple[list[int], list[str], str]:
    """Which output of a checkpoint is each of the classes: by name, without regard to case, spaces,
    - and _; by the number in its name (LABEL_2 and "3 stars" are 2 and 3), or else its place, where
    the classes are numbers; or by order, where that is given and the checkpoint has numbers for
    names. After these the others of its classes, and a sentence that says how they were found. Of
    one that will be trained on classes that are not its own: no outputs, and the classes as they
    are."""

    def plain(name: object) -> str:
        return "".join(letter for letter in str(name).casefold() if letter not in " -_")

    own = {int(number): str(label) for number, label in settings.id2label.items()}
    in_names = {number: re.findall(r"\d+", label) for number, label in own.items()}
    ways = {"name": own}
    if not any(in_names.values()):
        ways["number"] = {place: str(place) for place in own}
    elif all(len(found) == 1 for found in in_names.values()):
        ways["number"] = {place: str(int(found[0])) for place, found in in_names.items()}
    if in_order and all(
        plain(label).removeprefix("label") == str(place) for place, label in own.items()
    ):
        ways["order"] = dict(zip(own, classes, strict=False))
    for way, names in ways.items():
        places = {plain(name): place for place, name in names.items()}
        found = [
            places.get(plain(name).removeprefix("label" if way == "number" else ""))
            for name in classes
        ]
        order = [place for place in found if place is not None]
        if len({*order}) == len(classes) and (
            len(order) == len(own) or not (trains or way == "order")
        ):
            rest = [place for place in own if place not in order]
            pairs = [
                one if one == own[at] else f"{one} is {own[at]}"
                for one, at in zip(classes, order, strict=True)
            ]
            more = f"; no row is {listed([own[place] for place in rest])}" if rest else ""
            said = f"the labels are the checkpoint's by {way}: {listed(pairs)}{more}"
            return [*order, *rest], [*classes, *(names[place] for place in rest)], said
    if trains:
        return [], list(classes), ""
    instead = "data.labels='{value in the data: label of the checkpoint, …}'"
    if all(plain(label).startswith("label") for label in own.values()):
        instead = f"data.labels=[{', '.join(classes)}] in the order of its training, all {len(own)} of them"
    raise UserError(
        f"model.path={path}: its labels are {', '.join(own.values())}, those of the data {', '.join(classes)}. Say which is "
        f"which with {instead}, or train it on them with training=finetune"
    )
