"""A classifier of `transformers` as a model that probes can examine: one weight per word."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import Annotated, Any, Literal

import torch
from annotated_types import Ge, MinLen
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from attnprobe.core.batch import Batch, Outputs, Task
from attnprobe.core.errors import UserError, reason_of
from attnprobe.core.readout import Readout
from attnprobe.core.settings import Name, Number, Positive, Whole
from attnprobe.data.batching import TextSplit, short_enough
from attnprobe.data.data_warnings import Check
from attnprobe.data.examples import Ragged
from attnprobe.data.pieces import PieceReader
from attnprobe.models import controls
from attnprobe.models.base import AtSite, Layers, Summed, membership
from attnprobe.models.linearised_layers import Linearised
from attnprobe.models.pretrained.attention_hooks import (
    LIMITS,
    AttentionRecord,
    Examination,
    LastLayer,
    Pass,
    check_places,
    examine_attention,
)
from attnprobe.models.pretrained.checkpoint import LARGE, Checkpoint, open_checkpoint
from attnprobe.models.pretrained.class_matching import order_setting
from attnprobe.models.pretrained.heads import ScoreHead
from attnprobe.models.pretrained.label_check import MixedUp, mixed_up
from attnprobe.models.pretrained.label_scores import LabelScores
from attnprobe.models.pretrained.linearised import linearise
from attnprobe.models.pretrained.reference import Comparison, Reference, evenly_spaced
from attnprobe.models.pretrained.rereading import reread
from attnprobe.models.pretrained.site import Lifting, Queries, Selection, Site, word_weights
from attnprobe.models.recipe import Recipe
from attnprobe.models.trained import TrainedModel, without_decay_of_vectors

JUDGED = 200
"""Texts whose predictions are compared with their labels before the tests begin."""
LABELS_ALIKE = 0.9
"""Least share of decisions that first pieces of labels have to account for, without a warning."""
CONTROLS: dict[str | None, type[controls.FocusedAttention | controls.RandomAttention]] = {
    "rationale": controls.RationaleAttention,
    "first": controls.FirstAttention,
    "random": controls.RandomAttention,
    "common_word": controls.CommonWordAttention,
}
"""The attentions over words that `given` may name; `uniform` is one over pieces."""


class PretrainedClassifier(TrainedModel):
    """A sequence classifier of `transformers`.

    Its attention is the mean, per word, of the rows of a site.

    Args:
        name: what it is called in tables and paths.
        path: a folder as `save_pretrained` writes it, or a name on the hub.
        class_names: names of the data's classes, in their order.
        task: one class per text, or any subset of the labels.
        trains: it will be fine-tuned (else its labels must hold the data's; `class_names` of the
            model has all of them).
        tags: a head that gives a class to every word is kept even though the model trains, as it is
            where nothing is trained: for a run that is read again.
        layer: see `attnprobe.models.pretrained.site.Site`.
        heads: see `Site`.
        rows: see `Site`.
        max_pieces: longest text in pieces; None: 512, or what the model takes if that is less.
        special_tokens: what becomes of a special token that is spelled out in a text (`</s>`): it
            is `read` as one, as the library does by itself, or as its `characters`.
        removal: what leave-one-out does with a word: `delete` takes its pieces out, `characters`
            its characters, after which the tokenizer reads what is left; `mask` puts the mask in
            their place. Where a word is deleted for another test it goes in the same way.
        given: an attention that is put into every row, in training and after: `uniform`, the same
            weight for every piece that the row may see (Wiegreffe & Pinter 2019, section 3.2), or
            one over the words as `attnprobe.models.controls` has it, a word's weight spread over
            its pieces and none on special tokens; None: the network's own.
        given_at: the layers that it is put into, `last` or `all`.
        short_way: compute only what follows the last layer's attention, where that agrees with
            whole passes.
        prompt: what every text is put into, in place of `{text}`; the checkpoint is then a causal
            language model, and the classes are pieces that may follow. `\\n` is a new line.
        chat: the prompt is what a user says in a chat, and the checkpoint's chat template surrounds
            it; the labels are how the model's answer begins.
        labels: class → the word that says it, with a prompt. The score of one of several pieces is
            the sum of their log-probabilities (`attnprobe.models.pretrained.label_scores`).
        threshold: the checkpoint gives one score (regression, a reward, relevance): texts above
            this are of the second class.
        scale: the unit of these scores' distances; None: their standard deviation over the texts.
        in_order: `class_names` are in the order of a checkpoint whose own are LABEL_0, LABEL_1, …
        offline: a name on the hub is looked up in its cache alone.
        class_weight: see `TrainedModel`.
        recipe: see `TrainedModel`.

    Raises:
        UserError: the checkpoint cannot be opened, or does not fit the other settings.
    """

    has_layers = True

    def __init__(
        self,
        *,
        name: Name,
        path: str,
        class_names: Sequence[str],
        task: Task = Task.SINGLE_LABEL,
        trains: bool = False,
        tags: bool = False,
        layer: int = -1,
        heads: Annotated[Sequence[Whole], MinLen(1)] | None = None,
        rows: Literal["pooled", "all"] = "pooled",
        max_pieces: Annotated[int, Ge(8)] | None = None,
        special_tokens: Literal["read", "characters"] = "read",
        removal: Literal["delete", "characters", "mask"] = "delete",
        given: Literal["uniform", "rationale", "first", "random", "common_word"] | None = None,
        given_at: Literal["last", "all"] = "last",
        short_way: bool = True,
        prompt: str | None = None,
        chat: bool = False,
        labels: Mapping[Any, str] | None = None,
        threshold: Number | None = None,
        scale: Positive | None = None,
        in_order: bool = False,
        offline: bool = False,
        class_weight: Float[Tensor, "classes"] | None = None,
        recipe: Recipe | None = None,
    ) -> None:
        if (prompt is None) != (labels is None):
            raise UserError(
                "model.prompt and model.labels belong together: give the prompt around the text, "
                "and the words of the classes"
            )
        _check_heads(heads)
        checkpoint = open_checkpoint(
            path,
            class_names,
            task,
            trains=trains,
            tags=tags,
            max_pieces=max_pieces,
            special_tokens=special_tokens,
            keeps_characters=removal == "characters",
            offline=offline,
            in_order=in_order,
            prompt=None if prompt is None else prompt.replace("\\n", "\n"),
            chat=chat,
            threshold=threshold,
            labels={str(label): word for label, word in (labels or {}).items()},
        )
        task_of_head = task if threshold is None else Task.SCORE
        super().__init__(len(checkpoint.classes), task_of_head, class_weight, recipe)

        _check_given(given, checkpoint)
        _check_removal(removal, checkpoint, path, task)

        self.site = Site(layer, heads, rows)
        self.class_names = checkpoint.classes
        self.matched = checkpoint.matched
        self.tags = checkpoint.tags
        self.network: Any = checkpoint.network.train()
        self.network.config.use_cache = False
        self.reader: PieceReader = checkpoint.reader
        self.is_asked = prompt is not None
        self.trains = trains
        self.order_is_given = in_order
        self.order = checkpoint.order
        self.mask = checkpoint.mask
        self.padding = checkpoint.padding
        self.library = checkpoint.library
        self.label_scores = checkpoint.label_scores
        self.comparison: Comparison | None = None
        self.path = path
        self.removal = removal
        self.takes_short_way = short_way
        self.scale = scale
        self.given = given
        self.given_at = given_at
        self.control = CONTROLS[given](0) if given in CONTROLS else None
        self.has_kinds = (
            "token_type_ids" in self.reader.tokenizer.model_input_names
            and "token_type_ids" in signature(self.network.forward).parameters
        )

        # known after `prepare`
        self.precision = torch.float32
        self.sites = []
        self.site_of_name: dict[str, Site] = {}
        self.examination: Examination | None = None
        self.tail: LastLayer | None = None

    def padded(
        self,
        batch: Batch,
    ) -> tuple[Int[Tensor, "batch pieces"], Bool[Tensor, "batch pieces"]]:
        """The pieces with the network's own padding, and which of them are not padding."""
        if batch.pieces is None or batch.piece_word is None:
            raise UserError(
                "this model reads pieces of words, and the batch has none: its data have to be "
                "read by it first"
            )
        mask = batch.piece_word != -2
        padding = self.padding
        if padding is None:
            padding = self._absent_piece(batch.pieces[mask])
        return torch.where(mask, batch.pieces, padding), mask

    def _absent_piece(self, pieces: Int[Tensor, "pieces"]) -> int:
        """A piece that no text of the batch has, as the network's padding.

        Its settings name none, and the library then reads a prediction from the very last piece.
        With this one it does so for texts of different lengths.
        """
        vocabulary = self.network.get_input_embeddings().num_embeddings
        padding = int(torch.bincount(pieces.flatten(), minlength=vocabulary).argmin())
        self.network.config.get_text_config().pad_token_id = padding
        return padding

    def run(
        self,
        batch: Batch,
        attention_pass: Pass,
        states: list[Tensor] | None = None,
    ) -> Float[Tensor, "batch classes"]:
        """Run the network once, under the attention that is given, if any.

        Args:
            batch: the texts.
            attention_pass: what happens to the attention.
            states: the states before the first layer and after each are added to this list.

        Returns:
            Logits of the data's classes.
        """
        ids, mask = self.padded(batch)
        if self.label_scores is not None:
            return self.label_scores.run(self.network, ids, mask, attention_pass, states)
        arguments = {"input_ids": ids, "attention_mask": mask.long()}
        if self.has_kinds and batch.piece_kind is not None:
            arguments["token_type_ids"] = batch.piece_kind

        # until the network is examined it is not known which of its attentions is the last
        if self.examination is not None and self.given is not None:
            calls = self.examination.calls
            attention_pass.imposed_at = range(calls) if self.given_at == "all" else [calls - 1]
            attention_pass.imposed = self._given_per_piece(batch)

        with attention_pass.active():
            if states is None:
                output = self.network(**arguments)
            else:
                output = self.network(**arguments, output_hidden_states=True)
                states += output.hidden_states

        logits: Tensor = output.logits
        if logits.ndim == 3:  # at every piece
            logits = logits[torch.arange(len(batch), device=ids.device), self.piece_read(batch)]
        return logits[:, self.order]

    def _given_per_piece(self, batch: Batch) -> Float[Tensor, "batch pieces"]:
        """The attention that is given, over pieces: a word's weight is spread over its pieces."""
        if self.control is None:
            return torch.ones_like(self.padded(batch)[0], dtype=self.network.dtype)
        member = membership(batch)
        share = self.control.given(batch) / member.sum(1).clamp_min(1)
        return torch.einsum("bs,bps->bp", share, member)

    def piece_read(self, batch: Batch) -> Int[Tensor, "batch"]:
        """The piece that a prediction is read from, of a network that predicts at every piece.

        It is the last one, of a classifier the last that is not its padding; where every word has
        a class, the first piece of the queried word.
        """
        if not self.tags:
            pieces, mask = self.padded(batch)
            if self.padding is not None and not self.is_asked:
                mask = mask & (pieces != self.padding)
            place = torch.arange(mask.shape[1], device=mask.device)
            return (place * mask).argmax(1)
        asked = batch.asked
        if asked is None or batch.piece_word is None or bool(((asked != 0).sum(1) != 1).any()):
            raise UserError(
                f"model.path={self.path}: it gives a class to every word, and a row does not say "
                f"which one is asked about: expected data.token=COLUMN with the number of that "
                f"word, from 0, and a row for each word that has a label"
            )
        word = asked.abs().argmax(1, keepdim=True)
        return (batch.piece_word == word).long().argmax(1)

    def recorded(self, batch: Batch) -> AttentionRecord:
        """The site's attention, in one pass."""
        attention_pass = Pass(self._call(self.site))
        self.run(batch, attention_pass)
        return attention_pass.recorded

    def _call(self, site: Site) -> int:
        """The number of a site's attention in a pass, from 0."""
        assert self.examination is not None
        return site.layer % self.examination.calls

    def prepare(self, batch: Batch) -> None:
        """Examine the network's attention on texts some of which are padded.

        Is what we read and replace what the network computes with? In which precision? And does the
        short way past the last attention give what whole passes give?

        Raises:
            UserError: the network cannot be examined.
        """
        # the network is examined as it was made, with its own attention
        self.examination = None
        self.tail = None
        with self._evaluating():
            if self.control is not None:
                self.control.given(batch)  # refuses texts that do not say what it is
            self._logits_of(batch)
            is_small = sum(weights.numel() for weights in self.network.parameters()) < LARGE
            is_double = is_small and self._is_finite_in_double(batch)
            self.precision = torch.float64 if is_double else torch.float32

            examination = examine_attention(
                self.network,
                lambda attention_pass: self.run(batch, attention_pass),
                self.padded(batch)[1],
                f"{self.network.config.model_type} ({self.path})",
                self.piece_read(batch),
                Queries.ASKED if self.tags else Queries.LAST,
            )
            self._check_site(examination)
            self.examination = examination
            self.site_of_name = self._name_sites(examination)
            self.sites = list(self.site_of_name)

            with torch.no_grad():
                self.outputs_from(batch)  # refuses rows that see no word

            is_last = self.site.layer in (-1, examination.calls - 1)
            is_one_row = self.site.rows == "pooled" and examination.queries is not Queries.ALL
            if self.label_scores is not None:
                examination.remarks.append(
                    "no short way past the last attention (labels of several pieces are read from "
                    "several rows): whole passes are taken"
                )
            elif self.takes_short_way and is_last and is_one_row:
                self._try_short_way(batch, examination)
        # the short way knows the attended values, and all that follows them
        self.is_summed = self.tail is not None
        self.facts = self._facts(examination)

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """In eval mode, so that an attention that learns from texts learns nothing meanwhile."""
        training = self.training
        self.eval()
        try:
            yield
        finally:
            self.train(training)

    @torch.no_grad()
    def _logits_of(self, batch: Batch) -> Float[Tensor, "batch classes"]:
        """The network's logits.

        Raises:
            UserError: its settings fit together and still make no network; or it cannot read texts
                together that hold its special tokens.
        """
        try:
            return self.run(batch, Pass())
        except Exception as error:
            reason = reason_of(error, most=200)
            fault = f"its network cannot read a text ({reason})"
            remedy = "a sound checkpoint, as save_pretrained writes it"
            spelled = self._spelled_out(batch)
            if spelled:
                fault = f"{spelled}, which its network cannot read among other texts ({reason})"
                remedy = "that such rows are left out"
                if self.reader.special_tokens == "read":
                    remedy = f"model.special_tokens=characters, or {remedy}"
            raise UserError(f"model.path={self.path}: {fault}: expected {remedy}") from error

    def _spelled_out(self, batch: Batch) -> str:
        """The first text that holds a special token of the tokenizer, and that; or nothing."""
        assert batch.pieces is not None
        assert batch.piece_word is not None
        for piece, token in self.reader.control_tokens.items():
            rows = ((batch.pieces == piece) & (batch.piece_word > 0)).any(1)
            if bool(rows.any()):
                return f"text {int(batch.example_id[rows][0])} holds the special token {token!r}"
        return ""

    def _is_finite_in_double(self, batch: Batch) -> bool:
        """Whether the network computes in float64 at all.

        A softmax in float32 may make −∞ of the mask's lowest float64.
        """
        before = next(self.network.parameters()).dtype
        try:
            self.network.double()
            with torch.no_grad():
                return bool(self.run(batch, Pass()).isfinite().all())
        except RuntimeError:  # tensors of two precisions meet
            return False
        finally:
            self.network.to(before)

    def _check_site(self, examination: Examination) -> None:
        """Refuse a layer or a head that the network does not have."""
        layer = self.site.layer
        calls = examination.calls
        if not -calls <= layer < calls:
            raise UserError(
                f"model.layer={layer}: this model has {calls} attentions, 0 to {calls - 1} (or −1, "
                f"the last)"
            )
        count = examination.heads[layer]
        for head in self.site.heads or ():
            if head >= count:
                raise UserError(
                    f"model.heads names {head}: this layer has {count} heads, 0 to {count - 1}"
                )

    def _name_sites(self, examination: Examination) -> dict[str, Site]:
        """Every layer with all its heads, and every head by itself, by name."""
        sites: dict[str, Site] = {}
        for layer, count in enumerate(examination.heads):
            sites[f"layer {layer}"] = Site(layer, None, self.site.rows)
            for head in range(count):
                sites[f"layer {layer}, head {head}"] = Site(layer, [head], self.site.rows)
        return sites

    def _try_short_way(self, batch: Batch, examination: Examination) -> None:
        """Take the short way past the last attention if it gives the logits of whole passes.

        They are compared under another attention. Where they differ, a remark says so.
        """
        try:
            with torch.no_grad():
                record = self.recorded(batch)
                if record.values is None:
                    raise LookupError("its values are not seen through a dropout module")
                self.tail = LastLayer(self.network, record.module)
                outputs = self.outputs_from(batch)

                # each text gets the attention of the one before it, flattened
                rival = outputs.attention.double().roll(1, 0).nan_to_num() + 0.1
                rival = torch.where(outputs.content, rival, 0)
                rival = rival / rival.sum(-1, keepdim=True)
                whole = self.readout(batch, outputs, short=False).logits(rival[None])
                short = self.readout(batch, outputs).logits(rival[None])
            difference = float((short - whole).abs().max())
            examination.differences["short way"] = difference
            if not difference <= LIMITS[self.network.dtype] * max(1.0, float(whole.abs().max())):
                raise LookupError(f"differs by {difference:.2g}")
        except Exception as error:  # a network that cannot be run in parts may raise anything
            self.tail = None
            reason = reason_of(error)
            examination.remarks.append(
                f"no short way past the last attention ({reason}): whole passes are taken"
            )

    def _facts(self, examination: Examination) -> dict[str, Any]:
        """What the manifest says about the network and its examination."""
        site = self.site
        heads = "all" if site.heads is None else "+".join(map(str, site.heads))
        return {
            "family": self.network.config.model_type,
            "site": f"layer {site.layer}, heads {heads}, {site.rows}",
            "short_way": self.is_summed,
            "door": examination.door,
            "attentions": examination.calls,
            "queries": str(examination.queries),
            "differences": examination.differences,
            "remarks": examination.remarks,
            "library": None if self.comparison is None else self.comparison.facts(),
        }

    def check_reading(self, part: TextSplit) -> list[Check]:
        """Compare what is read and predicted of a split's texts with the library's own.

        Raises:
            UserError: the two differ, and no setting asks for it.
        """
        with self._evaluating(), self.precisely():
            # its weights are the very same, but its buffers are its own
            self.library.network.to(self.precision)
            reference = Reference(
                self.library,
                self.reader,
                partial(self._own_logits, part),
                self.task,
                part,
                f"model.path={self.path}",
            )
            self.comparison = reference.compare()
            confusion, label_checks = self._judge_labels(part)
        self.facts["library"] = self.comparison.facts()
        checks = self.comparison.checks() + label_checks
        if self.removal != "mask":
            checks += reference.check_removals(rereads=self.removal == "characters")
        if confusion is None:
            return checks
        if not self.order_is_given:
            raise UserError(
                f"model.path={self.path}: {confusion.sentence()}. If so, set "
                f"data.labels='{confusion.mapping()}'; if it is as bad as that, give its own "
                f"order, {order_setting(self.class_names)}"
            )
        share = confusion.right / confusion.texts
        return [*checks, Check("labels", share, share, True, confusion.sentence())]

    def _judge_labels(self, part: TextSplit) -> tuple[MixedUp | None, list[Check]]:
        """Compare some decisions with their labels, and with those of first pieces of labels.

        Returns:
            Whether the labels of a model that is taken as it is are mixed up; and a check, where
            labels have several pieces.
        """
        is_taken_as_it_is = not self.trains and self.task is Task.SINGLE_LABEL
        if not is_taken_as_it_is and self.label_scores is None:
            return None, []
        rows = evenly_spaced(len(part), JUDGED)
        decisions = self._own_logits(part, rows).argmax(-1)
        confusion = None
        if is_taken_as_it_is:
            confusion = mixed_up(part.labels[rows], decisions.numpy(), self.class_names)
        checks = []
        if self.label_scores is not None:
            checks = [self._check_label_pieces(self.label_scores, part, rows, decisions)]
        return confusion, checks

    def _check_label_pieces(
        self,
        labels: LabelScores,
        part: TextSplit,
        rows: Sequence[int],
        decisions: Int[Tensor, "texts"],
    ) -> Check:
        """How many decisions the row that is shown can account for.

        Only the first pieces of the labels are read from it; of labels of one piece that is all.
        """
        first_pieces = labels.first_pieces()
        of_first = self._in_batches(
            part, rows, lambda batch: first_pieces.run(self.network, *self.padded(batch), Pass())
        )
        best, second = of_first.topk(2).values.T
        alike = int(((of_first.argmax(-1) == decisions) & (best > second)).sum())
        share = alike / len(rows)
        sentence = (
            f"a label's score is the sum of its pieces' log-probabilities; the attention is that "
            f"of the prompt's last piece, which the first piece of every label is read from. The "
            f"first pieces alone decide as all do in {alike} of {len(rows)} texts"
        )
        return Check("label pieces", share, LABELS_ALIKE, share < LABELS_ALIKE, sentence)

    def _own_logits(self, part: TextSplit, rows: Sequence[int]) -> Float[Tensor, "texts classes"]:
        """Logits of some rows under the network's own attention."""
        examination = self.examination
        self.examination = None  # without what `given` puts in its place
        try:
            return self._in_batches(part, rows, self._logits_of)
        finally:
            self.examination = examination

    def _in_batches(
        self,
        part: TextSplit,
        rows: Sequence[int],
        logits_of: Callable[[Batch], Float[Tensor, "batch classes"]],
    ) -> Float[Tensor, "texts classes"]:
        """Logits of some rows, in batches as the run's."""
        pieces = part.columns["pieces"]
        assert isinstance(pieces, Ragged)
        logits = torch.zeros(len(rows), self.classes, dtype=self.precision)
        for places in short_enough(pieces.lengths[list(rows)]):
            batch = part[[rows[place] for place in places]]
            logits[places] = logits_of(batch).to(self.precision)
        return logits

    def read_texts(self, batches: Iterable[Batch]) -> str:
        """Express a score in units of its deviation over these texts, or of `model.scale`."""
        heads = [module for module in self.network.modules() if isinstance(module, ScoreHead)]
        if not heads:
            return ""
        head = heads[0]
        unit = self.scale
        source = "model.scale"
        if unit is None:
            unit = self._score_deviation(batches) * float(head.unit)
            source = "their standard deviation over the texts"
        with torch.no_grad():
            for parameter in (head.weight, head.bias):
                parameter.div_(unit / head.unit)
            head.unit.fill_(unit)
        return (
            f"distances, also where they are called TVD or probability, are those of scores in "
            f"units of {unit:.4g}, {source}"
        )

    def _score_deviation(self, batches: Iterable[Batch]) -> float:
        """The standard deviation of the score over these texts, in units of the head."""
        with self._evaluating(), torch.no_grad():
            # the second logit is half the score
            scores = torch.cat([self.run(batch, Pass())[:, 1].double() * 2 for batch in batches])
        deviation = float(scores.std())
        if not deviation > 0:
            raise UserError(
                f"model.path={self.path}: all {len(scores)} texts have the same score, which gives "
                f"its distances no unit: expected texts of different scores, or "
                f"model.scale=NUMBER"
            )
        return deviation

    def selection(self, batch: Batch, site: Site | None = None) -> Selection:
        """The rows of a site on this batch; of the model's own site if none is named."""
        assert self.examination is not None
        site = site or self.site
        mask = self.padded(batch)[1]
        heads = list(range(self.examination.heads[site.layer]))
        if site.heads is not None:
            heads = list(site.heads)

        if site.rows == "all" or self.examination.queries is Queries.ALL:
            return Selection(heads, None, mask, mask.repeat(1, len(heads)))
        query = self.piece_read(batch)
        if self.examination.queries is Queries.FIRST:
            query = torch.zeros_like(query)
        return Selection(heads, query, mask, mask.new_ones(len(mask), len(heads)))

    def inputs(self, batch: Batch) -> Float[Tensor, "batch pieces embed"]:
        """The embeddings of the pieces, as the network looks them up."""
        result: Tensor = self.network.get_input_embeddings()(self.padded(batch)[0])
        return result

    def outputs_from(
        self,
        batch: Batch,
        inputs: Float[Tensor, "batch pieces embed"] | None = None,
        attention: Float[Tensor, "batch seq"] | None = None,
    ) -> Outputs:
        """Run the network once; see `Model.outputs_from`.

        Another attention is shown by the site's rows; the attention of all other layers is what
        comes of it. `hidden` is what the site moves of each word, all heads side by side, per unit
        of its attention, where that is known.
        """
        if self.examination is None:
            self.prepare(batch)
        selection = self.selection(batch)
        attention_pass = Pass(self._call(self.site))
        if attention is not None:
            attention_pass.replace = partial(
                self._show,
                batch,
                selection,
                attention=attention.double(),
            )
        with self._embedding(batch, inputs):
            logits = self.run(batch, attention_pass)
        record = attention_pass.recorded
        outputs = self._outputs_at(batch, logits, record, self.site, attention)
        blind = ~outputs.content.any(-1)
        if bool(blind.any()):
            number = int(batch.example_id[blind][0])
            raise UserError(
                f"model.layer={self.site.layer}: the row that is examined sees no word of text "
                f"{number} in this layer, which looks at a part of a text alone: expected another "
                f"layer, or model.rows=all"
            )
        if record.values is None or selection.query is None or self.training:
            return outputs

        with torch.no_grad():
            rows = selection.of(record.weights).double()
            values = record.values[:, selection.heads].double()
            moved = torch.einsum("bhk,bhkd,bks->bshd", rows, values, membership(batch)).flatten(2)
            weight = outputs.attention.detach().double().unsqueeze(-1)
            hidden = torch.where(weight > 0, moved / torch.where(weight > 0, weight, 1), 0)
        return replace(outputs, hidden=hidden.to(outputs.attention.dtype))

    def _show(
        self,
        batch: Batch,
        selection: Selection,
        record: AttentionRecord,
        *,
        attention: Float[Tensor, "batch seq"],
    ) -> Float[Tensor, "batch heads queries keys"]:
        """The weights with rows that show this attention at the site."""
        lifting = self._lifting(batch, selection, record)
        return selection.put(record.weights, lifting(attention))

    def _lifting(self, batch: Batch, selection: Selection, record: AttentionRecord) -> Lifting:
        """The map from weights per word to the rows of a site that show them."""
        rows = selection.of(record.weights).detach()
        seen = selection.seen(record.visible)
        return Lifting(rows, membership(batch), selection.valid, seen)

    def _embedding(
        self,
        batch: Batch,
        inputs: Float[Tensor, "batch pieces embed"] | None,
    ) -> AbstractContextManager[Any]:
        """Within it, the network looks up `inputs` for the pieces of this batch."""
        if inputs is None:
            return nullcontext()
        ids, mask = self.padded(batch)
        copies = None if self.label_scores is None else self.label_scores.copies(ids, mask)

        def put(module: Any, arguments: tuple[Any, ...], output: Tensor) -> Tensor | None:
            if not arguments:
                return None
            if torch.equal(arguments[0], ids):
                return inputs
            if copies is not None and torch.equal(arguments[0], copies.ids):
                return copies.with_texts(output, inputs)
            return None

        handle: AbstractContextManager[Any] = (
            self.network.get_input_embeddings().register_forward_hook(put)
        )
        return handle

    def _outputs_at(
        self,
        batch: Batch,
        logits: Tensor,
        record: AttentionRecord,
        site: Site,
        attention: Float[Tensor, "batch seq"] | None = None,
    ) -> Outputs:
        """What a pass leaves at this site, but for the states.

        Args:
            batch: the texts.
            logits: the result of the pass.
            record: the site's attention in the pass.
            site: the site.
            attention: the attention that was shown; None: the recorded one.
        """
        selection = self.selection(batch, site)
        rows = selection.of(record.weights)
        member = membership(batch)
        recorded, share_on_text = word_weights(rows, member, selection.valid)
        if attention is None:
            attention = recorded.to(logits.dtype)

        valid = selection.valid
        seen = (selection.seen(record.visible) & valid.unsqueeze(-1)).any(1)
        is_seen = torch.einsum("bp,bps->bs", seen.to(member.dtype), member) > 0
        mean_row = (rows * valid.unsqueeze(-1)).sum(1) / valid.sum(1, keepdim=True)
        return Outputs(
            logits=logits,
            attention=attention,
            scores=attention.log().masked_fill(~batch.content, -torch.inf),
            hidden=attention.new_zeros(*attention.shape, 0),
            content=batch.content & is_seen,
            unseen=batch.content & ~is_seen,
            off_text=1 - share_on_text,
            piece_attention=mean_row.detach(),
        )

    def readout(
        self,
        batch: Batch,
        outputs: Outputs,
        *,
        short: bool = True,
        site: Site | None = None,
        record: AttentionRecord | None = None,
        state: Float[Tensor, "batch pieces hidden"] | None = None,
    ) -> Readout:
        """Freeze the map from weights per word to predictions.

        The least change of the site's rows shows the weights, and the network computes what follows
        it.

        Args:
            batch: the texts.
            outputs: the model's outputs at the site.
            short: take the short way past the last attention, where there is one.
            site: None: the model's own.
            record: the site's attention, where it is known from a pass.
            state: with `record`: what went into the site's layer in that pass, for the short way;
                None: whole passes are taken.
        """
        site = site or self.site
        if record is None:
            states: list[Tensor] = []
            keeping = self.tail.keeping(states) if short and self.tail else nullcontext()
            with torch.no_grad(), keeping:
                record = self.recorded(batch)
            state = states[-1] if states else None

        selection = self.selection(batch, site)
        lifting = self._lifting(batch, selection, record)
        decode = partial(self._logits_by_passes, batch, site, lifting)
        if state is not None:
            decode = partial(self._logits_by_tail, batch, selection, lifting, record, state)

        attention = outputs.attention.detach().double()
        return Readout(
            attention=attention / attention.sum(-1, keepdim=True),
            content=outputs.content,
            example_id=batch.example_id,
            task=self.task,
            decode=decode,
            recorded=outputs.logits.detach().double(),
            activations=self._activations(batch, record, lifting, by_passes=state is None),
            unseen=outputs.unseen,
        )

    def _activations(
        self,
        batch: Batch,
        record: AttentionRecord,
        lifting: Lifting,
        *,
        by_passes: bool,
    ) -> int:
        """About how many numbers a readout holds at its peak, for one attention of every text."""
        _, heads, _, pieces = record.weights.shape
        width = int(getattr(self.network.config, "hidden_size", 768))
        network = pieces * (8 * width + 4 * heads * pieces) if by_passes else 12 * width
        lifted = 4 * lifting.rows.shape[1] * (pieces + batch.ids.shape[1])
        return len(batch) * (lifted + network)

    def _logits_by_passes(
        self,
        batch: Batch,
        site: Site,
        lifting: Lifting,
        attention: Float[Tensor, "*samples batch seq"],
    ) -> Float[Tensor, "*samples batch classes"]:
        """Logits under other attentions, by a pass of the whole network for each."""
        rows = lifting(attention)
        samples = rows.shape[:-3]
        flat_rows = rows.flatten(0, -3)

        text = torch.arange(len(batch), device=rows.device).repeat(samples.numel())
        repeated = batch.rows(text)
        selection = self.selection(repeated, site)
        replacing = Pass(self._call(site), lambda record: selection.put(record.weights, flat_rows))
        logits = self.run(repeated, replacing)
        return logits.double().unflatten(0, (*samples, len(batch)))

    def _logits_by_tail(
        self,
        batch: Batch,
        selection: Selection,
        lifting: Lifting,
        record: AttentionRecord,
        state: Float[Tensor, "batch pieces hidden"],
        attention: Float[Tensor, "*samples batch seq"],
    ) -> Float[Tensor, "*samples batch classes"]:
        """Logits under other attentions, from the pooled row of the last layer alone."""
        assert self.tail is not None
        assert record.values is not None
        text = torch.arange(len(batch), device=state.device)
        rows = lifting(attention).to(record.values.dtype)
        check_places(rows, selection.seen(record.visible))

        # the pooled row of all heads, of which those of the site are replaced
        samples = rows.shape[:-3]
        recorded = record.weights[text, :, selection.query]
        all_rows = recorded.expand(*samples, -1, -1, -1).clone()
        all_rows[..., selection.heads, :] = rows
        attended = torch.einsum("...bhk,bhkd->...bhd", all_rows, record.values)

        shape = attended.shape[:-2]
        before = state[text, selection.query].expand(*shape, -1)
        piece = self.padded(batch)[0][:, 0].expand(shape)
        logits = self.tail.logits_of_row(
            attended.flatten(0, -3),
            before.flatten(0, -2),
            piece.flatten(),
        )
        return logits[:, self.order].double().unflatten(0, shape)

    def summed(self, batch: Batch, outputs: Outputs) -> Summed:
        """The values of the site's heads, which its pooled row weights."""
        with torch.no_grad():
            record = self.recorded(batch)
        assert record.values is not None
        selection = self.selection(batch)
        return Summed(
            weights=selection.of(record.weights),
            values=record.values[:, selection.heads],
            word=self.word_of(batch),
            attendable=selection.mask & selection.seen(record.visible).any(1),
        )

    def at_sites(self, batch: Batch) -> Iterator[AtSite]:
        """The attention at each site, and what would be predicted under another one there.

        At the last layer's pooled row the short way is taken, where there is one, else whole
        passes.
        """
        records: list[AttentionRecord] = []
        states: list[Tensor] = []
        keeping = self.tail.keeping(states) if self.tail else nullcontext()
        with torch.no_grad(), keeping:
            logits = self.run(batch, Pass(observer=records.append))

        pieces = self.padded(batch)[1].shape[1]
        for name, site in self.site_of_name.items():
            record = records[site.layer]
            if record.weights.shape[-1] != pieces:
                continue  # over something other than this text
            outputs = self._outputs_at(batch, logits, record, site)
            if not bool(outputs.content.any(-1).all()):
                continue  # its row sees no word of a text
            is_last = site.layer == len(records) - 1
            state = states[-1] if states and is_last else None
            readout = self.readout(batch, outputs, site=site, record=record, state=state)
            yield AtSite(name, outputs, readout)

    def layers(self, batch: Batch) -> Layers | None:
        """The attention of all layers; None where one is not over the text's pieces alone.

        A decoder's attention over its encoder's text is not.
        """
        return self._layers(batch, self._records(batch))

    @torch.no_grad()
    def _records(self, batch: Batch) -> list[AttentionRecord]:
        """All attentions of one pass."""
        records: list[AttentionRecord] = []
        self.run(batch, Pass(observer=records.append))
        return records

    def _layers(self, batch: Batch, records: Sequence[AttentionRecord]) -> Layers | None:
        pieces = self.padded(batch)[1].shape[1]
        is_square = all(record.weights.shape[-2:] == (pieces, pieces) for record in records)
        if self.network.config.is_encoder_decoder or not is_square:
            return None
        selection = self.selection(batch)
        return Layers(
            weights=[record.weights.double() for record in records],
            row=selection.query,
            mask=selection.mask,
            adds_input=[True] * len(records),
        )

    def linearised(self, batch: Batch) -> Linearised | str:
        """What its layers do to their vectors, from one pass; else why that is not known."""
        if self.label_scores is not None:
            return "labels of several pieces are read from several rows"
        records = self._records(batch)
        layers = self._layers(batch, records)
        if layers is None:
            return "its attention is not over the text's own pieces alone"
        return linearise(
            self.network,
            lambda attention_pass: self.run(batch, attention_pass),
            records,
            layers,
            self.order,
        )

    def states_silencing(
        self,
        batch: Batch,
        layer: int | None,
        part: int,
    ) -> Sequence[Float[Tensor, "batch pieces hidden"]]:
        """The network's hidden states; see `Model.states_silencing`.

        A part gets the weight 0, which nothing makes up for: the same as a value of 0.
        """
        attention_pass = Pass()
        if layer is not None:
            silenced = torch.tensor([part], device=batch.ids.device)
            attention_pass = Pass(layer, lambda record: record.weights.index_fill(-1, silenced, 0))
        states: list[Tensor] = []
        with torch.no_grad():
            self.run(batch, attention_pass, states)
        return states

    def without(
        self,
        batch: Batch,
        example: Int[Tensor, "texts"],
        position: Int[Tensor, "texts"],
    ) -> Batch:
        """The texts of `example`, each without the word at `position`.

        By `removal` the pieces of the word are gone, or masked, or what is left is read again.
        """
        if self.removal == "mask":
            # the word stays, so that nothing moves
            texts = batch.rows(example)
            return self.masked(texts, F.one_hot(position, texts.ids.shape[1]).bool())
        return self.reread(batch.without(example, position))

    def reread(self, batch: Batch) -> Batch:
        """The texts that are left where words were removed, read by the tokenizer again.

        Only where `removal` says so; else their pieces are those that are left.
        """
        if self.removal != "characters":
            return batch
        return reread(batch, self.reader)

    def stages(self) -> dict[str, list[str]]:
        """Names of parameters by their part, from the output down.

        The parts are `head`, after the last layer; `layer_N`; `embeddings`, before the first one.
        """
        stages: dict[str, list[str]] = {}
        below_layers = True
        stage_of_name: dict[str, str] = {}
        for name, _ in self.named_parameters():
            layer = next((f"layer_{part}" for part in name.split(".") if part.isdigit()), "")
            below_layers = below_layers and not layer
            stage_of_name[name] = layer or ("embeddings" if below_layers else "head")
        for name, stage in reversed(stage_of_name.items()):
            stages.setdefault(stage, []).append(name)
        return stages

    def parameter_groups(self) -> list[dict[str, Any]]:
        """No weight decay on biases and on the scales of normalisations."""
        free = [parameter for parameter in self.parameters() if parameter.requires_grad]
        return without_decay_of_vectors({"params": free})


def _check_heads(heads: Sequence[int] | None) -> None:
    """Refuse a head that is named twice."""
    if heads is not None and len(set(heads)) < len(heads):
        raise UserError(f"model.heads={list(heads)}: expected every number once")


def _check_given(given: str | None, checkpoint: Checkpoint) -> None:
    """Refuse a given attention where there is not one row that decides."""
    if given is not None and checkpoint.label_scores is not None:
        raise UserError(
            f"model.given={given}: labels of several pieces are read from several rows: "
            f"expected labels of one piece each"
        )


def _check_removal(removal: str, checkpoint: Checkpoint, path: str, task: Task) -> None:
    """Refuse a way of removing words that the checkpoint cannot do."""
    if removal == "mask" and checkpoint.mask is None:
        remedy = "take removal=delete"
        if checkpoint.tags:
            remedy = (
                "expected one (mask_token in tokenizer_config.json), for of a model that "
                "labels words they cannot be deleted"
            )
        raise UserError(f"model.removal=mask: the tokenizer of {path} has no mask token: {remedy}")
    if checkpoint.tags and (removal != "mask" or task is Task.MULTI_LABEL):
        raise UserError(
            f"model.path={path}: it gives a class to every word, which is read at the word: "
            f"expected model.removal=mask, with which the word stays, and rows of one word "
            f"each (data.token=COLUMN with its number, from 0, data.multi_label=false)"
        )
