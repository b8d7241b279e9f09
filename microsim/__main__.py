"""`python -m microsim`."""

from microsim.cli import main

if __name__ == "__main__":
    main()
