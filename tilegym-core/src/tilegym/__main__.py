"""`python -m tilegym` is the command `tilegym`."""

from _tilegym_cli import main

if __name__ == "__main__":
    main()
