"""Measure the cost of starting: CPU seconds of `import ragfault` and `ragfault --help`, and the size of the core.

    python benchmarks/start.py [--size]

Prints medians of nine runs beside the bare interpreter. With --size, installs the core into a fresh virtual
environment (this needs the package registry) and measures what that adds to the disk.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
RUNS = 9
COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "import ragfault": ["-c", "import ragfault"],
    "ragfault --help": ["-m", "ragfault", "--help"],
}


def measure_cpu_seconds(arguments: list[str]) -> float:
    """Return the CPU seconds, user and system, of one process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def measure_size(folder: Path) -> float:
    """Return the MiB of the files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20


def measure_core_sizes() -> dict[str, float]:
    """Return the MiB that installing the core adds, by package folder."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        [site] = Path(folder).glob("lib/python*/site-packages")
        before = {path.name for path in site.iterdir()}
        subprocess.run([f"{folder}/bin/python", "-m", "pip", "install", "-q", str(ROOT)], check=True)
        new = [path for path in site.iterdir() if path.name not in before]
        return {path.name: measure_size(path) if path.is_dir() else path.stat().st_size / 2**20 for path in new}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", action="store_true", help="also install the core and measure it")
    options = parser.parse_args()
    print("| command | CPU seconds, median of 9 | less the bare interpreter |\n|---|---|---|")
    interpreter_seconds = 0.0
    for name, arguments in COMMANDS.items():
        measure_cpu_seconds(arguments)
        seconds = statistics.median(measure_cpu_seconds(arguments) for _ in range(RUNS))
        interpreter_seconds = interpreter_seconds or seconds
        print(f"| `{name}` | {seconds:.3f} | {seconds - interpreter_seconds:.3f} |")
    if options.size:
        sizes = measure_core_sizes()
        print(f"\nThe core adds {sum(sizes.values()):,.0f} MiB; the largest parts:")
        for name, mebibytes in sorted(sizes.items(), key=lambda item: -item[1])[:6]:
            print(f"  {name:<20}{mebibytes:6.1f}")


if __name__ == "__main__":
    main()
