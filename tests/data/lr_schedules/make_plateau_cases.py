#!/usr/bin/env python3
"""Writes plateau_cases.jsonl: schedules that follow a metric as weft run takes them, the metrics,
and the rates that Paddle gives after each of them.

    make_plateau_cases.py > plateau_cases.jsonl     # needs PaddlePaddle 2.6
"""
import json
import random

from paddle.optimizer import lr

CASES = [
    ("", {}),
    ("patience=2", {"patience": 2}),
    ("patience=0,factor=0.5", {"patience": 0, "factor": 0.5}),
    ("patience=1,factor=0.5,cooldown=3", {"patience": 1, "factor": 0.5, "cooldown": 3}),
    ("patience=1,factor=0.5,min_lr=0.02", {"patience": 1, "factor": 0.5, "min_lr": 0.02}),
    ("patience=0,factor=0.9,epsilon=0.05", {"patience": 0, "factor": 0.9, "epsilon": 0.05}),
    ("patience=1,threshold=0.2", {"patience": 1, "threshold": 0.2}),
    ("patience=1,threshold=0.2,threshold_mode=abs",
     {"patience": 1, "threshold": 0.2, "threshold_mode": "abs"}),
    ("mode=max,patience=1,factor=0.3", {"mode": "max", "patience": 1, "factor": 0.3}),
    ("mode=max,patience=1,threshold=0.1,threshold_mode=abs",
     {"mode": "max", "patience": 1, "threshold": 0.1, "threshold_mode": "abs"}),
]


def main():
    draw = random.Random(3)
    for options, arguments in CASES:
        scheduler = lr.ReduceOnPlateau(0.1, **arguments)
        # A loss that falls, and stays.
        metrics = [round(2 / (1 + min(i, 14)) + draw.uniform(0, 0.3), 3) for i in range(40)]
        rates = []
        for metric in metrics:
            scheduler.step(metric)
            rates.append(scheduler.last_lr)
        text = "learning_rate=0.1,every=1" + ("," + options if options else "")
        print(json.dumps({"schedule": "reduce_on_plateau{%s}" % text, "metrics": metrics,
                          "rates": rates}))


main()
