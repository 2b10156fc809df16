"""A report as one self-contained HTML page."""

from pathlib import Path

MEGABYTES = 60
"""What a page may weigh; `--megabytes` on the command line."""
PAGE_NAME = "a name that ends in .html (such as report.html)"
"""What a page's file has to be called."""


def is_page_name(name: str | Path) -> bool:
    """Whether a file is called as a page's file has to be."""
    return Path(name).suffix.lower() in (".html", ".htm")
