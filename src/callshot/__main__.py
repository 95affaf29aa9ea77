"""`python -m callshot`."""

from callshot.cli import main

main()
