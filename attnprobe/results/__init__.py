"""Run directories on disk: tables, manifest, and how both are read back."""
