"""Which of several processes this one is, whatever variables other launchers have left behind.

A run starts the further processes of a training on several devices itself. Shells inside of
torchrun, `srun --pty`, Kubeflow or a notebook server keep variables such as RANK and LOCAL_RANK:
what libraries write "on rank zero only" would then not be written.
"""

import os
import sys

from attnprobe.core.errors import UserError

RANKS = ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK")
"""Variables that number processes or machines."""
OTHERS = (
    *("WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SLURM_LOCALID"),
    *("JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_SIZE", "TORCHELASTIC_RUN_ID"),
)
"""Variables that say how such processes find each other."""
STARTED = "ATTNPROBE_STARTED"
"""Variable that the first process of a run sets, and its further processes inherit."""


def is_worker() -> bool:
    """Whether the first process of a run has started this one, to train with it."""
    rank = os.environ.get("LOCAL_RANK", "")
    return STARTED in os.environ and rank.isdecimal() and int(rank) > 0


def leave_other_launchers() -> None:
    """Forget the variables of other launchers, and say which had a meaning that is not heeded.

    To be called before Lightning is imported, which reads them, and before a training.

    Raises:
        UserError: torchrun has started several processes of this command.
    """
    if is_worker():
        return
    processes = os.environ.get("WORLD_SIZE", "")
    if os.environ.get("TORCHELASTIC_RUN_ID") and processes not in ("", "1"):
        raise UserError(
            f"torchrun started this command in {processes} processes (WORLD_SIZE={processes}, "
            f"TORCHELASTIC_RUN_ID), and a run is one: leave torchrun out, and set trainer.devices, "
            f"which starts the others; in a shell that kept these variables, unset them"
        )
    for name in (*RANKS, *OTHERS):
        value = os.environ.pop(name, "0")
        if name in RANKS and value not in ("", "0"):
            print(
                f"attnprobe: {name}={value} is of another launcher, and is not heeded: a run is "
                f"one process, and trainer.devices starts others",
                file=sys.stderr,
                flush=True,
            )
    os.environ[STARTED] = str(os.getpid())
