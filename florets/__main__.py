"""`florets` and `python -m florets`: the command."""

import sys

from florets.conf.extras import require
from florets.conf.problems import ConfigError


def main() -> int:
    """Run the command, where the packages of a server are installed, and return its exit code."""
    try:
        require("server", "the command florets")
    except ConfigError as error:
        print(f"florets: {error}", file=sys.stderr)
        return 2
    from florets.commands.main import main as run

    return run()


if __name__ == "__main__":
    raise SystemExit(main())
