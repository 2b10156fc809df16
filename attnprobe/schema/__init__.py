"""What every setting may be, and the one line that a mistake is answered with. Knows no library that takes seconds."""

from attnprobe.schema.check import check, resolved
from attnprobe.schema.files import check_files

__all__ = ["check", "check_files", "resolved"]
