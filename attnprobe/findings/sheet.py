"""The sheet that an auditor signs: every sentence that page, terminal and README begin with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnprobe.core.settings import listed
from attnprobe.evidence import deciding_words
from attnprobe.evidence.verdicts import Answer, Chip, Verdict
from attnprobe.findings.chip import doubt_of
from attnprobe.findings.groups import Group, Run
from attnprobe.findings.judgement import Card, Judgement, Summary
from attnprobe.findings.labels import labels_asked_for, texts_asked_for_labels
from attnprobe.findings.lines import NECESSITY, STABILITY, WORDS, Line
from attnprobe.findings.mechanisms import encoder_of, model_setting
from attnprobe.findings.track_record import errors_of
from attnprobe.results.directory import SECTION, WEIGHTS

ENCODERS = {
    "LSTMEncoder": "an LSTM, a recurrent model",
    "CNNEncoder": "a CNN, a convolutional model",
    "AverageEncoder": "a bag of words (no context)",
    "TransformerEncoder": "a transformer, trained from scratch",
    "GRUEncoder": "a GRU, a recurrent model",
    "NoEncoder": "a bag of words (no context)",
    "HierarchicalEncoder": "a hierarchical model (words within sentences)",
}
"""A class's name → what its models are called; other models go by their own name."""
PRETRAINED = ".PretrainedClassifier"
MOST_CLASSES = 8
"""Classes that are named at most."""
DIGITS = 12
"""Hexadecimal digits of a SHA-256 that are shown."""
AUDIT = "audit_"
"""How the experiments begin under which an audit files its runs."""
NO_TESTS = {"performance", "training", "teacher"}
"""Tables of a run that put no claim about attention to the test."""

TITLE = "Attention of {model} on {data}"
TITLE_OF_SEVERAL = "Attention of {count} models"
QUESTION = "May this attention be shown as the reason for the model's decisions?"

MEANINGS = {
    Chip.READ: "The highlighted words are mostly words that the decision rests on, in this "
    "training and in others. A weight does not say how much its word matters.",
    Chip.CARE: "The highlighted words are mostly words that the decision rests on. But {doubt}.",
    Chip.NO: "Most of the highlighting is not on words that the decision rests on. A reader who "
    "takes it for the reason is misled.",
    Chip.UNSHOWN: "It is not known whether the highlighted words are those that the decision rests "
    "on. That is no proof that they are not.",
    Chip.POOR: "The model is not shown to predict better than guessing. So it makes no decision "
    "that a highlighting could explain.",
}
"""What each answer means, in two sentences; `{doubt}` is what speaks against a yes."""
NEEDLESS = (
    "The model decides as well when every word has the same weight. So the weights may mean "
    "nothing, however plausible they look."
)
"""What it means that attention is not needed."""

SHOW = "Show it, with this sheet beside it."
SHOW_WITH_ANSWER = "Show it only together with this answer and what speaks against it."
TRAIN_AGAIN = (
    "Train it again before you show it: attnprobe audit, or +experiment=audit, does so and "
    "compares the trainings."
)
DO_NOT_SHOW = "Do not show it."
NOT_YET = "Do not show it yet"
SEVERAL_LABELS = (
    "Do not show it yet: whether words decide is asked of one decision, and here a text may have "
    "several labels. task=labels trains a model with an attention for each label, and asks it."
)
FINE_TUNE_AGAIN = (
    "Show it only with this answer: a checkpoint as it is has no second training. attnprobe audit "
    "with training=finetune trains it again and compares the trainings."
)
COMPARE = "attnprobe audit measures what to show instead."
BETTER_MODEL = (
    "Do not show it. Get a better model first: more texts, training.epochs=…, or another model "
    "(model=…)."
)
BETTER_CHECKPOINT = (
    "Do not show it. Get a better model first: fine-tune this checkpoint on texts of yours "
    "(training=finetune), or take another one (model.path=…)."
)

LIMITS = (
    "This holds for this model on these texts. It does not say that the model is right, or that "
    "people find the highlighted words convincing. Intervals are 95 %, over {units}."
)
GAUGE = "{quantity} (more than {asked:g} is needed)"
UNPROVEN = "(how often this test errs is unknown)"
IN_RUN = "attnprobe audit, or +experiment=audit, runs most of these tests"
IN_AUDIT = "the page says what each of them needs"


@dataclass(frozen=True)
class Entry:
    """A line of the sheet.

    Attributes:
        heading: a word or two.
        text: sentences.
    """

    heading: str
    text: str


@dataclass(frozen=True)
class Sheet:
    """What is signed of one model; page, terminal and README show these very sentences.

    Attributes:
        title: names model and data.
        group: the title of the group of runs.
        summary: the answer, and the answers to all questions.
        tested: what was tested: model, data, accuracy.
        asked: the question, its answer, what that means and what to do next.
        behind: how often such an answer is wrong, what to know, and the limits.
        further: how the untested questions get their answers.
    """

    title: str
    group: str
    summary: Summary
    tested: Sequence[Entry]
    asked: Sequence[Entry]
    behind: Sequence[Entry]
    further: str

    @property
    def entries(self) -> list[Entry]:
        """All lines, in order."""
        return [*self.tested, *self.asked, *self.behind]

    def text(self, heading: str) -> str:
        """The sentences under a heading; empty where it is not there."""
        return next((entry.text for entry in self.entries if entry.heading == heading), "")


def sheet_of(group: Group, card: Card) -> Sheet:
    """The sheet of the model of a group of runs.

    Args:
        group: runs that differ in their seed alone.
        card: what is decided about them.
    """
    run = tested_run(group)
    has_trainings = has_several_trainings(card)
    is_audit = has_trainings or run.experiment.startswith(AUDIT)
    tested = [
        Entry("model", model_in_words(group, run)),
        Entry("data", data_in_words(run)),
        Entry("accuracy", accuracy_in_words(run)),
    ]
    asked = [
        Entry("question", QUESTION),
        Entry("answer", card.summary.words),
        Entry("means", meaning_of(card)),
        Entry("to do", advice_of(card, run, is_audit=is_audit)),
    ]
    units = "test texts and trainings" if len(group.runs) > 1 else "test texts alone"
    errors = errors_of(
        card.chip, _line(card, WORDS).verdict, encoder_of(run.manifest), is_audit=has_trainings
    )
    behind = [
        Entry("errors", errors),
        Entry("to know", remarks_on(run)),
        Entry("limits", LIMITS.format(units=units)),
    ]
    return Sheet(
        title=title_of([group]),
        group=group.title,
        summary=card.summary,
        tested=tested,
        asked=asked,
        behind=[entry for entry in behind if entry.text],
        further=IN_AUDIT if is_audit or has_several_labels(run) else IN_RUN,
    )


def title_of(groups: Sequence[Group]) -> str:
    """What heads a page about these models."""
    if len(groups) != 1:
        return TITLE_OF_SEVERAL.format(count=len(groups))
    (group,) = groups
    model = f"{group.model} ({group.note})" if group.note else group.model
    return TITLE.format(model=model, data=group.data)


def tested_run(group: Group) -> Run:
    """The run that the sheet describes: the first with probes."""
    return next((run for run in group.runs if set(run.numbers.probes) - NO_TESTS), group.runs[0])


def has_several_trainings(card: Card) -> bool:
    """Whether the model was trained several times, as an audit does where it trains."""
    return _line(card, STABILITY).is_tested


def is_taken_as_it_is(run: Run) -> bool:
    """Whether the model is a checkpoint that was not trained here."""
    return run.manifest.get("training", {}).get("training", {}).get("epochs") == 0


def _line(card: Card, line: Line) -> Judgement:
    return next(judgement for judgement in card.lines if judgement.place == line.place)


def gauge_title(line: Judgement) -> str:
    """What the number on the scale is, and what it has to be above."""
    return GAUGE.format(quantity=deciding_words.ON_GAUGE, asked=line.asked)


# What was tested


def model_in_words(group: Group, run: Run) -> str:
    """Name, kind, trainings and digest of a model, and which attention is examined."""
    parts = [f"{run.model}{_kind_in_words(run)}"]
    seeds = ", ".join(map(str, group.seeds))
    if len(group.runs) > 1:
        parts.append(f"{len(group.runs)} trainings (seeds {seeds})")
    record = run.manifest["files"].get(WEIGHTS)
    if record is None:
        parts.append(f"run {run.run_id}")
    else:
        parts.append(f"weights {_digest(record)}")
    return f"{'; '.join(parts)}."


def _kind_in_words(run: Run) -> str:
    """What kind of model it is; empty where only its name is known."""
    model = run.manifest.get("training", {}).get("model", {})
    if model_setting(run.manifest, "_target_").endswith(PRETRAINED):
        layer = model.get("layer", -1)
        heads = model.get("heads")
        where = "the last layer" if layer == -1 else f"layer {layer}"
        which = "mean of all heads" if heads is None else f"heads {', '.join(map(str, heads))}"
        return f", a pretrained transformer; attention of {where}, {which}"
    kind = model_setting(run.manifest, "encoder", "_target_").rpartition(".")[2]
    if kind not in ENCODERS:
        return ""
    return f": {ENCODERS[kind]}, with {model.get('attention_name', '')} attention"


def data_in_words(run: Run) -> str:
    """The data's file, columns, rows used of rows given, classes, and the date of the test."""
    sentences = [f"{_source_in_words(run)}."]
    rows = _rows_in_words(run.manifest.get("counts", {}))
    if rows:
        sentences.append(f"{rows}.")
    names = run.manifest.get("classes", [])
    labels = labels_asked_for(run)
    if labels:
        answers = " or ".join(names)
        asked = f"one of {len(labels)} labels" if len(labels) > 1 else f"the label {labels[0]}"
        sentences.append(f"A row is a text and {asked}, answered {answers}.")
    elif names:
        more = f" and {len(names) - MOST_CLASSES:,} more" if len(names) > MOST_CLASSES else ""
        sentences.append(f"{len(names)} classes: {', '.join(names[:MOST_CLASSES])}{more}.")
    finished = str(run.manifest.get("finished", ""))[:10]
    if finished:
        sentences.append(f"Tested on {finished}.")
    return " ".join(sentences)


def _source_in_words(run: Run) -> str:
    """The files by name and digest, and the columns that were read; else the data set's name."""
    files: Mapping[str, Mapping[str, object]] = run.manifest.get(SECTION, {}).get("files", {})
    data = run.manifest.get("training", {}).get("data", {})
    path = data.get("path")
    texts = f"column {data.get('text')}"
    if data.get("text2") is not None:
        texts = f"columns {data.get('text')} and {data.get('text2')}"
    columns = f", {texts}, labels in {_label_columns(data)}"
    if files:
        named = [f"{record['name']} ({_digest(record)})" for record in files.values()]
        return f"{listed(dict.fromkeys(named))}{columns}"
    if path is None:
        return run.data
    file = path.get("train", path.get("test", "")) if isinstance(path, Mapping) else path
    return f"{Path(str(file)).name}{columns}"


def _label_columns(data: Mapping[str, Any]) -> str:
    """The file's column of the labels, or one for each label."""
    source = data.get("source", {})
    if "one_per_label" not in source:
        return str(data.get("label"))
    return str(source["column"] or listed(source["one_per_label"] or ()))


def _digest(record: Mapping[str, object]) -> str:
    return f"sha256 {str(record['sha256'])[:DIGITS]}"


def _rows_in_words(counts: Mapping[str, Mapping[str, int]]) -> str:
    """How many rows were given, used, and used to test; empty where they were not counted."""
    splits = {name: count for name, count in counts.items() if "kept" in count}
    if not splits:
        return ""
    used = sum(count["kept"] for count in splits.values())
    given = sum(count.get("loaded", 0) for count in splits.values())
    tested = splits.get("test", {}).get("kept", 0)
    of_given = f" of {given:,}" if given else ""
    return f"{used:,}{of_given} rows used, {tested:,} of them to test"


def accuracy_in_words(run: Run) -> str:
    """The accuracy with its interval, beside that of always naming the largest class."""
    if run.quality is None:
        return "Not one number here: a text may have several labels, or candidates of its own."
    texts = texts_asked_for_labels(run)
    if texts is None:
        return f"{run.quality.in_short()}."
    units = f"answers about labels of {texts:,} test texts"
    return f"{run.quality.in_short(units)}."


# What was found


def meaning_of(card: Card) -> str:
    """What the answer means, in two sentences."""
    if card.chip is Chip.UNSHOWN and _line(card, NECESSITY).answer is Answer.NO:
        return NEEDLESS
    doubt = doubt_of(card.judgements) if card.chip is Chip.CARE else None
    return MEANINGS[card.chip].format(doubt=doubt.clause if doubt is not None else "")


def has_several_labels(run: Run) -> bool:
    """Whether a text may have any number of classes at once, which an audit refuses."""
    return run.manifest.get("training", {}).get("data", {}).get("multi_label") is True


def advice_of(card: Card, run: Run, *, is_audit: bool) -> str:
    """What to do next: show it, show something else, or do not show it.

    Args:
        card: what is decided about the model.
        run: the one that the sheet describes.
        is_audit: whether an audit examined it, which looks for something better to show.
    """
    if card.chip is Chip.POOR:
        return BETTER_CHECKPOINT if is_taken_as_it_is(run) else BETTER_MODEL
    if card.chip is Chip.READ:
        return SHOW
    instead = " ".join(f"{method}." for method in card.summary.instead)
    if card.chip is Chip.CARE:
        again = FINE_TUNE_AGAIN if is_taken_as_it_is(run) else TRAIN_AGAIN
        return _advice_with_care(card, instead, again)
    if card.chip is Chip.UNSHOWN and has_several_labels(run):
        return SEVERAL_LABELS
    if card.chip is Chip.UNSHOWN:
        return f"{_what_is_lacking(card)} {instead}".strip()
    if not instead and not is_audit:
        instead = COMPARE
    return f"{DO_NOT_SHOW} {instead}".strip()


def _advice_with_care(card: Card, instead: str, again: str) -> str:
    """What to do with a yes that something speaks against.

    Args:
        card: with the chip *With care*.
        instead: what is better than the attention, in sentences; or empty.
        again: how the model is trained once more.
    """
    doubt = doubt_of(card.judgements)
    has_grave_doubt = doubt is not None and doubt.is_grave
    has_one_training = _line(card, STABILITY).answer is Answer.UNTESTED
    # another training settles what was not looked at, and no grave doubt
    advice = again if has_one_training and not has_grave_doubt else SHOW_WITH_ANSWER
    if not instead:
        return advice
    return f"{advice} Better: {instead[0].lower()}{instead[1:]}"


def _what_is_lacking(card: Card) -> str:
    """What keeps the question from its answer."""
    word = _line(card, WORDS)
    if _line(card, NECESSITY).answer is Answer.NO:
        return f"{DO_NOT_SHOW} Equal weights, which single out no word, are as good a model."
    if word.answer is Answer.UNTESTED:
        return f"{NOT_YET}: run the test first ({word.reason})."
    is_across = word.low <= word.asked <= word.high
    if word.verdict is Verdict.CANNOT_DECIDE and is_across:
        return f"{NOT_YET}: the interval reaches across what is needed; more test texts narrow it."
    return f"{NOT_YET}: {word.reason}."


# What stands behind it


OF_SENTENCES = (
    "attention was looked at over sentences, whose weight is the sum of their words': what is said "
    "of words here holds for sentences"
)


def remarks_on(run: Run) -> str:
    """What a reader has to know: where the attention is, and what the data are warned of."""
    checks = run.manifest.get(SECTION, {}).get("checks", ())
    warned = [str(check["name"]) for check in checks if check["warns"]]
    remarks = [*filter(None, [run.warning, run.attention_on])]
    if model_setting(run.manifest, "unit") == "sentence":
        remarks.append(OF_SENTENCES)
    if warned:
        remarks.append(f"warnings about the data, which the page explains: {', '.join(warned)}")
    return " ".join(_as_sentence(remark) for remark in remarks)


def _as_sentence(clause: str) -> str:
    """A clause with a capital and a full stop."""
    return f"{clause[0].upper()}{clause[1:]}."
