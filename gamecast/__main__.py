"""``gamecast`` and ``python -m gamecast``: the one door from the library up to the command line, in tree and wheel."""

from cli.door import main

if __name__ == "__main__":
    main()
