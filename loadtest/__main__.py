"""``./dev loadtest`` and ``python -m loadtest``: the entry point of `loadtest.command`."""

from launcher.interrupts import end_process


def main() -> None:
    """Run the load test that the arguments ask for, and end the process."""
    end_process(_command)


def _command() -> int:
    # Imported after the Ctrl-C handler is set.
    from launcher.ending import ended

    def run() -> int:
        from loadtest.command import load_test

        return load_test()

    return ended(run, name="loadtest")


if __name__ == "__main__":
    main()
