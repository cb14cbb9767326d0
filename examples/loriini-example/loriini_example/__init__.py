"""An own router, loss, recipe and command for Loriini."""
