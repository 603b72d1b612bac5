"""`florets` and `python -m florets`: the command."""

import sys

from florets.conf.extras import require
from florets.conf.problems import ConfigError
from florets.reports.console import replace_unknown_letters


def main() -> int:
    """Run the command, which but for `florets node` needs the packages of a server, and return its exit code."""
    replace_unknown_letters()
    if sys.argv[1:2] == ["node"]:
        # Needs nothing that a node does not have.
        from florets.commands.node import command

        return command(sys.argv[2:])
    try:
        require("server", "the command florets")
    except ConfigError as error:
        print(f"florets: {error}", file=sys.stderr)
        return 2
    from florets.commands.main import main as run

    return run()


if __name__ == "__main__":
    raise SystemExit(main())
