"""`python -m loriini`."""

from loriini.cli import main

main()
