"""The attention classifier, in three stages: encode the text, attend to its states, decode.

    embedding: a vector per word     →  encoder: a state per position
    attention: a weight per position →  decoder: logits of the weighted mean of the states

Every experiment of the field replaces the result of one of these stages.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnprobe.core.batch import Batch, Outputs, Task
from attnprobe.core.errors import UserError
from attnprobe.core.readout import Readout
from attnprobe.models.attention import Attention
from attnprobe.models.base import Summed, Unit, build
from attnprobe.models.decoders import Decoder, LinearDecoder
from attnprobe.models.encoders import Encoder, TextEncoder
from attnprobe.models.hierarchical import gather_words, sentence_layout, sentence_of_word
from attnprobe.models.linearised_layers import Block, Linearised, Stage, pooling
from attnprobe.models.recipe import Recipe
from attnprobe.models.trained import TrainedModel, without_decay_of_vectors
from attnprobe.models.transformer import PooledRowDecoder, TransformerEncoder


class AttentionClassifier(TrainedModel):
    """A classifier that predicts from the attention-weighted mean of its encoder's states.

    Args:
        embeddings: initial word vectors `[vocabulary, embed]`; row 0 is padding and stays zero.
        encoder: input_size → TextEncoder (of tokens, or of sentences:
            attnprobe.models.hierarchical). One that reads pieces has vectors of its own, and
            `embeddings` are the questions' alone.
        attention: hidden_size, query_size → Attention.
        decoder: hidden_size, classes, query_size, exclusive → Decoder.
        classes: see `TrainedModel`.
        task: see `TrainedModel`.
        class_weight: see `TrainedModel`.
        question_encoder: input_size → Encoder of the question, with word vectors of its own; None
            for tasks without a question.
        recipe: see `TrainedModel`.
        unit: what a position of the attention is. Words may be gathered into sentences
            (`attnprobe.models.hierarchical.gather_words`): a sentence's weight is the sum of its
            words' weights, and the predictions are what they were.

    Raises:
        UserError: the encoder's first state is the query (pooling=cls), and a question would be
            the query, too.
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
        unit: Unit = Unit.WORD,
    ) -> None:
        super().__init__(classes, task, class_weight, recipe)
        input_size = embeddings.shape[1]

        text_encoder = build("model.encoder", encoder, input_size=input_size)
        self.reader = text_encoder.reader
        if self.reader is None:
            self.embedding = trainable_embedding(embeddings)
        # after the vectors: parts are in order from the text to the output
        self.encoder = text_encoder
        self.mask = self.encoder.mask
        self.precision = self.encoder.precision
        self.unit = self.encoder.unit if unit is Unit.WORD else unit
        self.gathers_words = self.unit is not self.encoder.unit
        self.has_layers = isinstance(self.encoder, TransformerEncoder) and not self.gathers_words

        self.question_embedding: nn.Embedding | None = None
        self.question_encoder: Encoder | None = None
        query_size = None
        if question_encoder is not None:
            self.question_embedding = trainable_embedding(embeddings)
            self.question_encoder = build(
                "model.question_encoder",
                question_encoder,
                input_size=input_size,
            )
            query_size = self.question_encoder.size
        if self.encoder.asks:
            if question_encoder is not None:
                raise UserError(
                    "model/pooling=cls asks with the text's first state, and task=qa with a "
                    "question: take one of them"
                )
            query_size = self.encoder.size

        hidden_size = self.encoder.size
        self.attention = build(
            "model.attention",
            attention,
            hidden_size=hidden_size,
            query_size=query_size,
        )
        self.decoder = build(
            "model.decoder",
            decoder,
            hidden_size=hidden_size,
            classes=classes,
            query_size=query_size,
            exclusive=task is Task.SINGLE_LABEL,
        )

    def prepare(self, batch: Batch) -> None:
        """Refuse texts that the encoder cannot read, or that are not split into sentences."""
        self.encoder.check(batch)
        if self.unit is Unit.SENTENCE:
            sentence_layout(batch)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """As of any model; a pretrained one has no weight decay on biases and scales."""
        groups = super().parameter_groups()
        if not self.encoder.pretrained:
            return groups
        return [part for group in groups for part in without_decay_of_vectors(group)]

    def inputs(self, batch: Batch) -> Float[Tensor, "batch parts embed"]:
        """Look up the vectors of a batch's words, or of their pieces; of words, padding is zero."""
        if self.reader is not None:
            return self.encoder.inputs(batch)
        return self.embedding(batch.ids)

    def position_of(self, batch: Batch) -> Int[Tensor, "batch tokens"]:
        """The word's own position, or that of its sentence; see the base class."""
        if self.unit is Unit.WORD:
            return super().position_of(batch)
        return sentence_of_word(batch)

    def query(
        self,
        batch: Batch,
        hidden: Float[Tensor, "batch seq hidden"],
    ) -> Float[Tensor, "batch query"] | None:
        """Compute the vector that the attention compares each state with.

        Args:
            batch: the texts, and their questions where the task has questions.
            hidden: the encoder's states of the texts.

        Returns:
            The question encoder's summary of the question; the text's first state, where the
            encoder asks with that; None where the attention has no query.

        Raises:
            UserError: the model reads questions and the batch has none, or the other way round.
        """
        if self.question_encoder is None or self.question_embedding is None:
            if batch.question is not None:
                raise UserError(
                    "the data set asks questions, but this model does not read them: add task=qa, "
                    "or leave the questions out with data.question=null"
                )
            return hidden[:, 0] if self.encoder.asks else None

        if batch.question is None or batch.question_mask is None:
            raise UserError(
                "this model reads a question, but the data set gives none: set data.question to "
                "its column, or take a data set with questions, such as data=stories"
            )
        vectors = self.question_embedding(batch.question)
        states = self.question_encoder(vectors, batch.question_mask, batch.question_mask)
        return self.question_encoder.summary(states, batch.question_mask)

    def attend(
        self,
        hidden: Float[Tensor, "batch seq hidden"],
        content: Bool[Tensor, "batch seq"],
        query: Float[Tensor, "batch query"] | None = None,
        imposed: Float[Tensor, "batch positions"] | None = None,
    ) -> tuple[Float[Tensor, "batch seq"], Float[Tensor, "batch seq"]]:
        """Give every position a weight.

        Args:
            hidden: the encoder's states.
            content: the positions that may have weight.
            query: see `query`.
            imposed: an attention that does not come from the states (`Attention.given`). It is
                used as it is, to the last digit; no gradient flows through it.

        Returns:
            Scores before the softmax, −∞ outside `content`, and the attention: 0 or more, 0 outside
            `content`, sums to 1.

        Raises:
            UserError: the attention is imposed on words, and the model attends to larger units.
        """
        if imposed is not None:
            if self.encoder.unit is not Unit.WORD:
                raise UserError(
                    f"model.attention={type(self.attention).__name__} is given over the words, and "
                    f"this model attends to larger units: take a model that attends to words, "
                    f"such as model=lstm"
                )
            attention = imposed.to(hidden.dtype)
            return attention.log(), attention

        scores = self.attention(hidden, query).masked_fill(~content, -torch.inf)
        return scores, self.attention.weights(scores, content)

    def outputs_from(
        self,
        batch: Batch,
        inputs: Float[Tensor, "batch parts embed"] | None = None,
        attention: Float[Tensor, "batch seq"] | None = None,
    ) -> Outputs:
        """Encode, attend, decode; see `Model.outputs_from`."""
        if inputs is None and batch.question is not None:
            states = self._states_of_distinct_texts(batch)
        else:
            vectors = self.inputs(batch) if inputs is None else inputs
            states = self.encoder.states(vectors, batch)
        return self._decoded(batch, *states, attention)

    def _states_of_distinct_texts(
        self, batch: Batch
    ) -> tuple[
        Float[Tensor, "batch seq hidden"],
        Bool[Tensor, "batch seq"],
        Float[Tensor, "batch tokens"] | None,
    ]:
        """Encode a text once, however many questions in a row are asked of it."""
        texts, text = batch.distinct_texts()
        hidden, content, word_attention = self.encoder.states(self.inputs(texts), texts)
        if len(texts) == len(batch):
            return hidden, content, word_attention
        if len(texts) == 1:  # however many rows it has, its states are there once
            if word_attention is not None:
                word_attention = word_attention.expand(len(batch), -1)
            return hidden.expand(len(batch), -1, -1), content.expand(len(batch), -1), word_attention
        if word_attention is not None:
            word_attention = word_attention[text]
        return hidden[text], content[text], word_attention

    def scaled(self, batch: Batch) -> tuple[Float[Tensor, "batch parts"], Outputs]:
        """Run the model on scaled word vectors; see `Model.scaled`.

        Each distinct word is looked up once.
        """
        if self.reader is not None:
            return super().scaled(batch)
        words, word_of_token = batch.ids.unique(return_inverse=True)
        vectors = self.embedding(words).detach()
        scale = torch.ones_like(word_of_token, dtype=vectors.dtype).requires_grad_()
        states = self.encoder.states_of_words(vectors, word_of_token, batch, scale)
        return scale, self._decoded(batch, *states)

    def outputs_of_repeated_words(self, batch: Batch) -> Outputs:
        """As `forward`, with each distinct word looked up once; see the base class."""
        if self.reader is not None:
            return super().outputs_of_repeated_words(batch)
        words, word_of_token = batch.ids.unique(return_inverse=True)
        states = self.encoder.states_of_words(self.embedding(words), word_of_token, batch)
        return self._decoded(batch, *states)

    def _decoded(
        self,
        batch: Batch,
        hidden: Float[Tensor, "batch seq hidden"],
        content: Bool[Tensor, "batch seq"],
        word_attention: Float[Tensor, "batch tokens"] | None,
        attention: Float[Tensor, "batch positions"] | None = None,
    ) -> Outputs:
        """Attend and decode, from what the encoder's `states` returned."""
        query = self.query(batch, hidden)
        if attention is None or self.gathers_words:
            scores, weights = self.attend(hidden, content, query, self.attention.given(batch))
        if self.gathers_words:
            hidden, weights, content, word_attention = gather_words(batch, hidden, weights)
            scores = weights.log()
        if attention is None:
            attention = weights
        else:
            scores = attention.log()

        logits = self.decoder.decode(hidden, attention, query, batch.candidates)
        return Outputs(logits, attention, scores, hidden, content, query, word_attention)

    def under(self, batch: Batch, scale: Tensor, outputs: Outputs, attention: Tensor) -> Outputs:
        """Decode the states of `outputs` under another attention, without encoding them again."""
        logits = self.decoder.decode(outputs.hidden, attention, outputs.query, batch.candidates)
        return replace(outputs, logits=logits, attention=attention, scores=attention.log())

    def readout(self, batch: Batch, outputs: Outputs) -> Readout:
        """Freeze the map from attention to prediction of this batch, in float64.

        A linear decoder is replaced by its position logits; any other decoder is called again for
        every attention.
        """
        # a copy: float64 arithmetic and its autograd graphs never touch the model's own weights
        decoder = deepcopy(self.decoder).double().requires_grad_(False)
        hidden = outputs.hidden.detach().double()
        query = None if outputs.query is None else outputs.query.detach().double()
        attention = outputs.attention.detach().double()

        readout = Readout(
            # float32 rounded it: normalised here, so that every reader may rely on a sum of 1
            attention=attention / attention.sum(-1, keepdim=True),
            content=outputs.content,
            example_id=batch.example_id,
            task=self.task,
            recorded=outputs.logits.detach().double(),
        )
        if decoder.linear:
            logits, bias = decoder.position_logits(hidden, query, batch.candidates)
            return replace(readout, position_logits=logits, unattended=bias)

        decode = partial(decoder.decode, hidden, query=query, candidates=batch.candidates)
        return replace(
            readout,
            decode=decode,
            unattended=decode(torch.zeros_like(attention)),
            # the attended vectors, and what the decoder makes of them
            activations=2 * len(hidden) * hidden.shape[-1],
        )

    def summed(self, batch: Batch, outputs: Outputs) -> Summed:
        """The vectors by whose weighted sum the attention enters the prediction.

        Returns:
            The states; with a linear decoder the position logits instead (of exclusive classes: how
            far each lies above that of the first class).
        """
        values = self.readout(batch, outputs).position_logits
        if values is None:
            values = outputs.hidden.detach().double()
        elif self.task is Task.SINGLE_LABEL:
            values = values[..., 1:] - values[..., :1]

        position = torch.arange(values.shape[1], device=values.device)
        return Summed(
            weights=outputs.attention.detach().unsqueeze(1),
            values=values.unsqueeze(1),
            word=position.expand(values.shape[:2]),
            attendable=outputs.content,
        )

    def linearised(self, batch: Batch) -> Linearised | str:
        """Linearise a transformer's layers on this batch; see `Model.linearised`."""
        if not self.has_layers:
            return super().linearised(batch)
        return self._trace_layers(batch)[0]

    def states_silencing(
        self,
        batch: Batch,
        layer: int | None,
        part: int,
    ) -> Sequence[Float[Tensor, "batch parts hidden"]]:
        """Compute a transformer's states; see `Model.states_silencing`."""
        return self._trace_layers(batch, layer, part)[1]

    @torch.no_grad()
    def _trace_layers(
        self,
        batch: Batch,
        silenced_layer: int | None = None,
        silenced_part: int = 0,
    ) -> tuple[Linearised, list[Tensor]]:
        """Run a transformer once, and record what each layer does and returns.

        The classifier's own attention and decoder count as the last layer. Its result is the same
        at every position, since one vector decides.

        Args:
            batch: the texts.
            silenced_layer: the layer in which a part is silenced; None: nothing is.
            silenced_part: the position whose value is 0 there.

        Returns:
            The layers, linearised, and the states before the first layer and after each.
        """
        encoder = self.encoder
        assert isinstance(encoder, TransformerEncoder)
        blocks, states = encoder.trace(
            self.inputs(batch),
            batch.mask,
            silenced_layer,
            silenced_part,
        )
        hidden = states[-1]

        # the classifier's own attention
        query = self.query(batch, hidden)
        imposed = self.attention.given(batch)
        _, attention = self.attend(hidden, batch.content, query, imposed)
        weighted = attention.unsqueeze(-1) * hidden
        if silenced_layer == len(encoder.layers):
            weighted[:, silenced_part] = 0
        attended = weighted.sum(1, keepdim=True).expand_as(hidden)

        # the decoder, as far as it can be taken apart
        mixing = pooling(hidden, attention, attended, adds_input=encoder.asks)
        last = Block(mixing, None)
        head: list[Stage] = []
        unknown = ""
        if isinstance(self.decoder, PooledRowDecoder) and encoder.asks:
            last, head, attended = self.decoder.linearised(mixing, attended)
        elif type(self.decoder) is LinearDecoder and batch.candidates is None:
            head = [self.decoder.affine()]
        else:
            unknown = f"{type(self.decoder).__name__} is not taken apart"

        linearised = Linearised(
            blocks=[*blocks, last],
            row=torch.zeros(len(batch), dtype=torch.long, device=hidden.device),
            mask=batch.mask,
            head=head,
            unknown=unknown,
        )
        return linearised, [*states, attended]


def trainable_embedding(vectors: Float[Tensor, "vocabulary embed"]) -> nn.Embedding:
    """Copy word vectors into an embedding, so that two models do not train each other's."""
    return nn.Embedding.from_pretrained(vectors.clone(), freeze=False, padding_idx=0)
