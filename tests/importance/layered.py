import itertools

import numpy as np
import torch

TEXTS = ["the film was unable", "a long dull story of people"]
"""`unable` is cut in two."""


def words_of(parts, batch, row):
    """The sum over each word's pieces, at its position."""
    sums = np.zeros(batch.ids.shape[1])
    for piece, word in enumerate(batch.piece_word[row].tolist()):
        if word >= 0:
            sums[word] += parts[piece]
    return sums


def inputs_of(batch, row):
    is_piece = batch.piece_word[row] > -2
    pieces = batch.pieces[row, is_piece]
    return pieces.unsqueeze(0)


def mixed_by_hand(layer, state, with_input, normalised):
    """The vectors `[i][j]` that an attention of a BERT adds up in each state, and the state after.

    By plain loops over its own modules: position j adds Σ_heads a_ij W_O W_V x_j to state i.
    `with_input`: its input is among them; `normalised`: after its layer normalisation, without the
    shift.
    """
    output = layer.attention.output
    positions = range(len(state))
    vectors = torch.zeros(len(state), *state.shape, dtype=state.dtype)
    for head in range(layer.attention.self.num_attention_heads):
        weights, added = head_by_hand(layer, state, head)
        for i, j in itertools.product(positions, positions):
            vectors[i, j] += weights[i, j] * added[j]
    total = vectors.sum(1) + state + output.dense.bias
    if with_input:
        for i in positions:
            vectors[i, i] += state[i]
    if normalised:
        for i, j in itertools.product(positions, positions):
            vector = vectors[i, j]
            vectors[i, j] = normed_by_hand(output.LayerNorm, vector, total[i])
    return vectors, output.LayerNorm(total)


def normed_by_hand(norm, vector, total):
    """A part of a state as the normalisation of the state leaves it, without the shift."""
    variance = total.var(correction=0)
    spread = (variance + norm.eps).sqrt()
    centred = vector - vector.mean()
    return norm.weight * centred / spread


def head_by_hand(layer, state, head):
    """One head's attention weights `[i][j]`, and what each position adds under a weight of 1."""
    inner = layer.attention.self
    size = inner.attention_head_size
    start = head * size
    columns = slice(start, start + size)
    query = inner.query(state)[:, columns]
    key = inner.key(state)[:, columns]
    value = inner.value(state)[:, columns]
    scores = query @ key.T / size**0.5
    weights = scores.softmax(-1)
    projection = layer.attention.output.dense.weight[:, columns]
    added = value @ projection.T
    return weights, added


def followed_by_hand(network, ids, strength, with_input, normalised):
    """The deciding row over the pieces: of every layer shares of `strength(vectors, state)`.

    Where its input is not among a layer's vectors, half of the identity stands for it.
    """
    with torch.no_grad():
        *states, _ = network(ids, output_hidden_states=True).hidden_states
        identity = np.eye(ids.shape[1])
        followed = identity
        for layer, [state] in zip(network.bert.encoder.layer, states, strict=True):
            vectors, after = mixed_by_hand(layer, state, with_input, normalised)
            strengths = np.zeros_like(identity)
            for i, j in np.ndindex(*strengths.shape):
                strengths[i, j] = strength(vectors[i, j], after[i])
            shares = strengths / strengths.sum(1, keepdims=True)
            if not with_input:
                shares = 0.5 * shares + 0.5 * identity
            followed = shares @ followed
    return followed[0]


def length(vector, state):
    return float(vector.norm())
