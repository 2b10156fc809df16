"""A classifier of `transformers` as a model that probes can examine: one weight per word, at one site."""

from collections.abc import Iterator, Sequence
from inspect import signature
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnprobe.batch import Batch, Outputs, Task
from attnprobe.errors import UserError
from attnprobe.models.base import AtSite, Summed
from attnprobe.models.classifier import Recipe
from attnprobe.models.pretrained.anatomy import anatomy_of
from attnprobe.models.pretrained.check import LIMITS, Found, examine_attention, is_finite_in_double
from attnprobe.models.pretrained.checkpoint import open_checkpoint
from attnprobe.models.pretrained.doors import Pass, during, embedded
from attnprobe.models.pretrained.every import at_every_site, every_site
from attnprobe.models.pretrained.layers import arguments, layers_of, states_silencing, word_of
from attnprobe.models.pretrained.removing import masked, without_word
from attnprobe.models.pretrained.replacing import padded, readout_of, summed_of
from attnprobe.models.pretrained.rows import Lifting, masses, mean_row, membership, shown
from attnprobe.models.pretrained.short_way import ShortWay
from attnprobe.models.pretrained.site import Queries, Selection, Site, part_of
from attnprobe.models.pretrained.upper import UpperLayers
from attnprobe.models.trained import TrainedModel
from attnprobe.readout import Readout

LARGE = 5_000_000
"""Parameters from which a network is examined in float32."""
REMOVALS = ("delete", "mask")
"""What leave-one-out does with a word: its pieces go, or the tokenizer's mask stands in their places."""


class PretrainedClassifier(TrainedModel):
    """A sequence classifier of `transformers`. Its attention is the mean, per word, of the rows of a site.

    Args:
        name: what it is called in tables and paths.
        path: a folder as `save_pretrained` writes it, or a name on the hub.
        class_names: names of the data's classes, in their order.
        task: one class per text, or any subset of the labels.
        trains: it will be fine-tuned (else its labels must be the data's, by name).
        layer, heads, rows: see `attnprobe.models.pretrained.site.Site`.
        max_pieces: longest text in pieces; None: 512, or what the model takes if that is less.
        removal: what leave-one-out does with a word: `delete` or `mask`.
        offline: never ask the hub, only folders and its cache.
        uniform: the attention of the `last` layer, or of `all`, gives every piece that a row may see the same weight, in
            training and after (Wiegreffe & Pinter 2019, section 3.2); None: as it is.
        short_way: compute what follows the last layer's attention alone, where that agrees with whole passes.
        class_weight, recipe: see `TrainedModel`.
    """

    def __init__(
        self,
        *,
        name: str,
        path: str,
        class_names: Sequence[str],
        task: Task = Task.SINGLE_LABEL,
        trains: bool = False,
        layer: int = -1,
        heads: Sequence[int] | None = None,
        rows: str = "pooled",
        max_pieces: int | None = None,
        removal: str = "delete",
        uniform: str | None = None,
        short_way: bool = True,
        offline: bool = False,
        class_weight: Float[Tensor, "classes"] | None = None,
        recipe: Recipe | None = None,
    ) -> None:
        super().__init__(len(class_names), task, class_weight, recipe)
        self.site = Site(layer, heads, rows)
        if removal not in REMOVALS:
            raise UserError(f"model.removal={removal}: expected {' or '.join(REMOVALS)}")
        if uniform not in (None, "last", "all"):
            raise UserError(f"model.uniform={uniform}: expected last, all or null")
        if max_pieces is not None and max_pieces < 8:
            raise UserError(f"model.max_pieces={max_pieces}: expected at least 8")
        opened = open_checkpoint(path, class_names, task, trains=trains, max_pieces=max_pieces, offline=offline)
        if removal == "mask" and opened.mask is None:
            raise UserError(f"model.removal=mask: the tokenizer of {path} has no mask token: take removal=delete")
        self.network: Any = opened.network.train()
        opened.network.config.use_cache = False
        self.reader = opened.reader
        self.order, self.mask, self.padding = opened.order, opened.mask, opened.padding
        self.path, self.removal, self.takes_short_way = path, removal, short_way
        self.uniform = uniform
        known = signature(self.network.forward).parameters
        self.has_kinds = "token_type_ids" in self.reader.tokenizer.model_input_names and "token_type_ids" in known
        self.computes_in_double = False
        self.found: Found | None = None
        self.tail: ShortWay | None = None
        self.upper: UpperLayers | Literal[False] | None = None

    @property
    def precision(self) -> torch.dtype:
        """float64 for small networks, float32 for large ones and for those that do not compute in float64."""
        return torch.float64 if self.computes_in_double else torch.float32

    @property
    def sites(self) -> Sequence[str]:
        """Of each layer all heads together, and each by itself."""
        return [] if self.found is None else [one.name for one in every_site(self.found.heads, self.site.rows)]

    def at_sites(self, batch: Batch) -> Iterator[AtSite]:
        """Each of these attentions on this batch, all of them seen in one pass of the network."""
        return at_every_site(self, batch)

    @property
    def facts(self) -> dict[str, Any]:
        """What the check found, for the manifest."""
        family = self.network.config.model_type
        checked = {} if self.found is None else self.found.facts
        heads = "all" if self.site.heads is None else "+".join(map(str, self.site.heads))
        site = f"layer {self.site.layer}, heads {heads}, {self.site.rows}"
        return {"family": family, "site": site, "short_way": self.tail is not None, **checked}

    def run(self, batch: Batch, one: Pass) -> Float[Tensor, "batch classes"]:
        """Logits of the data's classes, in one pass."""
        if self.found is not None and self.uniform is not None:
            one.even = range(self.found.calls) if self.uniform == "all" else [self.found.calls - 1]
        with during(one):
            logits: Tensor = self.network(**arguments(self, batch)).logits
        return logits[:, self.order]

    def prepare(self, batch: Batch) -> None:
        """Look at the network's attention, on texts some of which are padded; see `attnprobe.models.pretrained.check`.

        Raises:
            UserError: it cannot be examined, or has no such layer or head.
        """
        training = self.network.training
        self.network.eval()
        try:
            small = sum(parameter.numel() for parameter in self.network.parameters()) < LARGE
            self.computes_in_double = small and is_finite_in_double(self.network, lambda: self.run(batch, Pass()))
            mask = padded(batch, self.padding)[1]
            family = f"{self.network.config.model_type} ({self.path})"
            self.found = None  # looked at as it was made, without `uniform`
            self.found = examine_attention(self.network, lambda one: self.run(batch, one), mask, family)
            call = self.site.call(self.found.calls)
            if self.takes_short_way and call == self.found.calls - 1 and self.found.queries is not Queries.ALL:
                self.try_short_way(batch)
        finally:
            self.network.train(training)

    def try_short_way(self, batch: Batch) -> None:
        """Take it where it gives what whole passes give, and say why where it does not."""
        assert self.found is not None
        try:
            with torch.no_grad():
                recorded = self.recorded(batch)
                assert recorded.module is not None
                if recorded.values is None:
                    raise LookupError("its values are not seen through a dropout module")
                self.tail = ShortWay(self.network, recorded.module)
                outputs = self.outputs_from(batch, None)
                other = outputs.attention.double().roll(1, 0) + 0.1
                other = torch.where(outputs.content, other, 0)
                other = other / other.sum(-1, keepdim=True)
                whole = self.readout(batch, outputs, short=False).logits(other[None])
                apart = (self.readout(batch, outputs).logits(other[None]) - whole).abs().max()
            limit = LIMITS[self.network.dtype] * max(1.0, float(whole.abs().max()))
            self.found.differences["short way"] = float(apart)
            if apart <= limit:
                return
            why = f"differs by {float(apart):.2g}"
        except (LookupError, RuntimeError, TypeError, ValueError, AttributeError, IndexError, KeyError) as error:
            why = f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"
        self.tail = None
        self.found.remarks.append(f"no short way past the last attention ({why}): whole passes are taken")

    def recorded(self, batch: Batch) -> Pass:
        """One pass, with what was meant of its attention."""
        if self.found is None:
            self.prepare(batch)
        assert self.found is not None
        one = Pass(self.site.call(self.found.calls))
        self.run(batch, one)
        return one

    def selection(self, batch: Batch, heads: int, site: Site | None = None) -> Selection:
        """The rows of a site, the model's own if none is given."""
        assert self.found is not None
        site = site or self.site
        mask = padded(batch, self.padding)[1]
        queries = Queries.ALL if site.rows == "all" else self.found.queries
        query = None
        if queries is not Queries.ALL:
            last = mask.sum(1) - 1
            query = last if queries is Queries.LAST else torch.zeros_like(last)
        return Selection(site.chosen_heads(heads), query, mask)

    def forward(self, batch: Batch) -> Outputs:
        """Logits and attention per word."""
        return self.outputs_from(batch, None)

    def inputs(self, batch: Batch) -> Float[Tensor, "batch pieces embed"]:
        """The embeddings of the pieces, as the network looks them up."""
        result: Tensor = self.network.get_input_embeddings()(padded(batch, self.padding)[0])
        return result

    def per_position(self, batch: Batch, values: Float[Tensor, "batch pieces"]) -> Float[Tensor, "batch seq"]:
        """What belongs to pieces, summed for each word."""
        assert batch.piece_word is not None
        return torch.einsum("bp,bps->bs", values, membership(batch.piece_word, batch.content).to(values.dtype))

    def outputs_from(
        self,
        batch: Batch,
        inputs: Float[Tensor, "batch pieces embed"] | None,
        attention: Float[Tensor, "batch seq"] | None = None,
    ) -> Outputs:
        """One pass, on request from other embeddings and under another attention at the site (that of all other layers is
        what comes of it)."""
        if self.found is None:
            self.prepare(batch)
        assert self.found is not None
        assert batch.piece_word is not None
        member = membership(batch.piece_word, batch.content)

        def changed(own: Tensor) -> Tensor:
            assert attention is not None
            chosen = self.selection(batch, own.shape[1])
            return chosen.put(own, Lifting(chosen.of(own).detach(), member, chosen.valid)(attention.double()))

        one = Pass(self.site.call(self.found.calls), None if attention is None else changed)
        with embedded(self.network, padded(batch, self.padding)[0], inputs):
            logits = self.run(batch, one)
        assert one.recorded is not None
        chosen = self.selection(batch, one.recorded.shape[1])
        rows = chosen.of(one.recorded)
        recorded, on_text = shown(masses(rows, member), chosen.valid)
        if attention is None:
            attention = recorded.to(logits.dtype)
        scores = attention.log().masked_fill(~batch.content, -torch.inf)
        hidden = self.attended(one, rows, chosen, member, attention)
        of_pieces = mean_row(rows, chosen.valid).detach()
        off_text = 1 - on_text
        return Outputs(logits, attention, scores, hidden, batch.content, off_text=off_text, piece_attention=of_pieces)

    def attended(
        self, one: Pass, rows: Tensor, chosen: Selection, member: Tensor, attention: Tensor
    ) -> Float[Tensor, "batch seq hidden"]:
        """What the site moves of each word, all heads side by side, per unit of its attention; nothing where that is not
        seen (through a dropout module) or not wanted (in training, over all rows)."""
        if one.values is None or chosen.query is None or self.training:
            return attention.new_zeros(*attention.shape, 0)
        with torch.no_grad():
            values = one.values[:, chosen.heads].double()
            moved = torch.einsum("bhk,bhkd,bks->bshd", rows.double(), values, member).flatten(2)
            weight = attention.detach().double().unsqueeze(-1)
            return torch.where(weight > 0, moved / torch.where(weight > 0, weight, 1), 0).to(attention.dtype)

    def readout(self, batch: Batch, outputs: Outputs, *, short: bool = True) -> Readout:
        """The map "attention per word → probabilities": the least change of the site's rows, and what follows it.

        Args:
            short: take the short way past the last attention where there is one.
        """
        return readout_of(self, batch, outputs, self.tail if short else None)

    has_layers, masked = True, masked
    layers, anatomy = layers_of, anatomy_of
    word_of, states_silencing = word_of, states_silencing

    @property
    def is_summed(self) -> bool:
        """Where the short way holds: it is nothing but this."""
        return self.tail is not None

    def summed(self, batch: Batch, outputs: Outputs) -> Summed:
        """Of each head its values."""
        return summed_of(self, batch)

    @property
    def call(self) -> int:
        """The number of the site's attention in a pass."""
        assert self.found is not None
        return self.site.call(self.found.calls)

    def without(self, batch: Batch, example: Int[Tensor, "texts"], position: Int[Tensor, "texts"]) -> Batch:
        """The texts of `example`, each without the word at `position`: its pieces gone, or masked (`removal`)."""
        return without_word(batch, example, position, self.mask if self.removal == "mask" else None)

    def part_of(self, name: str) -> str:
        """`head`, `layer_N` or `embeddings`."""
        return part_of(name, [one for one, _ in self.named_parameters()])

    def parameter_groups(self) -> list[dict[str, Any]]:
        """No weight decay on biases and on the scales of normalisations."""
        every = [parameter for parameter in self.parameters() if parameter.requires_grad]
        matrices = [parameter for parameter in every if parameter.ndim > 1]
        return [
            {"params": matrices},
            {"params": [parameter for parameter in every if parameter.ndim <= 1], "weight_decay": 0.0},
        ]
