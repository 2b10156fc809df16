"""What does the prediction lose with each single token?

Jain & Wallace 2019, section 4.1: leave-one-out. By definition every shortened text goes through the
model again. Where encoder and attention are known well enough (`changed_states`) only the states
that change are computed (`recurrent`, `convolutional`), and the prediction is put together from
these and the unchanged ones (`recombine`). `removal` chooses, and checks what it chose.
"""

from attnprobe.importance.leave_one_out.removal import (
    CHUNK,
    TOLERANCE,
    LeaveOneOut,
    Removals,
    leave_one_out,
)

__all__ = ["CHUNK", "TOLERANCE", "LeaveOneOut", "Removals", "leave_one_out"]
