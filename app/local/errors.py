"""What can go wrong with the embedded stack. None of it is ever seen over HTTP."""


class StackError(Exception):
    """The embedded stack cannot start or go on; the message says what to do next."""


class StopRequested(Exception):
    """A signal asked for the end while the stack was starting."""
