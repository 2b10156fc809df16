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
    count = int((batch.piece_word[row] > -2).sum())
    return batch.pieces[row : row + 1, :count]


def mixed_by_hand(layer, state, with_input, normalised):
    """The vectors `[i][j]` that an attention of a BERT adds up in each state, and the state after.

    By plain loops over its own modules. `with_input`: its input is among them; `normalised`: after
    its layer normalisation, without the shift.
    """
    inner = layer.attention.self
    output = layer.attention.output
    heads = inner.num_attention_heads
    size = inner.attention_head_size
    query, key, value = (module(state) for module in (inner.query, inner.key, inner.value))
    vectors = torch.zeros(len(state), *state.shape, dtype=state.dtype)
    for head in range(heads):
        columns = slice(head * size, (head + 1) * size)
        weights = (query[:, columns] @ key[:, columns].T / size**0.5).softmax(-1)
        for i in range(len(state)):
            for j in range(len(state)):
                vectors[i, j] += weights[i, j] * (
                    output.dense.weight[:, columns] @ value[j, columns]
                )
    total = vectors.sum(1) + state + output.dense.bias
    for i in range(len(state)):
        if with_input:
            vectors[i, i] += state[i]
        if normalised:
            norm = output.LayerNorm
            spread = (total[i].var(correction=0) + norm.eps).sqrt()
            for j in range(len(state)):
                vectors[i, j] = norm.weight * (vectors[i, j] - vectors[i, j].mean()) / spread
    return vectors, output.LayerNorm(total)


def followed_by_hand(network, ids, strength, with_input, normalised, half):
    """The deciding row over the pieces: of every layer shares of `strength(vectors, state)`, with ½
    I on request."""
    with torch.no_grad():
        states = network(ids, output_hidden_states=True).hidden_states
        followed = np.eye(ids.shape[1])
        for number, layer in enumerate(network.bert.encoder.layer):
            vectors, after = mixed_by_hand(layer, states[number][0], with_input, normalised)
            shares = np.zeros(vectors.shape[:2])
            for i, j in np.ndindex(*shares.shape):
                shares[i, j] = strength(vectors[i, j], after[i])
            shares /= shares.sum(1, keepdims=True)
            if half:
                shares = 0.5 * shares + 0.5 * np.eye(len(shares))
            followed = shares @ followed
    return followed[0]


def length(vector, state):
    return float(vector.norm())
