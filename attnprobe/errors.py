"""The one kind of error that is a message to the user rather than a bug."""


class UserError(ValueError):
    """Something the user can put right: a file, a setting, a column name.

    The text names the value that came, what was expected, and what to do next. The command line prints it
    alone, without a traceback, and exits with status 2; in Python it is an ordinary `ValueError`.
    """
