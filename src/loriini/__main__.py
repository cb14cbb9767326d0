"""`python -m loriini`, and the command `loriini`."""

import os
import sys

from loriini.signals import ending_signals


def main() -> None:
    """Run a command; a signal while its modules are imported ends it as later ones do."""
    try:
        with ending_signals():
            from loriini.cli import main as run_command

            run_command()
    except KeyboardInterrupt:
        print("\ninterrupted; run the same command again", file=sys.stderr, flush=True)
        os._exit(130)  # without waiting for modules that are half imported


if __name__ == "__main__":
    main()
