"""Prints the losses of several runs of one training side by side.

usage: compare_losses.py NAME=METRICS.jsonl NAME=METRICS.jsonl ...

The files are what `weft run --metrics` wrote. The loss of a step is the mean over the ranks. The
last line is the largest difference from the first run, relative to its loss.
"""
import json
import sys


def read_losses(path):
    """Returns the loss of each step: the mean over the ranks of the only variable fetched."""
    by_step = {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            (value,) = record["fetch"].values()
            by_step.setdefault(record["step"], []).extend(value)
    return [sum(values) / len(values) for _, values in sorted(by_step.items())]


def main():
    names, runs = [], []
    for argument in sys.argv[1:]:
        name, _, path = argument.partition("=")
        names.append(name)
        runs.append(read_losses(path))
    if len({len(run) for run in runs}) != 1 or not runs[0]:
        sys.exit("compare_losses.py: error: the runs have different numbers of steps: %s" %
                 ", ".join("%s %d" % (n, len(r)) for n, r in zip(names, runs)))

    print("  step" + "".join("%14s" % name for name in names))
    for step, losses in enumerate(zip(*runs)):
        print("%6d" % step + "".join("%14.7g" % loss for loss in losses))
    largest = max(
        abs(loss - first) / max(abs(first), 1e-30) for first, *others in zip(*runs)
        for loss in others)
    print("largest relative difference: %.2g" % largest)
    return 0 if largest < 1e-5 else 1


if __name__ == "__main__":
    sys.exit(main())
