"""Models with one attention per label: known answers, and beside a plain loop."""
