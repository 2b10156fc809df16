"""Open a checkpoint of `transformers`: safetensors only, no code of its own, offline where a cache has it."""

import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from attnprobe.core.batch import Task
from attnprobe.core.errors import UserError
from attnprobe.data.local_files import opened
from attnprobe.data.pieces import TEXT, PieceReader
from attnprobe.models.pretrained.prompted import keep_labels_only, label_pieces
from attnprobe.results.files import MAX_JSON

LONGEST = 512
"""Pieces of a text where nobody says otherwise, if the model takes that many."""
WEIGHTS = {
    "use_safetensors": True,
    "output_loading_info": True,
    "dtype": "float32",
    "attn_implementation": "eager",
}
"""How a network's weights are read: attention is computed step by step, so that it can be seen and replaced."""


@dataclass(frozen=True)
class Checkpoint:
    """A classifier as `transformers` opened it.

    Attributes:
        network: its `…ForSequenceClassification`, on the CPU, in float32; or its `…ForCausalLM`, of whose head the classes'
            rows are left.
        reader: cuts words into its pieces.
        order: the network's output for each of the data's classes.
        mask: the piece that stands for a masked one, None where its tokenizer has none.
        padding: the piece that fills up short texts; where there is none, the end of a text, which is masked all the same.
    """

    network: Any
    reader: PieceReader
    order: list[int]
    mask: int | None
    padding: int


@contextmanager
def _quiet_transformers() -> Iterator[Any]:
    """The library, without its remarks on new heads and unused weights, which concern no user of this program."""
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
    max_pieces: int | None = None,
    offline: bool = False,
    prompt: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> Checkpoint:
    """Open a folder, or a name on the hub.

    Args:
        path: a folder as `save_pretrained` writes it, or `owner/name`.
        classes: names of the data's classes.
        task: one class per text, or any subset of the labels.
        trains: it will be fine-tuned: a head for these classes is added where it has none.
        offline: the hub is not asked, only its cache.
        max_pieces: longest text in pieces; None: 512, or what the model takes if that is less.
        prompt: what every text is put into; the checkpoint is then a causal language model.
        labels: class → the piece that says it, with a prompt.

    Raises:
        UserError: there is no such checkpoint, it is not a classifier of these classes, or it would need code of its own.
    """
    if Path(path).is_dir():
        _check_folder(Path(path))
    with _quiet_transformers() as library:
        settings = _read(path, library.AutoConfig.from_pretrained, offline)
        tokenizer = _read(path, library.AutoTokenizer.from_pretrained, offline)
        if not tokenizer.is_fast:
            raise UserError(
                f"model.path={path}: its tokenizer does not say which characters a piece stands for (it is not a fast one, "
                f"there is no tokenizer.json): save it with transformers' AutoTokenizer(use_fast=True) first"
            )
        prompted = prompt is not None
        order = list(range(len(classes))) if prompted else _label_order(settings, classes)
        if order is None and not trains:
            raise UserError(
                f"model.path={path}: its labels are {', '.join(map(str, settings.id2label.values()))}, those of the data "
                f"{', '.join(classes)}. Name the data's as the checkpoint's, with data.labels='{{value in the data: label of "
                f"the checkpoint, …}}', or train it on them with training=finetune"
            )
        new_head = {
            "num_labels": len(classes),
            "id2label": dict(enumerate(classes)),
            "label2id": {name: number for number, name in enumerate(classes)},
            "ignore_mismatched_sizes": True,
        }
        facts = WEIGHTS | (new_head if order is None else {})
        kind = library.AutoModelForCausalLM if prompted else library.AutoModelForSequenceClassification
        read_network = partial(kind.from_pretrained, **facts)
        network, loading = _read(path, read_network, offline)
        if (prompted or not trains) and loading["missing_keys"]:
            absent = ", ".join(sorted(loading["missing_keys"]))[:200]
            raise UserError(
                f"model.path={path}: training=none takes it as it is, and it lacks {absent} (is it a classifier?): train it "
                f"with training=finetune"
            )
    fillers = (tokenizer.pad_token_id, network.config.pad_token_id, tokenizer.eos_token_id, 0)
    known = network.get_input_embeddings().num_embeddings
    padding = next(int(number) for number in fillers if number is not None and int(number) < known)
    network.config.pad_token_id = padding
    longest = _longest_text(network, tokenizer)
    if max_pieces is not None and max_pieces > longest:
        raise UserError(f"model.max_pieces={max_pieces}: this model takes texts of at most {longest} pieces")
    reader = PieceReader(tokenizer, max_pieces or min(longest, LONGEST), known, TEXT if prompt is None else prompt)
    if prompted:
        keep_labels_only(network, reader, label_pieces(reader, dict(labels or {}), classes))
    order = list(range(len(classes))) if order is None else order
    return Checkpoint(network, reader, order, tokenizer.mask_token_id, padding)


def _read(path: str, read: Callable[..., Any], offline: bool) -> Any:
    """What `read` gives, without the network first, and with it where nothing is there.

    Raises:
        UserError: neither gives anything.
    """
    local = Path(path).is_dir()
    if not local and Path(path).exists():
        raise UserError(f"model.path={path}: expected a folder as save_pretrained writes it, or a name on the hub")
    failure: BaseException | None = None
    for elsewhere in [False] if local or offline else [False, True]:
        try:
            return read(path, trust_remote_code=False, local_files_only=not elsewhere)
        except Exception as error:  # what is wrong in a file of somebody else's, the library does not ask
            failure = error
        if "trust_remote_code" in str(failure) or "custom code" in str(failure):
            break
    reason = " ".join(f"{type(failure).__name__}: {failure}".split())[:300]
    if "trust_remote_code" in reason or "custom code" in reason:
        raise UserError(f"model.path={path}: it brings code of its own, which attnprobe never runs ({reason[:150]})")
    if local:
        raise UserError(
            f"model.path={path}: transformers cannot open it ({reason}). Expected a folder with config.json, "
            f"model.safetensors (no .bin: pickles are not loaded) and tokenizer.json, as save_pretrained writes them"
        ) from failure
    raise UserError(
        f"model.path={path}: there is no such folder, and the hub gives nothing ({reason}). Without a network: "
        f"`hf download {path} --local-dir FOLDER` where there is one, and model.path=FOLDER here"
    ) from failure


READ = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
        "generation_config.json", "vocab.json")  # fmt: skip
INDEX = "model.safetensors.index.json"
MOST_LAYERS = 1000


def _check_folder(folder: Path) -> None:
    """Look at what `transformers` will believe without asking, before it does: a folder may be anybody's.

    Raises:
        UserError: a file is too large or too deep; or weights are elsewhere, or no safetensors.
    """
    contents: dict[str, Any] = {}
    for file in (folder / name for name in (*READ, INDEX)):
        if not os.path.lexists(file):
            contents[file.name] = {}
            continue
        with opened(file) as stream:
            content = stream.read(MAX_JSON + 1)
        try:
            found = contents[file.name] = json.loads(content) if len(content) <= MAX_JSON else None
        except (ValueError, RecursionError) as error:
            found, reason = None, str(error)[:200]
        else:
            reason = f"no object, or one of more than {MAX_JSON:,} bytes"
        if not isinstance(found, dict):
            raise UserError(
                f"model.path={folder}: {file.name} is damaged ({reason}): expected it as save_pretrained writes it"
            )
    named, config = contents[INDEX].get("weight_map", {}), contents["config.json"]
    files = set(map(str, named.values())) if isinstance(named, dict) else {str(named)}
    if wrong := sorted(one for one in files if not (Path(one).name == one and one.endswith(".safetensors"))):
        raise UserError(
            f"{folder / INDEX} names the file {wrong[0][:100]!r}: expected files of this folder that end in .safetensors, as "
            f"save_pretrained writes them (no .bin: pickles are not loaded)"
        )
    for name, value in config.items():
        depth = name.endswith(("layer", "layers")) and isinstance(value, int) and value > MOST_LAYERS
        foreign = name == "_attn_implementation" and "/" in str(value)  # would be fetched from the hub, as code
        if depth or foreign or (name == "quantization_config" and value is not None):
            raise UserError(
                f"{folder / 'config.json'}: {name}={str(value)[:60]} is not supported: expected an unquantised model of at "
                f"most {MOST_LAYERS:,} layers with the library's own attention"
            )


def _label_order(settings: Any, classes: Sequence[str]) -> list[int] | None:
    """Which output of a checkpoint is each of the classes, by name; None where the names do not match one to one.

    Names are compared without regard to case, spaces, - and _. LABEL_0, LABEL_1, … stand for the classes 0, 1, …
    """

    def plain(name: object) -> str:
        return "".join(letter for letter in str(name).casefold() if letter not in " -_")

    named = {int(number): plain(label) for number, label in settings.id2label.items()}
    wanted = [plain(name) for name in classes]
    for names in (named, {number: label.removeprefix("label") for number, label in named.items()}):
        places = {label: number for number, label in names.items()}
        if len(places) == len(names) == len(set(wanted)) and set(places) == set(wanted):
            return [places[name] for name in wanted]
    return None


def _longest_text(network: Any, tokenizer: Any) -> int:
    """How many pieces the network has positions for: RoBERTa's begin after the padding's number."""
    positions = getattr(network.config, "max_position_embeddings", None) or 10**9
    for name, module in network.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            positions = module.num_embeddings - (0 if module.padding_idx is None else module.padding_idx + 1)
            break
    longest = tokenizer.model_max_length
    if not isinstance(longest, int | float) or not longest >= 2:
        raise UserError(
            f"model.path={tokenizer.name_or_path}: tokenizer_config.json has model_max_length={longest!r:.60}: expected the "
            f"number of pieces of its longest text"
        )
    return int(min(positions, longest))
