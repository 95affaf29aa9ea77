"""The program `callshot`, also as `python -m callshot`; it can be stopped while it imports."""

from callshot.interrupts import stop_on_signals


def main() -> None:
    """Run a command."""
    with stop_on_signals():
        from callshot.cli import main as run_command

        run_command()


if __name__ == "__main__":
    main()
