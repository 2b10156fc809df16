from attnprobe.core.printing import WIDTH, folded, tell


def test_a_sentence_is_folded_at_its_spaces_and_keeps_its_words():
    sentence = "audit: 6 trainings of 8 epochs on 2,000 texts, 13 probes on 333: " * 4
    lines = folded(sentence).splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert " ".join(line.strip() for line in lines) == sentence.strip()
    assert all(line.startswith("  ") for line in lines[1:])


def test_a_path_stays_whole(capsys):
    path = "/home/somebody/" + "a-long-folder/" * 9
    tell(f"the results are in {path} now")
    assert path in capsys.readouterr().out.splitlines()[1].split()
