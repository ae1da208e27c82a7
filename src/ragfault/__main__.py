"""Run the command line with `python -m ragfault`."""

from ragfault.cli.commands import main

if __name__ == "__main__":
    main()
