import pytest

from research.grammar import KINDS, GrammarSource, RuleSpec, development_rules, drawn_rules


def test_a_name_says_all_of_a_rule():
    rules = [*development_rules(), *drawn_rules("commit", 60, "first")]
    assert [RuleSpec.named(rule.name) for rule in rules] == rules
    assert {rule.kind for rule in rules} == set(KINDS)


@pytest.mark.parametrize("rule", development_rules(), ids=lambda rule: rule.name)
def test_every_rule_draws_anew(rule):
    rows = GrammarSource(rule.name, 5, 40, 0).rows("test")
    assert rows == GrammarSource(rule.name, 5, 40, 0).rows("test")
    assert rows != GrammarSource(rule.name, 5, 40, 1).rows("test")
    assert {row["label"] for row in rows} <= set(range(rule.classes))
