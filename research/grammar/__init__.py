"""Rules whose deciding words are known, as points of a grammar, and texts of them.

Kinds of rules (`kinds`), everything else that a rule has (`spec`), its texts (`texts`), the rules
of development and those that are drawn (`named`), attentions by construction (`attentions`).
"""

from research.grammar.attentions import ATTENTIONS, is_learnable
from research.grammar.named import DEVELOPMENT, development_rules, drawn_rules
from research.grammar.spec import KINDS, RuleSpec
from research.grammar.texts import GrammarSource

__all__ = [
    "ATTENTIONS",
    "DEVELOPMENT",
    "KINDS",
    "GrammarSource",
    "RuleSpec",
    "development_rules",
    "drawn_rules",
    "is_learnable",
]
