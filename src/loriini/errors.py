"""Exceptions that the command line tells in one line."""


class InputError(Exception):
    """Wrong input, told in one line: what is wrong, where (file and place), and the remedy.

    The command line prints the message and exits with status 2. It is never raised for our own faults.
    """


class Unfinished(Exception):
    """Work that stopped where it was told to. It is saved, and the message says how it goes on."""


class WorkerDied(RuntimeError):
    """A process that was ended amid its work: the message says which, and how it goes on."""
