"""Run every benchmark in a process of its own."""

import subprocess
import sys
from pathlib import Path


def main() -> int:
    for file in sorted(Path(__file__).parent.glob("bench_*.py")):
        print(f"\n{file.stem}", flush=True)
        done = subprocess.run([sys.executable, str(file)], check=False)
        if done.returncode:
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
