#!/usr/bin/env python3
"""How long a step with parameter servers takes, by number of servers, in turn: A B A B.

    server_steps.py [--rounds 7] [--workers 4] [--servers 1 4] [--weft tools/weft ...] -- \\
        worker.pb --startup startup.pb --server server.pb --feeds feeds.npz --steps 200

Each worker and server is a process of weft launch. Several --weft are compared, such as an older
one. Prints the median of the rounds, and the least.
"""
import argparse
import re
import statistics
import subprocess


def ms_of_step(weft, workers, servers, flags):
    command = [weft, "launch", "-n", str(workers + servers), "--", weft, "run", *flags,
               "--servers", str(servers)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"(\d+) steps on \d+ ranks?.* in ([0-9.]+) s", result.stdout)
    if result.returncode != 0 or found is None:
        raise SystemExit(" ".join(command) + f": status {result.returncode}\n{result.stderr}")
    return 1000 * float(found[2]) / int(found[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--servers", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--weft", nargs="+", default=["tools/weft"])
    parser.add_argument("flags", nargs="+", help="of weft run")
    args = parser.parse_args()
    cases = [(weft, servers) for weft in args.weft for servers in args.servers]
    times = {case: [] for case in cases}
    for _ in range(args.rounds):
        for case in cases:
            times[case].append(ms_of_step(case[0], args.workers, case[1], args.flags))
    for (weft, servers), of_case in times.items():
        print(f"{weft}: {args.workers} workers, {servers} servers: a step takes "
              f"{statistics.median(of_case):.3f} ms, at least {min(of_case):.3f} ms")


if __name__ == "__main__":
    main()
