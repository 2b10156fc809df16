"""How important is each token to the prediction, asked of the model instead of its attention."""

from attnprobe.importance.agreement import top_overlap, top_tau
from attnprobe.importance.gradient import Gradients, attention_gradient, gradients
from attnprobe.importance.leave_one_out import Removals, leave_one_out

__all__ = [
    "Gradients",
    "Removals",
    "attention_gradient",
    "gradients",
    "leave_one_out",
    "top_overlap",
    "top_tau",
]
