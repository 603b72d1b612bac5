"""A ratchet on size: lines of code, files and keys of each folder, against the table in tests/ratchet.json.

``python -m tests.ratchet`` fails where a number has grown; ``--write`` stores the present ones. A number goes up only
in a commit that says why.
"""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

from florets.conf.schema import known_keys
from florets.strategies import STRATEGIES

ROOT = Path(__file__).resolve().parents[1]
TABLE = Path(__file__).with_name("ratchet.json")


def counted() -> dict[str, dict[str, int]]:
    """Return lines, lines of code (not blank, no comment) and files of each folder, and keys of each group."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    lines, code, number = Counter[str](), Counter[str](), Counter[str]()
    for name in filter(None, listed.stdout.split("\n")):
        folder, path = name.split("/")[0] if "/" in name else ".", ROOT / name
        number[folder] += 1
        if name.endswith(".py") and path.is_file():
            texts = [line.strip() for line in path.read_text("utf-8").splitlines()]
            lines[folder] += len(texts)
            code[folder] += sum(bool(line) and not line.startswith("#") for line in texts)
    keys = {key for strategy in STRATEGIES for key in known_keys(strategy)}
    of_group = Counter(key.split(".")[0] if "." in key else "run" for key in keys)
    return {
        "lines": dict(sorted(lines.items())),
        "code": dict(sorted(code.items())),
        "files": dict(sorted(number.items())),
        "keys": dict(sorted(of_group.items())),
    }


def main() -> int:
    """Compare with the table, or store it."""
    found = counted()
    if "--write" in sys.argv:
        TABLE.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
        return 0
    stored = json.loads(TABLE.read_text("utf-8"))
    grown = [
        f"{kind} of {folder}: {number}, the table has {stored[kind].get(folder, 0)}"
        for kind, numbers in found.items()
        for folder, number in numbers.items()
        if number > stored[kind].get(folder, 0)
    ]
    for kind, numbers in found.items():
        print(f"{kind}: {sum(numbers.values())} (table: {sum(stored[kind].values())})")
    if grown:
        print(
            "\n".join(["The house has grown:", *grown]), "Make it smaller, or write the table and say why.", sep="\n"
        )
    return bool(grown)


if __name__ == "__main__":
    sys.exit(main())
