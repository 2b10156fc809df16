"""A report as one self-contained HTML page."""

MEGABYTES = 60
"""What a page may weigh; `--megabytes` on the command line."""
