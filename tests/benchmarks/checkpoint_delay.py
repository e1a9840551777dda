#!/usr/bin/env python3
"""How long a checkpoint delays a step: runs without and with --save_every, A B A B.

    checkpoint_delay.py [--rounds 7] [--save_every 20] -- weft run main.pb --steps 400 ...

The time of a run is that of its last lines, "400 steps on 2 ranks in 1.234 s". Both kinds of run
write a checkpoint at their end, so that the difference is that of the others. Prints the medians,
and what one checkpoint costs: the copy of the state, and what its writer takes from the cores.
"""
import argparse
import os
import re
import statistics
import subprocess
import tempfile


def seconds_of(command):
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"(\d+) steps on \d+ ranks? in ([0-9.]+) s", result.stdout)
    if result.returncode != 0 or found is None:
        raise SystemExit(" ".join(command) + f": status {result.returncode}\n{result.stderr}")
    return int(found[1]), float(found[2])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--save_every", type=int, default=20)
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "checkpoint")
        without = args.command + ["--checkpoint", path]
        with_them = without + ["--save_every", str(args.save_every)]
        times = [(seconds_of(without), seconds_of(with_them)) for _ in range(args.rounds)]
        size = os.path.getsize(path)
    steps = times[0][0][0]
    checkpoints = (steps - 1) // args.save_every
    if checkpoints == 0:
        raise SystemExit(f"{steps} steps with --save_every {args.save_every}: no checkpoint")
    a, b = (statistics.median(pair[i][1] for pair in times) for i in (0, 1))
    delay = statistics.median((y[1] - x[1]) / checkpoints for x, y in times)
    print(f"a step: {1000 * a / steps:.3f} ms without, {1000 * b / steps:.3f} ms with a checkpoint "
          f"every {args.save_every} steps")
    print(f"{checkpoints} checkpoints of {size} bytes: {1000 * delay:.3f} ms each")


if __name__ == "__main__":
    main()
