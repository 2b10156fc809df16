"""Is the reason that the data give the model's own, and is the attention on it?"""

from attnprobe.report.reading import Headline, Reading

READING = Reading(
    probe="known_answer",
    order=5,
    title="Known answer: does the model decide by the known reason, and is the attention on it?",
    about=(
        "For data whose reason is known (planted, the testbed, a rationale). First, is the reason the model's own? "
        "Accuracy on the texts as they are; with the reason changed to that of another class, where a model that uses it "
        "follows; without the words of the reason, where only chance is left if they are all there is to know; and "
        "on these words alone. Then, how right is the attention? Of the words: the share of the attention on the "
        "reason, the precision of the top words and the average precision, each minus what chance would reach (0: chance). "
        "Of the states: how far the weights agree with what the linear decoder takes from each state. An LSTM "
        "that reads everything and attends to the last word can be right at the one level and wrong at the other."
    ),
    headlines=(
        Headline("correct", "accuracy"),
        Headline("correct_contradicted", "accuracy, reason changed"),
        Headline("correct_without", "accuracy without the reason"),
        Headline("correct_alone", "accuracy on the reason alone"),
        Headline("chance", "share of the text that is reason (chance)"),
        Headline("mass_on_rationale", "attention on the reason, minus chance"),
        Headline("precision_on_rationale", "precision of as many top words, minus chance"),
        Headline("auprc_on_rationale", "average precision, minus chance"),
        Headline("state_rank_agreement", "tau of attention with the states' contributions"),
        Headline("state_mass_agreement", "mass in common with the states' contributions"),
    ),
)
