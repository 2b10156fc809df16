"""The campaign of mutants itself: that it finds its files, and that its mutants are mutations."""

import ast

from tests.mutants.__main__ import ROOT, SUBJECTS, mutants


def test_every_subject_and_its_tests_are_there():
    tests = [test for tests_of_file in SUBJECTS.values() for test in tests_of_file]
    missing = [name for name in sorted({*SUBJECTS, *tests}) if not (ROOT / name).exists()]
    assert missing == []


def test_every_mutant_differs_in_one_place_and_none_in_a_shape():
    source = (
        "def f(x: Float[Tensor, '3']) -> int:\n    g(x)\n    return x.sum() < 2 and not x.any()\n"
    )
    sources = [mutant.source for mutant in mutants(source)]
    assert len(sources) == len(set(sources)) == 6
    for mutated in sources:
        assert ast.unparse(ast.parse(mutated)) != ast.unparse(ast.parse(source))
        assert "Float[Tensor, '3']) -> int" in mutated
