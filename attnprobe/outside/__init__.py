"""Models that were trained elsewhere, put to the same tests, in the same tables and page.

`audit_tensors` needs attention and position logits only, and examines anything whose prediction is
linear in its attention; `audit_model` examines any model that answers to
`attnprobe.models.trained.TrainedModel`.
"""

from attnprobe.outside.audit import Audit, audit_model
from attnprobe.outside.tensors import audit_tensors

__all__ = ["Audit", "audit_model", "audit_tensors"]
