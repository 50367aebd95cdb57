"""`mem` as the console starts it: from the first moment on, Ctrl-C ends it without a trace."""

import os
import signal

_INTERRUPTED = 130


def main() -> None:
    """Import the command line, then run it. Nothing is begun yet that would need an orderly end."""
    # Who starts it in the background may have switched Ctrl-C off; that stays so.
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_usual:
        signal.signal(signal.SIGINT, lambda *_: os._exit(_INTERRUPTED))
    from app.cli import main as mem

    if is_usual:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        mem()
    except KeyboardInterrupt:
        os._exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
