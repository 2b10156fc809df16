from tests.importance.subjects import subject_of


def test_begins_with_the_lowest_weight():
    subject = subject_of()
    content, weights = subject.outputs.content, subject.outputs.attention
    for row in range(3):
        words = content[row].nonzero().squeeze(-1)
        order = sorted(words.tolist(), key=lambda t, row=row: float(weights[row, t]))
        assert words[subject.scores("ascending")[row][words].argsort(descending=True)].tolist() == order
