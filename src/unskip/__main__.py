"""``python -m unskip``."""

from unskip.cli import main

if __name__ == "__main__":
    main()
