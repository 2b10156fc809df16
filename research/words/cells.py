"""The models that are asked: a rule, an encoder, an attention, a draw, and how it is asked."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random
from typing import Literal, get_args

from attnprobe.core.errors import UserError
from attnprobe.evidence import deciding_words
from research.grammar import ATTENTIONS, RuleSpec, is_learnable
from research.grammar.attentions import BuiltAttention
from research.planted import WITHOUT_CONTEXT

Mode = Literal["run", "audit"]
"""`run`: one run with the test that the chip goes by. `audit`: the whole study that
`attnprobe audit` carries out, with further seeds, equal weights and all of its probes."""

ENCODERS: dict[str, tuple[str, ...]] = {
    "average": ("model=average", "model.width=48"),
    "cnn": ("model=cnn", "model.encoder.filters=16"),
    "lstm": ("model=lstm", "model.width=32"),
    "transformer": ("model=transformer", "model.width=32"),
}
"""Own encoders, small enough to be trained within seconds."""
OWN_TRAINING: tuple[str, ...] = (
    "training.epochs=30",
    "++training.patience=8",
    "training.gradient_clip=5",
    "training.recipe.reduction=mean",
    "training.recipe.optimizer.lr=0.003",
    "training.recipe.selection_metric=f1_macro",
)
"""Steps large enough for few texts; the metric does not let a small class be forgotten."""
FINE_TUNING: tuple[str, ...] = (
    "training.epochs=6",
    "++training.patience=2",
    "training.recipe.optimizer.lr=1e-4",
    "training.recipe.selection_metric=f1_macro",
)
CHECKPOINT_SHARE = 2
"""A pretrained model, whose passes are slow, is asked about one in so many of the test texts."""
CHECKPOINT_PRODUCTS = "bfloat16"
"""What a pretrained model multiplies matrices in while it is asked: it takes half the time, and all
chips of 25 own models are the same in both precisions."""
STOP_AT = 0.99
"""Macro F1 on the validation texts from which an epoch is good enough."""

EARLY = ("training.recipe.skip_epochs=0", "++training.patience=null")
MISDIRECTED = ("+training.recipe.objective._target_=research.objectives.Misdirection",)
LEARNED: dict[str, BuiltAttention] = {
    "early_1": BuiltAttention((*EARLY, "training.epochs=1"), "learned"),
    "early_2": BuiltAttention((*EARLY, "training.epochs=2"), "learned"),
    "deceived": BuiltAttention(("training=deceive",), "avoiding"),
    "misled": BuiltAttention(MISDIRECTED, "avoiding"),
}
"""Attentions that are learned: of one or two epochs; penalised for weight on the deciding words;
supervised on a word that does not decide."""
OWN_ATTENTIONS: Mapping[str, BuiltAttention] = ATTENTIONS | LEARNED
"""The attentions of own encoders."""
CHECKPOINT_ATTENTIONS: dict[str, BuiltAttention] = {
    **{name: attention for name, attention in LEARNED.items() if name.startswith("early")},
    "learned": BuiltAttention((), "learned"),
    **{
        f"head_{number}": BuiltAttention((f"model.heads=[{number}]",), "learned")
        for number in range(12)
    },
    "supervised": BuiltAttention(("training=finetune_supervise",), "learned"),
    "misled": BuiltAttention(MISDIRECTED, "avoiding"),
    "deceived": BuiltAttention(("training=finetune_deceive",), "avoiding"),
    "right_95": BuiltAttention(("model.given=rationale",), "right"),
    "first": BuiltAttention(("model.given=first",), "blind"),
    "common": BuiltAttention(("model.given=common_word",), "blind"),
    "random": BuiltAttention(("model.given=random",), "blind"),
    "uniform": BuiltAttention(("model.given=uniform",), "blind"),
}
"""The attentions of a pretrained model; `head_…` is a single head of its last layer."""


@dataclass(frozen=True)
class Cell:
    """A model to be trained and asked.

    Attributes:
        rule: of its texts.
        encoder: of `ENCODERS`, or the folder of a checkpoint.
        attention: of `OWN_ATTENTIONS`; of a checkpoint one of `CHECKPOINT_ATTENTIONS`.
        draw: of texts, weights and everything random.
        mode: how it is asked.
    """

    rule: RuleSpec
    encoder: str
    attention: str
    draw: int
    mode: Mode

    def __post_init__(self) -> None:
        if self.attention not in self.attentions:
            raise UserError(
                f"attention {self.attention} of {self.encoder}: expected one of "
                f"{', '.join(self.attentions)}"
            )
        if self.encoder not in ENCODERS and not (Path(self.encoder) / "config.json").exists():
            raise UserError(
                f"encoder {self.encoder}: expected {', '.join(ENCODERS)}, or the folder of a "
                "checkpoint with its config.json"
            )

    @property
    def is_checkpoint(self) -> bool:
        """Whether the model is pretrained."""
        return self.encoder not in ENCODERS

    @property
    def attentions(self) -> Mapping[str, BuiltAttention]:
        """The attentions that its encoder may have."""
        return CHECKPOINT_ATTENTIONS if self.is_checkpoint else OWN_ATTENTIONS

    @property
    def built(self) -> BuiltAttention:
        """What its attention is by construction."""
        return self.attentions[self.attention]

    @property
    def encoder_name(self) -> str:
        """The encoder's name, of a checkpoint its folder's."""
        return Path(self.encoder).name

    @property
    def name(self) -> str:
        """Tells it apart from all other cells."""
        parts = (self.rule.name, self.encoder_name, self.attention, str(self.draw), self.mode)
        return "--".join(parts)

    @property
    def is_possible(self) -> bool:
        """Whether the encoder can learn the rule under the attention, which means something."""
        if self.encoder in WITHOUT_CONTEXT and self.built.standing == "avoiding":
            return False  # it sees the attended words alone
        attention = self.attention if self.attention in ATTENTIONS else "learned"
        return is_learnable(self.rule, self.encoder, attention) and self.has_head

    @property
    def has_head(self) -> bool:
        """Whether a checkpoint has the head that the attention names."""
        if not self.attention.startswith("head_"):
            return True
        content = json.loads((Path(self.encoder) / "config.json").read_text(encoding="utf-8"))
        return int(self.attention.removeprefix("head_")) < content["num_attention_heads"]

    def command_line(self, output: Path) -> list[str]:
        """The settings of its run or audit, as a user types them.

        Args:
            output: folder of its runs.
        """
        texts = self.rule.test_size
        tests: tuple[str, ...] = (deciding_words.TESTED_BY,)
        if self.mode == "audit":
            tests = ("+experiment=audit", "study.minutes=null")
        model = ENCODERS.get(self.encoder, ())
        training = OWN_TRAINING
        if self.is_checkpoint:
            tests += (f"probe.swaps.products={CHECKPOINT_PRODUCTS}",)
            model = ("model=pretrained", f"model.path={self.encoder}", "training=finetune")
            training = FINE_TUNING
            texts //= CHECKPOINT_SHARE
        return [
            *tests,
            "data=grammar",
            f"data.source.rule='{self.rule.name}'",
            f"data.source.seed={self.draw}",
            f"data.source.test_size={texts}",
            *model,
            *training,
            f"+training.stop_at={STOP_AT}",
            *self.built.overrides,
            f"seed={self.draw}",
            f"output={output}",
            "figures=false",
            "trainer.accelerator=cpu",
        ]


@dataclass(frozen=True)
class Grid:
    """Cells of every rule, encoder, attention and draw.

    Attributes:
        rules: of the texts.
        encoders: see `Cell`.
        attentions: names; empty: all that an encoder may have.
        draws: see `Cell`.
        mode: see `Cell`.
    """

    rules: Sequence[RuleSpec]
    encoders: Sequence[str]
    attentions: Sequence[str]
    draws: Sequence[int]
    mode: Mode

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise UserError(f"mode {self.mode}: expected one of {', '.join(get_args(Mode))}")

    def cells(self) -> Iterator[Cell]:
        """The possible cells: draw by draw and rule by rule, so that a part of them is even."""
        for draw, rule, encoder in product(self.draws, self.rules, self.encoders):
            choices = OWN_ATTENTIONS if encoder in ENCODERS else CHECKPOINT_ATTENTIONS
            for attention in self.attentions or choices:
                if attention not in choices:
                    continue
                cell = Cell(rule, encoder, attention, draw, self.mode)
                if cell.is_possible:
                    yield cell


def sample_of(cells: Sequence[Cell], count: int, key: str) -> list[Cell]:
    """So many cells, drawn by a key before anything is known of them, in the order of the draw.

    The first of them are a fair part of all, wherever the work is cut short.

    Args:
        cells: to draw from.
        count: cells; all where there are fewer.
        key: of the draw, such as the hash of the commit that seals the plan.
    """
    order = Random(f"{key}:sample").sample(range(len(cells)), len(cells))
    return [cells[number] for number in order[:count]]
