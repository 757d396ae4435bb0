"""``gamecast`` and ``python -m gamecast``: the only import of the command line from the library, in tree and wheel."""

from launcher.interrupts import end_process


def main() -> None:
    """Run the command and end the process."""
    end_process(_command)


def _command() -> int:
    # Import nothing else before the handling of Ctrl-C is set up.
    from launcher.ending import ended

    def run() -> None:
        from cli.main import main as command  # brings click

        command()

    return ended(run, name="gamecast")


if __name__ == "__main__":
    main()
