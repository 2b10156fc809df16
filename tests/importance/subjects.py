from attnprobe.importance.base import Subject
from tests.toys import toy_batch, toy_classifier, toy_readout

LENGTHS = [5, 9, 2]


def subject_of(*, padding=0, question=False, classes=3, importances=None, lengths=LENGTHS, seed=0):
    classifier = toy_classifier(classes=classes, spread=4, question=question)
    batch = toy_batch(lengths, padding=padding, question=question, classes=classes)
    return Subject(
        classifier, batch, *toy_readout(classifier, batch), None, importances or {}, seed
    )
