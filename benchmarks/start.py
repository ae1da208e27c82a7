"""Measure the cost of starting: CPU seconds of `import ragfault` and `ragfault --help`, and the size of the core.

    python benchmarks/start.py [--size] [--modules]

Prints medians of nine runs beside the bare interpreter. With --size, installs the core into a fresh virtual
environment (this needs the package registry) and measures what that adds to the disk. With --modules, measures
instead what the import of each module adds to that of the errors: CPU seconds, median of three, and modules loaded.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
RUNS = 9
MAX_SECONDS = 0.1
"""CPU seconds that the import of a module may add to that of the errors."""
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


def measure_import(module: str) -> tuple[float, int]:
    """Return the CPU seconds and the new modules of importing a module, in a fork of this process."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        known, before = len(sys.modules), os.times()
        importlib.import_module(module)
        after = os.times()
        seconds = after.user - before.user + after.system - before.system
        os.write(write, json.dumps([seconds, len(sys.modules) - known]).encode())
        os._exit(0)
    os.close(write)
    with open(read, encoding="utf-8") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    seconds, count = json.loads(text)
    return seconds, count


def print_modules() -> None:
    """Print how many modules cost more than 0.1 s, and those that cost most."""
    importlib.import_module("ragfault.model.errors")
    package = ROOT / "src" / "ragfault"
    names = sorted(
        ".".join(("ragfault", *path.relative_to(package).with_suffix("").parts))
        for path in package.rglob("*.py")
        if path.stem not in ("__init__", "__main__")
    )
    costs = []
    for name in names:
        runs = [measure_import(name) for _ in range(3)]
        costs.append((statistics.median(seconds for seconds, _ in runs), runs[0][1], name))
    above = sum(seconds > MAX_SECONDS for seconds, _, _ in costs)
    print(f"{above} of {len(costs)} modules cost more than {MAX_SECONDS} s\n")
    print("| module | CPU seconds, median of 3 | modules loaded |\n|---|---|---|")
    for seconds, count, name in sorted(costs, reverse=True)[:20]:
        print(f"| `{name}` | {seconds:.2f} | {count} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", action="store_true", help="also install the core and measure it")
    parser.add_argument("--modules", action="store_true", help="measure the import of every module instead")
    options = parser.parse_args()
    if options.modules:
        print_modules()
        return
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
