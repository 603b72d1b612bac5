"""Run every benchmark in a process of its own; figures go to a folder, a JSON each, tables to the screen.

``python -m benchmarks [--data-dir DIR] [--out results/benchmarks]``: without MNIST's folder its rows are left out.
"""

import argparse
import subprocess
import sys
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default="", help="torchvision data folder with MNIST")
    parser.add_argument("--out", default="results/benchmarks", help="folder for the figures")
    given = parser.parse_args()
    out = Path(given.out)
    out.mkdir(parents=True, exist_ok=True)
    for file in sorted(Path(__file__).parent.glob("bench_*.py")):
        print(f"\n{file.stem}", flush=True)
        options = ["--json", str(out / f"{file.stem}.json")] if _takes(file, "--json") else []
        options += ["--data-dir", given.data_dir] if given.data_dir and _takes(file, "--data-dir") else []
        done = subprocess.run([sys.executable, "-m", f"benchmarks.{file.stem}", *options], check=False)
        if done.returncode:
            return done.returncode
    return 0


def _takes(file: Path, option: str) -> bool:
    return f'"{option}"' in file.read_text(encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
