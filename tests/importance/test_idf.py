from math import log

import pytest
import torch

from attnprobe.core.errors import UserError
from attnprobe.importance.baselines import Idf
from tests.importance.trained import batch_of, small_data, subject_on


def test_it_counts_the_training_texts():
    data, one = small_data(), Idf()
    one.prepare(data, "test")
    train, batch = data.splits["train"], batch_of(data)
    texts = [{data.vocabulary.words[data.splits["train"].vocabulary_id[number]] for number in train.words[row]}
             for row in range(len(train))]  # fmt: skip
    scores = one.scores(subject_on(batch, torch.zeros(len(batch), dtype=torch.long)))
    for row, place in batch.content.nonzero()[:200].tolist():
        word = data.vocabulary.words[batch.ids[row, place]]
        holds = sum(word in text for text in texts)
        assert scores[row, place].item() == pytest.approx(log((1 + len(texts)) / (1 + holds)) + 1)
    assert torch.isfinite(scores).all()


def test_new_texts_are_refused():
    with pytest.raises(UserError, match="idf counts the training texts, which a loaded run does not hold"):
        Idf().prepare_texts(["a text"], [["a", "text"]])
