"""Entry point of `python -m loriini` and of the command `loriini`."""

import os
import sys
from collections.abc import Sequence

from loriini.common.signals import ending_signals


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command. SIGTERM and SIGHUP end it as Ctrl-C does, also while its modules are imported."""
    try:
        with ending_signals():
            from loriini.cli import main as run_command

            run_command(argv)
    except KeyboardInterrupt:
        print("\ninterrupted; run the same command again", file=sys.stderr, flush=True)
        os._exit(130)  # without waiting for modules that are half imported


if __name__ == "__main__":
    main()
