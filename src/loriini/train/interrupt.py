"""Signals that end training after the current step."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Interrupted(KeyboardInterrupt):
    """Training was asked to stop; everything is saved."""


@contextmanager
def deferred_interrupts() -> Iterator[Callable[[], bool]]:
    """While inside, SIGINT, SIGTERM and SIGHUP make the yielded function true; a second SIGINT stops at once.

    A second SIGTERM does not: launchers send one to workers that are still saving. Outside the main
    thread, where Python handles no signals, it stays false.
    """
    received: list[int] = []

    def handle(number: int, frame: Any) -> None:
        if received and number == signal.SIGINT:
            raise KeyboardInterrupt
        received.append(number)

    main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if main else ()
    heeded = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]  # nohup
    before = {number: signal.signal(number, handle) for number in heeded}
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
