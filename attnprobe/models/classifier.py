"""The attention classifier of three public stages: encode, attend, decode."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnprobe.core.batch import Batch, Outputs, Task
from attnprobe.core.errors import UserError
from attnprobe.core.readout import Readout
from attnprobe.models.attention import Attention
from attnprobe.models.base import Summed, Unit, build
from attnprobe.models.decoders import Decoder, LinearDecoder
from attnprobe.models.encoders import Encoder, TextEncoder
from attnprobe.models.linearised_layers import (
    Affine,
    Block,
    Linearised,
    Mixing,
    Stage,
    affine_of,
    norm_of,
)
from attnprobe.models.recipe import Recipe
from attnprobe.models.trained import TrainedModel
from attnprobe.models.transformer import Layer, PooledRowDecoder, TransformerEncoder, fed_forward

EXCLUDED = 64.0
"""By how much the logit of a class that is no candidate lies below all others: e^−64 is nothing in
float64."""


class AttentionClassifier(TrainedModel):
    """Embeddings → encoder → `attend` → decoder. Every experiment of the field replaces one stage's
    result.

    Args:
        embeddings: initial word vectors `[vocabulary, embed]`; row 0 is padding and stays zero.
        encoder: input_size → TextEncoder (of tokens, or of sentences:
            attnprobe.models.hierarchical).
        attention: hidden_size, query_size → Attention.
        decoder: hidden_size, classes, query_size, exclusive → Decoder.
        question_encoder: input_size → Encoder of the question, with word vectors of its own, or
        None. classes, task, class_weight, recipe: see `TrainedModel`.
    """

    is_summed = True

    def __init__(
        self,
        *,
        embeddings: Float[Tensor, "vocabulary embed"],
        encoder: Callable[..., TextEncoder],
        attention: Callable[..., Attention],
        decoder: Callable[..., Decoder],
        classes: int,
        task: Task = Task.SINGLE_LABEL,
        class_weight: Float[Tensor, "classes"] | None = None,
        question_encoder: Callable[..., Encoder] | None = None,
        recipe: Recipe | None = None,
    ) -> None:
        super().__init__(classes, task, class_weight, recipe)
        # copied, so that two classifiers started from one matrix do not train each other
        self.embedding = nn.Embedding.from_pretrained(
            embeddings.clone(), freeze=False, padding_idx=0
        )
        self.encoder = build("model.encoder", encoder, input_size=embeddings.shape[1])
        self.unit = self.encoder.unit
        self.has_layers = isinstance(self.encoder, TransformerEncoder)
        self.question_embedding: nn.Embedding | None = None
        self.question_encoder: Encoder | None = None
        query_size = None
        if question_encoder is not None:
            self.question_embedding = nn.Embedding.from_pretrained(
                embeddings.clone(), freeze=False, padding_idx=0
            )
            self.question_encoder = build(
                "model.question_encoder", question_encoder, input_size=embeddings.shape[1]
            )
            query_size = self.question_encoder.size
        if self.encoder.asks:
            if question_encoder is not None:
                raise UserError(
                    "model/pooling=cls asks with the text's first state, and task=qa with a question: take one of them"
                )
            query_size = self.encoder.size
        self.attention = build(
            "model.attention", attention, hidden_size=self.encoder.size, query_size=query_size
        )
        size = self.encoder.size
        exclusive = task is Task.SINGLE_LABEL
        self.decoder = build(
            "model.decoder",
            decoder,
            hidden_size=size,
            classes=classes,
            query_size=query_size,
            exclusive=exclusive,
        )

    def query(
        self, batch: Batch, hidden: Float[Tensor, "batch seq hidden"]
    ) -> Float[Tensor, "batch query"] | None:
        """What the attention is asked with: a pooled row's own state, the question's last one, or
        nothing."""
        if self.question_encoder is None or self.question_embedding is None:
            if batch.question is not None:
                raise UserError(
                    "the data set asks questions, but this model does not read them: add task=qa, or leave the "
                    "questions out with data.question=null"
                )
            return hidden[:, 0] if self.encoder.asks else None
        if batch.question is None or batch.question_mask is None:
            raise UserError(
                "this model reads a question, but the data set gives none: set data.question to its column, or take a "
                "data set with questions, such as data=stories"
            )
        vectors = self.question_embedding(batch.question)
        mask = batch.question_mask
        return self.question_encoder.summary(self.question_encoder(vectors, mask, mask), mask)

    def attend(
        self,
        hidden: Float[Tensor, "batch seq hidden"],
        content: Bool[Tensor, "batch seq"],
        query: Float[Tensor, "batch query"] | None = None,
        given: Float[Tensor, "batch positions"] | None = None,
    ) -> tuple[Float[Tensor, "batch seq"], Float[Tensor, "batch seq"]]:
        """Scores (−inf outside content) and attention (0 outside content, sums to 1).

        `given` (`Attention.given`) is taken to the last digit; no gradient flows through it.
        """
        if given is not None:
            if self.unit is not Unit.WORD:
                raise UserError(
                    f"model.attention={type(self.attention).__name__} is given over the words, and this model attends to "
                    f"larger units: take a model that attends to words, such as model=lstm"
                )
            given = given.to(hidden.dtype)
            return given.log(), given
        scores = self.attention(hidden, query).masked_fill(~content, -torch.inf)
        return scores, self.attention.weights(scores, content)

    def inputs(self, batch: Batch) -> Float[Tensor, "batch tokens embed"]:
        return self.embedding(batch.ids)

    def outputs_from(
        self,
        batch: Batch,
        inputs: Float[Tensor, "batch tokens embed"] | None = None,
        attention: Float[Tensor, "batch seq"] | None = None,
    ) -> Outputs:
        """Encode, attend, decode, on request from other word vectors; `attention` takes the place
        of the model's own."""
        vectors = self.inputs(batch) if inputs is None else inputs
        return self._attended(batch, *self.encoder.states(vectors, batch), attention)

    def scaled(self, batch: Batch) -> tuple[Float[Tensor, "batch tokens"], Outputs]:
        """As the base class has it, with each distinct word looked up once."""
        distinct, which = batch.ids.unique(return_inverse=True)
        words = self.embedding(distinct).detach()
        scale = torch.ones_like(which, dtype=words.dtype).requires_grad_()
        states = self.encoder.scaled_states(words, which, scale, batch)
        return scale, self._attended(batch, *states, None)

    def _attended(
        self,
        batch: Batch,
        hidden: Float[Tensor, "batch seq hidden"],
        content: Bool[Tensor, "batch seq"],
        word_attention: Float[Tensor, "batch tokens"] | None,
        attention: Float[Tensor, "batch seq"] | None,
    ) -> Outputs:
        """Attend and decode, from what the encoder's `states` returned."""
        query = self.query(batch, hidden)
        if attention is None:
            scores, attention = self.attend(hidden, content, query, self.attention.given(batch))
        else:
            scores = attention.log()
        logits = self.decoder.decode(hidden, attention, query, batch.candidates)
        return Outputs(logits, attention, scores, hidden, content, query, word_attention)

    def under(self, batch: Batch, scale: Tensor, outputs: Outputs, attention: Tensor) -> Outputs:
        logits = self.decoder.decode(outputs.hidden, attention, outputs.query, batch.candidates)
        return replace(outputs, logits=logits, attention=attention, scores=attention.log())

    def readout(self, batch: Batch, outputs: Outputs) -> Readout:
        hidden = outputs.hidden.detach().double()
        attention = outputs.attention.detach().double()
        # A copy, so that float64 arithmetic (and its autograd graphs) never touches the model's own
        # weights.
        decoder = deepcopy(self.decoder).double().requires_grad_(False)
        query = None if outputs.query is None else outputs.query.detach().double()
        facts: dict[str, Any] = {
            # float32 rounding: renormalise once, so that everything downstream may rely on a sum of
            # 1
            "attention": attention / attention.sum(-1, keepdim=True),
            "content": outputs.content,
            "example_id": batch.example_id,
            "task": self.task,
            "recorded": outputs.logits.detach().double(),
        }
        if decoder.linear:
            logits = decoder(hidden.transpose(0, 1), query)
            bias = decoder(torch.zeros_like(hidden[:, 0]), query)
            if batch.candidates is not None:
                # −∞ has no mean with a weight of 0: the same finite number at every position, which
                # no mixture moves
                never = torch.minimum(logits.amin((0, 2)), bias.amin(-1)).unsqueeze(-1) - EXCLUDED
                logits, bias = (
                    torch.where(batch.candidates, each, never) for each in (logits, bias)
                )
            return Readout(position_logits=logits.transpose(0, 1), unattended=bias, **facts)
        # the attended vectors, and what the decoder makes of them
        facts["activations"] = 2 * len(hidden) * hidden.shape[-1]
        decode = partial(decoder.decode, hidden, query=query, candidates=batch.candidates)
        return Readout(decode=decode, unattended=decode(torch.zeros_like(attention)), **facts)

    def summed(self, batch: Batch, outputs: Outputs) -> Summed:
        """The states; with a linear decoder what each gives to the classes, of exclusive ones
        against the first."""
        values = self.readout(batch, outputs).position_logits
        if values is None:
            values = outputs.hidden.detach().double()
        elif self.task is Task.SINGLE_LABEL:
            values = values[..., 1:] - values[..., :1]
        place = torch.arange(values.shape[1], device=values.device).expand(values.shape[:2])
        return Summed(
            outputs.attention.detach().unsqueeze(1), values.unsqueeze(1), place, outputs.content
        )

    def linearised(self, batch: Batch) -> Linearised | str:
        return self._followed(batch)[0] if self.has_layers else super().linearised(batch)

    def states_silencing(
        self, batch: Batch, layer: int | None, part: int
    ) -> Sequence[Float[Tensor, "batch parts hidden"]]:
        return self._followed(batch, layer, part)[1]

    def _followed(
        self, batch: Batch, silenced: int | None = None, part: int = 0
    ) -> tuple[Linearised, list[Tensor]]:
        """What the layers do, and the states before the first and after each; in the layer that is
        `silenced` the value of a part is 0. The classifier's attention and decoder are the last
        layer, each row of which is the one that decides."""
        encoder = self.encoder
        decoder = self.decoder
        device = batch.ids.device
        assert isinstance(encoder, TransformerEncoder)
        part_of_layer = {silenced: torch.tensor([part], device=device)}
        none = torch.zeros(0, dtype=torch.long, device=device)
        blocks: list[Block] = []
        with torch.no_grad():
            states = [encoder.below(self.inputs(batch))]
            for number, layer in enumerate(encoder.layers):
                assert isinstance(layer, Layer)
                block, after = layer.linearised(
                    states[-1], batch.mask, part_of_layer.get(number, none)
                )
                blocks.append(block)
                states.append(after)
            assert blocks[-1].inner is not None
            inner = blocks[-1].inner._replace(after=norm_of(encoder.norm, states[-1]))
            blocks[-1] = blocks[-1]._replace(inner=inner)
            hidden = states[-1] = encoder.norm(states[-1]) * batch.mask.unsqueeze(-1)
            query = self.query(batch, hidden)
            attention = self.attend(hidden, batch.content, query, self.attention.given(batch))[1]
            moved = (attention.unsqueeze(-1) * hidden).index_fill(
                1, part_of_layer.get(len(encoder.layers), none), 0
            )
            attended = moved.sum(1, keepdim=True).expand_as(hidden)
            wide = hidden.double()
            size = hidden.shape[-1]
            same = Affine(torch.eye(size, dtype=torch.float64, device=device), wide.new_zeros(size))
            weights = attention.double()[:, None, None].expand(-1, 1, hidden.shape[1], -1)
            mixing = Mixing(
                wide,
                None,
                same,
                weights,
                wide.unsqueeze(1),
                same,
                None,
                encoder.asks,
                attended.double(),
            )
            last = Block(mixing, None)
            head = list[Stage]()
            unknown = ""
            if isinstance(decoder, PooledRowDecoder) and encoder.asks:
                total = hidden + decoder.values(attended)
                inner, attended = fed_forward(
                    decoder.before_inner, decoder.inner[0], decoder.inner[2], total
                )
                inner = inner._replace(after=norm_of(decoder.norm, attended))
                mixing = mixing._replace(output=affine_of(decoder.values), result=total.double())
                last = Block(mixing, inner)
                head = [affine_of(decoder.output)]
                attended = decoder.norm(attended)
            elif type(decoder) is LinearDecoder and batch.candidates is None:
                weight, bias = affine_of(decoder.output)
                if decoder.single_logit:
                    weight = F.pad(weight, (0, 0, 1, 0))
                    bias = F.pad(bias, (1, 0))
                head = [Affine(weight, bias)]
            else:
                unknown = f"{type(decoder).__name__} is not taken apart"
        first = torch.zeros(len(batch), dtype=torch.long, device=device)
        return Linearised([*blocks, last], first, batch.mask, head, unknown), [*states, attended]
