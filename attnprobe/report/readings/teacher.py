"""How far a run is from another seed, or from the model that it imitates (Wiegreffe & Pinter 2019)"""

from attnprobe.report.reading import Headline, Reading

READING = Reading(
    probe="teacher",
    order=60,
    title="Against the teacher",
    about=(
        "Every example's prediction and attention compared with those of another run, the teacher: total variation distance "
        "of the predictions (TVD, 0 to 1) and Jensen-Shannon divergence of the attentions (JSD, nats, 0 to 0.69). Between "
        "two seeds of one model the JSD is how stable attention is; for an adversary trained to imitate the teacher it "
        "is how far attention can go while the predictions stay."
    ),
    headlines=(
        Headline("tvd", "TVD of the predictions to the teacher's"),
        Headline("jsd", "JSD of the attention to the teacher's"),
        Headline("same_decision", "share of equal decisions"),
    ),
)
