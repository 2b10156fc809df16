"""A classifier of `transformers` as a model that probes can examine: one weight per word, at one
site."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from inspect import signature
from typing import Annotated, Any, Literal

import torch
from annotated_types import Ge, MinLen
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnprobe.core.batch import Batch, Outputs, Task
from attnprobe.core.errors import UserError
from attnprobe.core.readout import Readout
from attnprobe.core.settings import Name, Number, Positive, Whole
from attnprobe.models import controls
from attnprobe.models.base import AtSite, Layers, Summed, membership
from attnprobe.models.linearised_layers import Linearised
from attnprobe.models.pretrained.attention_hooks import (
    LIMITS,
    Found,
    LastLayer,
    Pass,
    Seen,
    examine_attention,
)
from attnprobe.models.pretrained.checkpoint import open_checkpoint
from attnprobe.models.pretrained.heads import ScoreHead
from attnprobe.models.pretrained.linearised import linearise
from attnprobe.models.pretrained.site import Lifting, Queries, Selection, Site, word_weights
from attnprobe.models.recipe import Recipe
from attnprobe.models.trained import TrainedModel

LARGE = 5_000_000
"""Parameters from which a network is examined in float32."""
CONTROLS: dict[str | None, type[controls.FocusedAttention | controls.RandomAttention]] = {
    "rationale": controls.RationaleAttention,
    "first": controls.FirstAttention,
    "random": controls.RandomAttention,
    "common_word": controls.CommonWordAttention,
}
"""What may be given over words; `uniform` is over pieces."""


class PretrainedClassifier(TrainedModel):
    """A sequence classifier of `transformers`. Its attention is the mean, per word, of the rows of
    a site.

    Args:
        name: what it is called in tables and paths.
        path: a folder as `save_pretrained` writes it, or a name on the hub; `offline`: in its cache
            alone.
        class_names: names of the data's classes, in their order.
        task: one class per text, or any subset of the labels.
        trains: it will be fine-tuned (else its labels must hold the data's; `class_names` of the
            model has all of them).
        tags: a head that gives a class to every word is kept all the same, as where nothing is
        trained: a run's, read again. layer, heads, rows: see
        `attnprobe.models.pretrained.site.Site`; class_weight, recipe: see `TrainedModel`.
        max_pieces: longest text in pieces; None: 512, or what the model takes if that is less.
        removal: what leave-one-out does with a word: `delete` or `mask`.
        given: an attention that is put into every row, in training and after: `uniform`, the same
            weight for every piece that the row may see (Wiegreffe & Pinter 2019, section 3.2), or
            one over the words as `attnprobe.models.controls` has it, a word's weight spread over
            its pieces and none on special tokens; None: the network's own.
        given_at: the layers that it is put into, `last` or `all`.
        short_way: compute what follows the last layer's attention alone, where that agrees with
            whole passes.
        prompt: what every text is put into, in the place of `{text}`; the checkpoint is then a
            causal language model, and the classes are pieces that may follow. `\\n` is a new line.
        labels: class → the word of one piece that says it, with a prompt.
        threshold: the checkpoint gives one score (regression, a reward, relevance): texts above
            this are of the second class.
        scale: the unit of these scores' distances; None: their standard deviation over the texts.
        in_order: `class_names` are in the order of a checkpoint whose own are LABEL_0, LABEL_1, …
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
        removal: Literal["delete", "mask"] = "delete",
        given: Literal["uniform", "rationale", "first", "random", "common_word"] | None = None,
        given_at: Literal["last", "all"] = "last",
        short_way: bool = True,
        prompt: str | None = None,
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
                "model.prompt and model.labels belong together: give the prompt around the text, and the words of the classes"
            )
        opened = open_checkpoint(
            path,
            class_names,
            task,
            trains=trains,
            tags=tags,
            max_pieces=max_pieces,
            offline=offline,
            in_order=in_order,
            prompt=None if prompt is None else prompt.replace("\\n", "\n"),
            threshold=threshold,
            labels={str(one): word for one, word in (labels or {}).items()},
        )
        super().__init__(
            len(opened.classes), task if threshold is None else Task.SCORE, class_weight, recipe
        )
        if heads is not None and len(set(heads)) < len(heads):
            raise UserError(f"model.heads={list(heads)}: expected every number once")
        self.site = Site(layer, heads, rows)
        self.class_names = opened.classes
        self.matched = opened.matched
        if removal == "mask" and opened.mask is None:
            raise UserError(
                f"model.removal=mask: the tokenizer of {path} has no mask token: take removal=delete"
            )
        self.tags = opened.tags
        if self.tags and (removal == "delete" or task is Task.MULTI_LABEL):
            raise UserError(
                f"model.path={path}: it gives a class to every word, which is read at the word: expected model.removal=mask, "
                f"with which the word stays, and one label per row (data.multi_label=false)"
            )
        self.network: Any = opened.network.train()
        self.network.config.use_cache = False
        self.reader = opened.reader
        self.order = opened.order
        self.mask = opened.mask
        self.padding = opened.padding
        self.path = path
        self.removal = removal
        self.takes_short_way = short_way
        self.scale = scale
        self.given = given
        self.given_at = given_at
        self.control = CONTROLS[given](0) if given in CONTROLS else None
        known = signature(self.network.forward).parameters
        self.has_kinds = (
            "token_type_ids" in self.reader.tokenizer.model_input_names
            and "token_type_ids" in known
        )
        self.precision = torch.float32
        self.sites = []
        self.found: Found | None = None
        self.tail: LastLayer | None = None

    def padded(
        self, batch: Batch
    ) -> tuple[Int[Tensor, "batch pieces"], Bool[Tensor, "batch pieces"]]:
        """The pieces with the network's own padding, and which are none of it."""
        if batch.pieces is None or batch.piece_word is None:
            raise UserError(
                "this model reads pieces of words, and the batch has none: its data have to be read by it first"
            )
        mask = batch.piece_word != -2
        return torch.where(mask, batch.pieces, self.padding), mask

    def run(
        self, batch: Batch, one: Pass, states: list[Tensor] | None = None
    ) -> Float[Tensor, "batch classes"]:
        """Logits of the data's classes, in one pass, and on request the states before the first
        layer and after each, under the attention that is given: none as long as it is not known how
        many attentions there are."""
        ids, mask = self.padded(batch)
        asked = {"input_ids": ids, "attention_mask": mask.long()}
        if self.has_kinds and batch.piece_kind is not None:
            asked["token_type_ids"] = batch.piece_kind
        if self.found is not None and self.given is not None:
            one.given_at = (
                range(self.found.calls) if self.given_at == "all" else [self.found.calls - 1]
            )
            one.given = torch.ones_like(ids, dtype=self.network.dtype)
            if self.control is not None:
                member = membership(batch)
                shares = self.control.given(batch) / member.sum(1).clamp_min(1)
                one.given = torch.einsum("bs,bps->bp", shares, member)
        with one.active():
            output = self.network(
                **asked, **({} if states is None else {"output_hidden_states": True})
            )
        if states is not None:
            states += output.hidden_states
        logits: Tensor = output.logits
        if logits.ndim == 3:  # at every piece
            logits = logits[torch.arange(len(batch), device=ids.device), self.piece_read(batch)]
        return logits[:, self.order]

    def piece_read(self, batch: Batch) -> Int[Tensor, "batch"]:
        """The piece that a prediction is read from where there is one for each: the last one's, or,
        where every word has a class, that of the first piece of the word that is asked about."""
        if not self.tags:
            return self.padded(batch)[1].sum(1) - 1
        if (
            batch.asked is None
            or batch.piece_word is None
            or not bool(((batch.asked != 0).sum(1) == 1).all())
        ):
            raise UserError(
                f"model.path={self.path}: it gives a class to every word, and a row does not say which one is asked about: "
                f"expected data.token=COLUMN with the number of that word, from 0, and a row for each word that has a label"
            )
        return (batch.piece_word == batch.asked.abs().argmax(1, keepdim=True)).long().argmax(1)

    def recorded(self, batch: Batch) -> Seen:
        """The site's attention, in one pass."""
        assert self.found is not None
        one = Pass(self.site.layer % self.found.calls)
        self.run(batch, one)
        return one.recorded

    def prepare(self, batch: Batch) -> None:
        """Look at the network's attention, on texts some of which are padded: is what we read and
        replace what the network computes with, in which precision, and does the short way past the
        last attention give what whole passes give?"""
        training = self.training
        self.eval()  # an attention that learns from texts learns nothing from these
        self.found = self.tail = None  # looked at as it was made, with its own attention
        try:
            if self.control is not None:
                self.control.given(batch)  # refuses texts that do not say what it is
            try:
                with torch.no_grad():
                    self.run(batch, Pass())
            except (
                Exception
            ) as error:  # settings of somebody else's may fit together and still make no network
                reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
                raise UserError(
                    f"model.path={self.path}: its network cannot read a text ({reason}): expected a sound checkpoint, as "
                    f"save_pretrained writes it"
                ) from error
            small = sum(parameter.numel() for parameter in self.network.parameters()) < LARGE
            self.precision = (
                torch.float64 if small and self._is_finite_in_double(batch) else torch.float32
            )
            family = self.network.config.model_type
            asked = self.piece_read(batch) if self.tags else None
            found = examine_attention(
                self.network,
                lambda one: self.run(batch, one),
                self.padded(batch)[1],
                f"{family} ({self.path})",
                asked,
            )
            layer = self.site.layer
            heads = self.site.heads
            rows = self.site.rows
            if not -found.calls <= layer < found.calls:
                raise UserError(
                    f"model.layer={layer}: this model has {found.calls} attentions, 0 to {found.calls - 1} (or −1, the last)"
                )
            count = found.heads[layer]
            if wrong := [head for head in heads or () if head >= count]:
                raise UserError(
                    f"model.heads names {wrong[0]}: this layer has {count} heads, 0 to {count - 1}"
                )
            self.every_site = {
                f"layer {call}" + (f", head {one[0]}" if one else ""): Site(call, one, rows)
                for call, count in enumerate(found.heads)
                for one in (None, *([head] for head in range(count)))
            }
            self.found = found
            self.sites = list(self.every_site)
            is_last = layer in (-1, found.calls - 1)
            of_one_row = found.queries is not Queries.ALL
            if self.takes_short_way and is_last and rows == "pooled" and of_one_row:
                self._try_short_way(batch, found)
        finally:
            self.train(training)
        self.is_summed = self.tail is not None  # the short way is nothing but this
        named = "all" if heads is None else "+".join(map(str, heads))
        self.facts = {
            "family": family,
            "site": f"layer {layer}, heads {named}, {rows}",
            "short_way": self.is_summed,
            "door": found.door,
            "attentions": found.calls,
            "queries": str(found.queries),
            "differences": found.differences,
            "remarks": found.remarks,
        }

    def read_texts(self, batches: Iterable[Batch]) -> str:
        """Of a score: its standard deviation over these texts becomes the unit, unless one is
        given."""
        heads = [one for one in self.network.modules() if isinstance(one, ScoreHead)]
        if not heads:
            return ""
        unit = self.scale
        training = self.training
        if unit is None:
            self.eval()
            with torch.no_grad():
                scores = torch.cat(
                    [self.run(batch, Pass())[:, 1].double() * 2 for batch in batches]
                )
            self.train(training)
            unit = float(scores.std()) * float(heads[0].unit)
            if not unit > 0:
                raise UserError(
                    f"model.path={self.path}: all {len(scores)} texts have the same score, which gives its distances no "
                    f"unit: expected texts of different scores, or model.scale=NUMBER"
                )
        with torch.no_grad():
            for parameter in (heads[0].weight, heads[0].bias):
                parameter.div_(unit / heads[0].unit)
            heads[0].unit.fill_(unit)
        said = "their standard deviation over the texts" if self.scale is None else "model.scale"
        return f"distances, also where they are called TVD or probability, are those of scores in units of {unit:.4g}, {said}"

    def _is_finite_in_double(self, batch: Batch) -> bool:
        """Whether the network computes in float64 at all: a softmax in float32 may make −∞ of the
        mask's lowest float64."""
        before = next(self.network.parameters()).dtype
        try:
            self.network.double()
            with torch.no_grad():
                return bool(self.run(batch, Pass()).isfinite().all())
        except RuntimeError:  # tensors of two precisions meet
            return False
        finally:
            self.network.to(before)

    def _try_short_way(self, batch: Batch, found: Found) -> None:
        try:
            with torch.no_grad():
                recorded = self.recorded(batch)
                if recorded.values is None:
                    raise LookupError("its values are not seen through a dropout module")
                self.tail = LastLayer(self.network, recorded.module)
                outputs = self.outputs_from(batch, None)
                other = outputs.attention.double().roll(1, 0) + 0.1
                other = torch.where(outputs.content, other, 0)
                other = other / other.sum(-1, keepdim=True)
                whole = self.readout(batch, outputs, short=False).logits(other[None])
                short = self.readout(batch, outputs).logits(other[None])
            apart = found.differences["short way"] = float((short - whole).abs().max())
            if not apart <= LIMITS[self.network.dtype] * max(1.0, float(whole.abs().max())):
                raise LookupError(f"differs by {apart:.2g}")
        except (
            Exception
        ) as error:  # whatever a network raises that does not bear to be run in parts
            self.tail = None
            why = " ".join(f"{type(error).__name__}: {error}".split())[:150]
            found.remarks.append(
                f"no short way past the last attention ({why}): whole passes are taken"
            )

    def selection(self, batch: Batch, site: Site | None = None) -> Selection:
        """The rows of a site, the model's own if none is given."""
        assert self.found is not None
        site = site or self.site
        mask = self.padded(batch)[1]
        queries = Queries.ALL if site.rows == "all" else self.found.queries
        chosen = list(range(self.found.heads[site.layer]) if site.heads is None else site.heads)
        if queries is Queries.ALL:
            return Selection(chosen, None, mask, mask.repeat(1, len(chosen)))
        read = self.piece_read(batch)
        read = torch.zeros_like(read) if queries is Queries.FIRST else read
        return Selection(chosen, read, mask, mask.new_ones(len(mask), len(chosen)))

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
        """One pass, on request from other embeddings and under another attention at the site (that
        of all other layers is what comes of it)."""
        if self.found is None:
            self.prepare(batch)
        assert self.found is not None
        ids = self.padded(batch)[0]
        member = membership(batch)
        chosen = self.selection(batch)
        one = Pass(self.site.layer % self.found.calls)
        if attention is not None:
            wanted = attention.double()
            one.replace = lambda own: chosen.put(
                own, Lifting(chosen.of(own).detach(), member, chosen.valid)(wanted)
            )
        exchange = self.network.get_input_embeddings().register_forward_hook(
            lambda module, given, output: (
                inputs if inputs is not None and given and torch.equal(given[0], ids) else None
            )
        )
        with exchange:
            logits = self.run(batch, one)
        seen = one.recorded
        outputs = self._outputs_at(batch, logits, seen, self.site, attention)
        if seen.values is None or chosen.query is None or self.training:
            return outputs
        # what the site moves of each word, all heads side by side, per unit of its attention
        with torch.no_grad():
            rows = chosen.of(seen.weights).double()
            values = seen.values[:, chosen.heads].double()
            moved = torch.einsum("bhk,bhkd,bks->bshd", rows, values, member).flatten(2)
            weight = outputs.attention.detach().double().unsqueeze(-1)
            hidden = torch.where(weight > 0, moved / torch.where(weight > 0, weight, 1), 0)
        return replace(outputs, hidden=hidden.to(outputs.attention.dtype))

    def _outputs_at(
        self,
        batch: Batch,
        logits: Tensor,
        seen: Seen,
        site: Site,
        attention: Float[Tensor, "batch seq"] | None = None,
    ) -> Outputs:
        """What a pass leaves whose attention at this site was `seen`, but for the states."""
        chosen = self.selection(batch, site)
        rows = chosen.of(seen.weights)
        valid = chosen.valid
        recorded, on_text = word_weights(rows, membership(batch), valid)
        attention = recorded.to(logits.dtype) if attention is None else attention
        scores = attention.log().masked_fill(~batch.content, -torch.inf)
        of_pieces = ((rows * valid.unsqueeze(-1)).sum(1) / valid.sum(1, keepdim=True)).detach()
        nothing = attention.new_zeros(*attention.shape, 0)
        return Outputs(
            logits,
            attention,
            scores,
            nothing,
            batch.content,
            off_text=1 - on_text,
            piece_attention=of_pieces,
        )

    def readout(
        self,
        batch: Batch,
        outputs: Outputs,
        *,
        short: bool = True,
        site: Site | None = None,
        seen: Seen | None = None,
        state: Float[Tensor, "batch pieces hidden"] | None = None,
    ) -> Readout:
        """The map "attention per word → probabilities": the least change of the site's rows, and
        what follows it, by the short way past the last attention where there is one and it is
        wanted. `site` is the model's own if none is given, `seen` its attention, and `state` what
        went into its layer, where they are known from a pass."""
        assert self.found is not None
        site = site or self.site
        if seen is None:
            states: list[Tensor] = []
            with (
                torch.no_grad(),
                self.tail.keeping(states) if short and self.tail else nullcontext(),
            ):
                seen = self.recorded(batch)
            state = states[-1] if states else None
        call = site.layer % self.found.calls
        count = len(batch)
        weights = seen.weights
        values = seen.values
        chosen = self.selection(batch, site)
        lifting = Lifting(chosen.of(weights), membership(batch), chosen.valid)

        def by_passes(
            attention: Float[Tensor, "*samples batch seq"],
        ) -> Float[Tensor, "*samples batch classes"]:
            rows = lifting(attention)
            times = rows.shape[:-3].numel()
            shape = rows.shape[:-3]
            rows = rows.flatten(0, -3)
            many = batch.rows(torch.arange(count, device=rows.device).repeat(times))
            place = self.selection(many, site)
            logits = self.run(many, Pass(call, lambda own: place.put(own, rows)))
            return logits.double().unflatten(0, (*shape, count))

        def by_tail(
            attention: Float[Tensor, "*samples batch seq"],
        ) -> Float[Tensor, "*samples batch classes"]:
            assert self.tail is not None
            assert values is not None
            assert state is not None
            text = torch.arange(count, device=state.device)
            rows = lifting(attention).to(values.dtype)
            every = weights[text, :, chosen.query].expand(*rows.shape[:-3], -1, -1, -1).clone()
            every[..., chosen.heads, :] = rows
            attended = torch.einsum("...bhk,bhkd->...bhd", every, values)
            shape = attended.shape[:-2]
            before = state[text, chosen.query].expand(*shape, -1).flatten(0, -2)
            piece = self.padded(batch)[0][:, 0].expand(shape).flatten()
            logits = self.tail.logits_of_row(attended.flatten(0, -3), before, piece)
            return logits[:, self.order].double().unflatten(0, shape)

        attention = outputs.attention.detach().double()
        _, heads, _, pieces = weights.shape
        width = int(getattr(self.network.config, "hidden_size", 768))
        held = 12 * width if state is not None else pieces * (8 * width + 4 * heads * pieces)
        return Readout(
            attention=attention / attention.sum(-1, keepdim=True),
            content=outputs.content,
            example_id=batch.example_id,
            task=self.task,
            decode=by_passes if state is None else by_tail,
            recorded=outputs.logits.detach().double(),
            activations=count * (4 * lifting.rows.shape[1] * (pieces + batch.ids.shape[1]) + held),
        )

    def summed(self, batch: Batch, outputs: Outputs) -> Summed:
        """Of each of the site's heads the values, at the pooled row."""
        with torch.no_grad():
            one = self.recorded(batch)
        assert one.values is not None
        chosen = self.selection(batch)
        return Summed(
            chosen.of(one.weights), one.values[:, chosen.heads], self.word_of(batch), chosen.mask
        )

    def at_sites(self, batch: Batch) -> Iterator[AtSite]:
        """The attention at each site, and what would be predicted under another one there: by the
        short way at the last layer's pooled row, where there is one, else by whole passes."""
        kept: list[Seen] = []
        states: list[Tensor] = []
        with torch.no_grad(), self.tail.keeping(states) if self.tail else nullcontext():
            logits = self.run(batch, Pass(keep=kept.append))
        for name, site in self.every_site.items():
            one = kept[site.layer]
            if one.weights.shape[-1] != self.padded(batch)[1].shape[1]:
                continue  # over something other than this text
            outputs = self._outputs_at(batch, logits, one, site)
            state = states[-1] if states and site.layer == len(kept) - 1 else None
            yield AtSite(
                name, outputs, self.readout(batch, outputs, site=site, seen=one, state=state)
            )

    def layers(self, batch: Batch, kept: list[Seen] | None = None) -> Layers | None:
        """None where an attention is over something else than the text's pieces (a decoder's,
        crossing). What a pass of the network leaves of all attentions is added to `kept`."""
        kept = [] if kept is None else kept
        with torch.no_grad():
            self.run(batch, Pass(keep=kept.append))
        size = self.padded(batch)[1].shape[1]
        if self.network.config.is_encoder_decoder or any(
            one.weights.shape[-2:] != (size, size) for one in kept
        ):
            return None
        chosen = self.selection(batch)
        return Layers(
            [one.weights.double() for one in kept], chosen.query, chosen.mask, [True] * len(kept)
        )

    def linearised(self, batch: Batch) -> Linearised | str:
        """What its layers do to their vectors, from one pass that is watched; else why that is not
        known."""
        kept: list[Seen] = []
        every = self.layers(batch, kept)
        if every is None:
            return "its attention is not over the text's own pieces alone"
        return linearise(self.network, lambda one: self.run(batch, one), kept, every, self.order)

    def states_silencing(
        self, batch: Batch, layer: int | None, part: int
    ) -> Sequence[Float[Tensor, "batch pieces hidden"]]:
        """The network's hidden states. A value of 0 and a weight of 0 that nothing makes up for are
        the same."""
        one = Pass()
        states = list[Tensor]()
        if layer is not None:
            gone = torch.tensor([part], device=batch.ids.device)
            one = Pass(layer, lambda own: own.index_fill(-1, gone, 0))
        with torch.no_grad():
            self.run(batch, one, states)
        return states

    def without(
        self, batch: Batch, example: Int[Tensor, "texts"], position: Int[Tensor, "texts"]
    ) -> Batch:
        """The texts of `example`, each without the word at `position`: its pieces gone, or masked
        (`removal`)."""
        many = batch.rows(example)
        assert many.pieces is not None
        assert many.piece_word is not None
        assert many.piece_kind is not None
        of_word = many.piece_word == position.unsqueeze(1)
        if (
            self.removal == "mask" and self.mask is not None
        ):  # the word stays, so that nothing moves
            return replace(many, pieces=torch.where(of_word, self.mask, many.pieces))
        # the others move up, in their order, and padding fills the end
        order = of_word.long().argsort(dim=1, stable=True)
        gone = of_word.gather(1, order)
        word = many.piece_word - (many.piece_word > position.unsqueeze(1)).long()
        return replace(
            batch.without(example, position),
            pieces=many.pieces.gather(1, order).masked_fill(gone, 0),
            piece_word=word.gather(1, order).masked_fill(gone, -2),
            piece_kind=many.piece_kind.gather(1, order).masked_fill(gone, 0),
        )

    def masked(self, batch: Batch, gone: Bool[Tensor, "batch tokens"]) -> Batch:
        """The texts with the tokenizer's mask token in the place of every piece of these words."""
        if self.mask is None:
            raise UserError(
                f"model.path={self.path}: its tokenizer has no mask token, which training=masked and the operator mask put "
                f"in a word's place: take another training, and operators without mask"
            )
        assert batch.pieces is not None
        assert batch.piece_word is not None
        of_gone = gone.gather(1, batch.piece_word.clamp(min=0)) & (batch.piece_word >= 0)
        return replace(batch, pieces=batch.pieces.masked_fill(of_gone, self.mask))

    def stages(self) -> dict[str, list[str]]:
        """`head`, after the last layer; `layer_N`; `embeddings`, before the first one."""
        names = [name for name, _ in self.named_parameters()]
        layers = [
            next((f"layer_{word}" for word in name.split(".") if word.isdigit()), "")
            for name in names
        ]
        found: dict[str, list[str]] = {}
        for place in reversed(range(len(names))):
            outside = "head" if any(layers[:place]) else "embeddings"
            found.setdefault(layers[place] or outside, []).append(names[place])
        return found

    def parameter_groups(self) -> list[dict[str, Any]]:
        """No weight decay on biases and on the scales of normalisations."""
        every = [parameter for parameter in self.parameters() if parameter.requires_grad]
        return [
            {"params": [parameter for parameter in every if parameter.ndim > 1]},
            {
                "params": [parameter for parameter in every if parameter.ndim <= 1],
                "weight_decay": 0.0,
            },
        ]
