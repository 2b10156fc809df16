"""Classifiers whose decisions hang on few words, as untrained ones' do not."""

import torch

from attnprobe.batch import Batch
from attnprobe.models.classifier import AttentionClassifier


def undecided(classifier: AttentionClassifier, batch: Batch) -> AttentionClassifier:
    """The classifier with a bias that leaves the batch's mean logits at 0."""
    with torch.no_grad():
        bias = classifier.decoder.output.bias
        bias -= classifier(batch).logits.mean(0)[-len(bias) :]
    return classifier
