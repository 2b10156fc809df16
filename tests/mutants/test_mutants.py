"""The campaign of mutants itself: that it finds its files, and that its mutants are mutations."""

import ast

from tests.mutants.__main__ import ROOT, SUBJECTS, mutants


def test_every_subject_and_its_tests_are_there():
    named = {*SUBJECTS, *(test for tests in SUBJECTS.values() for test in tests)}
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_every_mutant_differs_in_one_place_and_none_in_a_shape():
    source = (
        "def f(x: Float[Tensor, '3']) -> int:\n    g(x)\n    return x.sum() < 2 and not x.any()\n"
    )
    found = mutants(source)
    assert len(found) == len({mutated for _, _, mutated in found}) == 6
    assert all(
        ast.unparse(ast.parse(mutated)) != ast.unparse(ast.parse(source)) for _, _, mutated in found
    )
    assert all("Float[Tensor, '3']) -> int" in mutated for _, _, mutated in found)
