"""`python -m florets`: the command."""

from florets.commands.main import main

if __name__ == "__main__":
    raise SystemExit(main())
