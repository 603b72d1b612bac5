"""`florets leaderboard`: the item `leaderboard` of `florets reproduce`."""

from collections.abc import Sequence

from florets.commands import reproduce

HELP = """florets leaderboard [data_dir=DIR] [rows=...] [columns=...] [seeds=<n>] [n_jobs=<n>] [shard=1/4] [--table]
  Compare every method on sixteen federations, with equal budgets and settings chosen by validation data: short for
  florets reproduce leaderboard, whose words it takes (florets reproduce --help)."""


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code; see `florets.commands.reproduce.main`."""
    return reproduce.main(["leaderboard", *arguments])
