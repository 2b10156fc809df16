"""`attnprobe` on the command line: one file per command.

Nothing heavy is imported until a command begins its work.
"""
