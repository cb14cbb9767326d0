"""Signals that end a command as Ctrl-C does."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

ENDING = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ending_signals() -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP raise KeyboardInterrupt, unless they are ignored (`nohup`) or handled."""

    def interrupt(number: int, frame: Any) -> NoReturn:
        raise KeyboardInterrupt

    main = threading.current_thread() is threading.main_thread()
    default = [n for n in ENDING if main and signal.getsignal(n) is signal.SIG_DFL]
    for number in default:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in default:
            signal.signal(number, signal.SIG_DFL)
