from tests.importance.subjects import LENGTHS, subject_of


def test_the_first_word_first():
    subject = subject_of(padding=2)
    for row, length in enumerate(LENGTHS):
        found = subject.scores("position")[row][subject.outputs.content[row]]
        assert found.tolist() == [1 / (place + 1) for place in range(length)]
