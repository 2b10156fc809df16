"""Open a checkpoint of `transformers`: safetensors only, and no code of its own."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from huggingface_hub import HfApi
from torch import nn

from attnprobe.core.batch import Task
from attnprobe.core.errors import UserError, reason_of
from attnprobe.data.pieces import TEXT, UNLIMITED, PieceReader, foreign
from attnprobe.models.pretrained.class_matching import (
    every_label,
    match_classes,
    refuse_head,
    refuse_no_attention,
    refuse_prompt,
    sides_of,
)
from attnprobe.models.pretrained.folder_checks import check_path
from attnprobe.models.pretrained.heads import (
    classes_of_score,
    keep_labels_only,
    label_pieces,
    refuse_what_sees_ahead,
)
from attnprobe.models.pretrained.label_scores import LabelScores
from attnprobe.models.pretrained.reference import Library, chat_of, copy_sharing_weights

LONGEST = 512
"""Pieces of a text where nobody says otherwise, if the model takes that many."""
HUB_SECONDS = 10.0
"""What the hub may take to say that it has a checkpoint."""
LARGE = 5_000_000
"""Parameters from which a network is examined in float32."""
WEIGHTS = {
    "use_safetensors": True,
    "output_loading_info": True,
    "dtype": "float32",
    "attn_implementation": "eager",
}
"""How a network's weights are read: attention is computed step by step, so that it can be seen and
replaced."""

CHECKPOINT_FILES = (".safetensors", ".json", ".txt", ".model")
"""Endings of the files that a network and its tokenizer are read from."""


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
        padding: the piece that fills up short texts, by the network's own settings: some read
            their prediction from the last piece that is another one. None: they have none.
        library: the checkpoint as it came, with the same weights.
        label_scores: the labels of a language model that is asked, if one has several pieces.
        tags: it gives a class to every word.
    """

    network: Any
    reader: PieceReader
    classes: list[str]
    order: list[int]
    matched: str
    mask: int | None
    padding: int | None
    library: Library
    label_scores: LabelScores | None = None
    tags: bool = False


@contextmanager
def _quiet_transformers() -> Iterator[Any]:
    """The library, without its remarks on new heads and unused weights: they concern no user."""
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
    special_tokens: Literal["read", "characters"] = "read",
    keeps_characters: bool = False,
    offline: bool = False,
    prompt: str | None = None,
    chat: bool = False,
    labels: Mapping[str, str],
    threshold: float | None = None,
    in_order: bool = False,
) -> Checkpoint:
    """Open a folder as `save_pretrained` writes it, or a name on the hub.

    The arguments are settings of `PretrainedClassifier`, and `keeps_characters` of `PieceReader`.

    Raises:
        UserError: it is no classifier of these classes, or would need code of its own.
    """
    check_path(path)
    is_asked = prompt is not None
    with _quiet_transformers() as library:
        settings = _read(path, library.AutoConfig.from_pretrained, offline)
        tokenizer = _read(path, library.AutoTokenizer.from_pretrained, offline)
        _check_tokenizer(path, tokenizer)
        _check_precision(path, settings)
        refuse_no_attention(path, settings)
        if is_asked:
            refuse_prompt(path, settings)

        tags = not is_asked and (tags or not trains) and _is_tagger(settings)
        if threshold is not None:
            _check_threshold(threshold, settings, classes, task, prompted=is_asked)
            matching = sides_of(threshold, classes)
        elif is_asked:
            matching = every_label(classes, labels)
        else:
            if not trains:
                refuse_head(path, settings, task)
            matching = match_classes(
                path, settings, classes, trains=trains, in_order=in_order, tags=tags
            )

        message = prompt if chat else None
        if chat:
            prompt = _chat_prompt(path, tokenizer, message)
        network = _read_network(
            path,
            _auto_class(library, tags=tags, is_asked=is_asked).from_pretrained,
            offline,
            new_classes=0 if matching.order else len(classes),
            is_complete=not trains or is_asked or threshold is not None,
        )
        order = matching.order or list(range(len(matching.classes)))
        untouched = Library(
            tokenizer=_read(path, library.AutoTokenizer.from_pretrained, offline),
            network=_as_it_came(network),
            order=order,
            labels=[labels.get(name, "") for name in matching.classes] if is_asked else [],
            threshold=threshold,
            message=message,
        )

    vocabulary = network.get_input_embeddings().num_embeddings
    longest = longest_text(path, tokenizer, network)
    reader = PieceReader(
        tokenizer,
        _most_pieces(max_pieces, longest),
        vocabulary,
        TEXT if prompt is None else prompt,
        special_tokens,
        adds_special_tokens=not chat,
        spaces_are_words=not tags,
        keeps_characters=keeps_characters,
    )
    label_scores = None
    if is_asked:
        pieces = label_pieces(reader, labels, matching.classes, classes)
        label_scores = _scores_of_labels(network, reader, pieces)
    if label_scores is not None:
        reader = replace(reader, longest=min(reader.longest, longest - label_scores.longest))
    if threshold is not None:
        classes_of_score(network, reader, threshold)

    return Checkpoint(
        network=network,
        reader=reader,
        classes=matching.classes,
        order=order,
        matched=matching.sentence,
        mask=tokenizer.mask_token_id,
        padding=_padding(network, vocabulary),
        library=untouched,
        label_scores=label_scores,
        tags=tags,
    )


def open_encoder(path: str, *, offline: bool = False) -> tuple[Any, Any]:
    """Open an encoder for its states, without a head.

    Args:
        path: a folder as `save_pretrained` writes it, or a name on the hub.
        offline: never use the network.

    Returns:
        its tokenizer and its network, on the CPU, in float32, in eval mode.

    Raises:
        UserError: it cannot be opened, or would need code of its own.
    """
    check_path(path)
    with _quiet_transformers() as library:
        tokenizer = _read(path, library.AutoTokenizer.from_pretrained, offline)
        _check_tokenizer(path, tokenizer)
        read = partial(library.AutoModel.from_pretrained, use_safetensors=True, dtype="float32")
        network = _read(path, read, offline)
    return tokenizer, network.eval()


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


def _auto_class(library: Any, *, tags: bool, is_asked: bool) -> Any:
    """The library's class that opens a network with the head that its task needs.

    Args:
        library: `transformers`.
        tags: it gives a class to every word.
        is_asked: a prompt asks it.
    """
    if is_asked:
        return library.AutoModelForCausalLM
    if tags:
        return library.AutoModelForTokenClassification
    return library.AutoModelForSequenceClassification


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


def _chat_prompt(path: str, tokenizer: Any, message: str | None) -> str:
    """The chat that surrounds a text, by the checkpoint's template."""
    if message is None:
        raise UserError("model.chat=true needs model.prompt: what the model's user says")
    if not getattr(tokenizer, "chat_template", None):
        raise UserError(
            f"model.chat=true: the tokenizer of {path} has no chat template: expected that of a "
            f"model that was trained for chats, or model.chat=false with a prompt that is whole"
        )
    return chat_of(tokenizer, message)


def _scores_of_labels(
    network: Any, reader: PieceReader, pieces: Sequence[Sequence[int]]
) -> LabelScores | None:
    """Make a language model say these labels alone.

    Args:
        network: of whose head only their rows are left where each is of one piece.
        reader: its tokenizer and the prompt.
        pieces: of each label.

    Returns:
        What scores labels of several pieces; None where each has one.
    """
    refuse_what_sees_ahead(network, reader, [label[0] for label in pieces])
    if any(len(label) > 1 for label in pieces):
        return LabelScores(pieces)
    keep_labels_only(network, reader, [piece for (piece,) in pieces])
    return None


def _as_it_came(network: Any) -> Any:
    """The network once more, with the same weights and the library's own choice of attention."""
    untouched = copy_sharing_weights(network).eval()
    if getattr(untouched, "_supports_sdpa", False):
        untouched.set_attn_implementation("sdpa")
    return untouched


def _most_pieces(max_pieces: int | None, longest: int) -> int:
    """How many pieces of a text are read.

    Args:
        max_pieces: the setting; None: `LONGEST`, or as many as the model takes.
        longest: pieces of the longest text that it takes.

    Raises:
        UserError: the setting asks for more than the model takes.
    """
    if max_pieces is None:
        return min(longest, LONGEST)
    if max_pieces > longest:
        raise UserError(
            f"model.max_pieces={max_pieces}: this model takes texts of at most {longest} pieces"
        )
    return max_pieces


def _padding(network: Any, vocabulary: int) -> int | None:
    """The piece that fills up short texts; None where the network's settings name none."""
    piece = network.config.get_text_config().pad_token_id
    return piece if piece is not None and 0 <= piece < vocabulary else None


def longest_text(path: str, tokenizer: Any, network: Any) -> int:
    """The longest text that the network and its tokenizer take, in pieces."""
    positions = getattr(network.config, "max_position_embeddings", None) or UNLIMITED
    if positions < 0:  # XLNet's: as many as there are
        positions = UNLIMITED
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
            if not local_files_only:
                # asked first, with a short time-out: `transformers` itself retries for a minute
                HfApi().model_info(path, timeout=HUB_SECONDS)
            return read(path, trust_remote_code=False, local_files_only=local_files_only)
        except BaseException as error:  # a damaged file may make the library raise anything
            failure = foreign(error)
        if "trust_remote_code" in str(failure) or "custom code" in str(failure):
            reason = " ".join(str(failure).split())[:150]
            raise UserError(
                f"model.path={path}: it brings code of its own, which attnprobe never runs "
                f"({reason})"
            )

    assert failure is not None  # it was tried once at least
    reason = reason_of(failure, most=300)
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
    where = "" if Path(path).is_absolute() else f" in {Path.cwd()}"
    raise UserError(
        f"model.path={path}: there is no such folder{where}, and the hub gives nothing ({reason}). "
        f"Without a network: `hf download {path} --local-dir FOLDER` where there is one, and "
        f"model.path=FOLDER here"
    ) from failure
