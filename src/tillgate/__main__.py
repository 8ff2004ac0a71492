"""`python -m tillgate`."""

from tillgate.cli import main

main(prog_name="tillgate")
