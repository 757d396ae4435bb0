"""``gamecast`` and ``python -m gamecast``: the one door from the library up to the command line, in tree and wheel."""

from launcher.interrupts import end_process


def main() -> None:
    """Run the command and end the process."""
    end_process(_command)


def _command() -> int:
    # Not before it is settled what Ctrl-C does.
    from launcher.ending import ended

    def run() -> None:
        from cli.main import main as command  # brings click

        command()

    return ended(run, name="gamecast")


if __name__ == "__main__":
    main()
