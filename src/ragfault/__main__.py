"""`python -m ragfault` is the command line."""

from ragfault.cli import main

if __name__ == "__main__":
    main()
