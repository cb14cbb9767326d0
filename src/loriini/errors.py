"""The one exception for wrong input."""


class InputError(Exception):
    """Wrong input, told in one line: what is wrong, where (file and place), and the remedy.

    The command line prints the message and exits with status 2. It is never raised for our own faults.
    """


class Unfinished(Exception):
    """Work that stopped where it was told to. It is saved, and the message says how it goes on."""
