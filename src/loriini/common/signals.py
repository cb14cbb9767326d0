"""Signals that end a command: at once, as Ctrl-C does, or after its work is saved."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

ENDING = (signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """A signal asked the work to stop, and everything is saved."""


@contextmanager
def ending_signals() -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP raise KeyboardInterrupt unless ignored (`nohup`) or handled already."""

    def interrupt(number: int, frame: Any) -> NoReturn:
        raise KeyboardInterrupt

    numbers = ENDING if _in_main_thread() else ()
    default = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    for number in default:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in default:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def deferred_interrupts() -> Iterator[Callable[[], bool]]:
    """While inside, the yielded function returns whether SIGINT, SIGTERM or SIGHUP was received.

    A SIGINT after any of them raises KeyboardInterrupt. A second SIGTERM does not: launchers send one to
    workers that are still saving. Outside the main thread, where Python handles no signals, it stays False.
    """
    received: list[int] = []

    def handle(number: int, frame: Any) -> None:
        if received and number == signal.SIGINT:
            raise KeyboardInterrupt
        received.append(number)

    numbers = (signal.SIGINT, *ENDING) if _in_main_thread() else ()
    heeded = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]  # nohup
    before = {number: signal.signal(number, handle) for number in heeded}
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _in_main_thread() -> bool:
    """Whether Python handles signals in this thread."""
    return threading.current_thread() is threading.main_thread()
