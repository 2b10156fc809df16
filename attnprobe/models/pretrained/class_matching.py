"""Which output of a checkpoint is which class of the data."""

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from attnprobe.core.batch import Task
from attnprobe.core.errors import UserError
from attnprobe.core.settings import listed


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


LANGUAGE_HEADS = ("CausalLM", "LMHeadModel", "ConditionalGeneration")
"""What an architecture's name ends in that says which piece comes next."""


def refuse_prompt(path: str, settings: Any) -> None:
    """Refuse a checkpoint that cannot be asked by a prompt."""
    heads = settings.architectures or []
    if not heads or any(name.endswith(LANGUAGE_HEADS) for name in heads):
        return
    remedy = "or one of …ForSequenceClassification without model.prompt"
    if any(name.endswith("SequenceClassification") for name in heads):
        remedy = "or this one without model.prompt and model.labels: it is a classifier already"
    raise UserError(
        f"model.path={path}: it is a {heads[0]}, which does not say what comes after a prompt: "
        f"expected a causal language model (…ForCausalLM), {remedy}"
    )


def refuse_no_attention(path: str, settings: Any) -> None:
    """Refuse a network without attention: none of its settings speaks of heads."""
    if any("head" in name for name in settings.get_text_config().to_dict()):
        return
    if hasattr(settings.get_text_config(), "num_attention_heads"):
        return
    raise UserError(
        f"model.path={path}: {settings.model_type} has no attention, so that there is nothing to "
        f"examine: expected a transformer"
    )


def refuse_head(path: str, settings: Any, task: Task) -> None:
    """Refuse a checkpoint that does not predict classes of texts as the data have them.

    Only a checkpoint that is taken as it is needs to; training gives it another head.
    """
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

    if settings.problem_type == "regression":
        raise UserError(
            f"model.path={path}: its head gives {settings.num_labels} numbers and no classes "
            f"(problem_type=regression): {expected}; if they are classes, correct problem_type in "
            f"its config.json"
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


def sides_of(threshold: float, classes: Sequence[str]) -> Matching:
    """The two classes of a score: below the threshold or at it, and above."""
    low, high = classes
    return Matching(
        order=[0, 1],
        classes=[low, high],
        sentence=f"scores above {threshold:g} are {high}, the others {low}",
    )


def every_label(classes: Sequence[str], labels: Mapping[str, str]) -> Matching:
    """The classes of a model that is asked: the data's, then those whose words it knows besides.

    Args:
        classes: the data's.
        labels: class → the word that says it.
    """
    names = [*classes, *(name for name in labels if name not in classes)]
    return Matching(order=list(range(len(names))), classes=names)


def match_classes(
    path: str,
    settings: Any,
    classes: Sequence[str],
    *,
    trains: bool,
    in_order: bool,
    tags: bool = False,
) -> Matching:
    """Find which output of a checkpoint is each of the classes.

    Args:
        path: the checkpoint, for messages.
        settings: its configuration.
        classes: the data's classes.
        trains: it will be trained. On classes that are not exactly its own it gets a new head.
        in_order: the data's classes are in the order of a checkpoint that has no names for its own.
        tags: the checkpoint gives a class to every word.

    Returns:
        The first of `_ways_to_match` that finds every class; an empty order for a new head.

    Raises:
        UserError: a class is not found, and the checkpoint is not trained.
    """
    labels, fault = labels_of(settings)
    if fault and in_order and len(classes) == len(settings.id2label):
        labels = {number: f"LABEL_{number}" for number in range(len(classes))}
    elif fault and trains:
        return Matching([], list(classes))
    elif fault:
        raise UserError(
            f"model.path={path}: the tables of labels in its config.json {fault}. Correct them, or "
            f"give the class of each output with {order_setting(classes)}, in the order of the "
            f"outputs"
        )
    for way, names in _ways_to_match(labels, classes, in_order).items():
        prefix = "label" if way == "number" else ""
        outputs = [_output_called(name, names, prefix) for name in classes]
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
        remedy = f"{order_setting(classes)} in the order of its training, all {len(labels)} of them"
    if tags:
        remedy = (
            f"data.token=COLUMN and data.label=COLUMN: it gives a class to every word, so that a "
            f"row has a text, the number of one of its words, from 0, and the label of that word. "
            f"If the labels are those of words, {remedy}"
        )
    raise UserError(
        f"model.path={path}: its labels are {', '.join(labels.values())}, those of the data "
        f"{', '.join(classes)}. Say which is which with {remedy}, or train it on them with "
        f"training=finetune"
    )


def order_setting(classes: Sequence[str]) -> str:
    """The setting that gives the outputs' classes in their order, as it is typed.

    >>> print(order_setting(["no", "yes"]))
    'data.labels=[no, yes]'
    """
    return shlex.quote(f"data.labels=[{', '.join(classes)}]")


class OutputNames(NamedTuple):
    """What a checkpoint calls its outputs.

    Attributes:
        names: the name of each output.
        fault: why they are not known, as the end of a sentence; empty where they are.
    """

    names: dict[int, str]
    fault: str = ""


def labels_of(settings: Any) -> OutputNames:
    """What a checkpoint calls its outputs, by its two tables: `id2label` and `label2id`.

    Where one of them has no names, it is the other one. Both may be wrong: people set one by hand,
    copy it from another model, or count from 1.
    """
    count = len(settings.id2label)
    by_number = {int(number): str(label) for number, label in settings.id2label.items()}
    by_name: dict[int, str] = {}
    if isinstance(settings.label2id, Mapping):
        for label, number in settings.label2id.items():
            if str(number).isdecimal():
                by_name[int(number)] = str(label)

    complete = [table for table in (by_number, by_name) if set(table) == set(range(count))]
    named = [table for table in complete if not _is_unnamed(table)]
    if len(named) == 2 and _without_case(by_number) != _without_case(by_name):
        fault = (
            f"contradict each other: id2label is {_table(by_number)}, label2id {_table(by_name)}"
        )
        return OutputNames({}, fault)
    if not complete:
        outputs = listed([str(number) for number in range(count)])
        return OutputNames({}, f"name the outputs {_table(by_number)}, and its head has {outputs}")
    return OutputNames((named or complete)[0])


def _without_case(labels: Mapping[int, str]) -> dict[int, str]:
    """The names in small letters, unless two of them are then the same."""
    plain = {number: _plain(name) for number, name in labels.items()}
    return plain if len(set(plain.values())) == len(plain) else dict(labels)


def _table(labels: Mapping[int, str]) -> str:
    return "{" + ", ".join(f"{number}: {name}" for number, name in sorted(labels.items())) + "}"


def _is_unnamed(labels: Mapping[int, str]) -> bool:
    """Whether the labels are numbers, or `LABEL_0`, `LABEL_1`, …, as the library makes them up."""
    return all(_plain(label).removeprefix("label") == str(place) for place, label in labels.items())


def _output_called(name: str, names: Mapping[int, str], prefix: str) -> int | None:
    """The output of this name: the very name, or the one that is alike; None: none, or several."""
    exact = [place for place, label in names.items() if label == name]
    wanted = _plain(name).removeprefix(prefix)
    alike = [place for place, label in names.items() if _plain(label) == wanted]
    matches = exact or alike
    return matches[0] if len(matches) == 1 else None


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

    if in_order and _is_unnamed(labels):
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
