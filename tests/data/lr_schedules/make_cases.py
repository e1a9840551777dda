#!/usr/bin/env python3
"""Writes cases.jsonl: schedules as weft run takes them, and the rates that Paddle gives.

    make_cases.py > cases.jsonl     # needs PaddlePaddle 2.6
"""
import json

from paddle.optimizer import lr

STEPS = 50


def after(steps, schedule):
    for _ in range(steps):
        schedule.step()
    return schedule


CASES = [
    ("noam{d_model=64,warmup_steps=10}", lambda: lr.NoamDecay(64, 10)),
    ("noam{d_model=512,warmup_steps=4,learning_rate=2}", lambda: lr.NoamDecay(512, 4, 2.0)),
    ("piecewise{boundaries=3:7,values=0.1:0.05:0.01}",
     lambda: lr.PiecewiseDecay([3, 7], [0.1, 0.05, 0.01])),
    ('piecewise{boundaries="3, 7, 30",values="1,0.5,0.1,1e-3"}',
     lambda: lr.PiecewiseDecay([3, 7, 30], [1, 0.5, 0.1, 1e-3])),
    ("exponential{learning_rate=0.1,gamma=0.9}", lambda: lr.ExponentialDecay(0.1, 0.9)),
    ("natural_exp{learning_rate=0.1,gamma=0.1}", lambda: lr.NaturalExpDecay(0.1, 0.1)),
    ("inverse_time{learning_rate=0.1,gamma=0.5}", lambda: lr.InverseTimeDecay(0.1, 0.5)),
    ("polynomial{learning_rate=0.1,decay_steps=20}", lambda: lr.PolynomialDecay(0.1, 20)),
    ("polynomial{learning_rate=0.1,decay_steps=12,end_lr=0.01,power=2,cycle=true}",
     lambda: lr.PolynomialDecay(0.1, 12, 0.01, 2.0, True)),
    ("cosine{learning_rate=0.1,T_max=10}", lambda: lr.CosineAnnealingDecay(0.1, 10)),
    ("cosine{learning_rate=0.1,T_max=15,eta_min=0.01}",
     lambda: lr.CosineAnnealingDecay(0.1, 15, 0.01)),
    ("linear_warmup{warmup_steps=5,start_lr=0,end_lr=0.1}",
     lambda: lr.LinearWarmup(0.1, 5, 0.0, 0.1)),
    ("linear_warmup{warmup_steps=5,start_lr=0.01,end_lr=0.1,learning_rate=0.02}",
     lambda: lr.LinearWarmup(0.02, 5, 0.01, 0.1)),
    ("linear_warmup{warmup_steps=5,start_lr=0,end_lr=0.1},cosine{learning_rate=0.1,T_max=30}",
     lambda: lr.LinearWarmup(lr.CosineAnnealingDecay(0.1, 30), 5, 0.0, 0.1)),
    ("linear_warmup{warmup_steps=4,start_lr=0,end_lr=0.1},"
     "piecewise{boundaries=10:20,values=0.1:0.01:0.001}",
     lambda: lr.LinearWarmup(lr.PiecewiseDecay([10, 20], [0.1, 0.01, 0.001]), 4, 0.0, 0.1)),
    ("step{learning_rate=0.1,step_size=7}", lambda: lr.StepDecay(0.1, 7)),
    ("step{learning_rate=0.1,step_size=5,gamma=0.5}", lambda: lr.StepDecay(0.1, 5, 0.5)),
    ("multi_step{learning_rate=0.1,milestones=3:9:27}", lambda: lr.MultiStepDecay(0.1, [3, 9, 27])),
    ("multi_step{learning_rate=0.1,milestones=8,gamma=0.3}",
     lambda: lr.MultiStepDecay(0.1, [8], 0.3)),
    ("linear{learning_rate=0.1,total_steps=20}", lambda: lr.LinearLR(0.1, 20)),
    ("linear{learning_rate=0.1,total_steps=7,start_factor=1,end_factor=0.25}",
     lambda: lr.LinearLR(0.1, 7, 1.0, 0.25)),
    ("cyclic{base_learning_rate=0.01,max_learning_rate=0.1,step_size_up=3}",
     lambda: lr.CyclicLR(0.01, 0.1, 3)),
    ("cyclic{base_learning_rate=0.01,max_learning_rate=0.1,step_size_up=3,step_size_down=5,"
     "mode=triangular2}", lambda: lr.CyclicLR(0.01, 0.1, 3, 5, "triangular2")),
    ("cyclic{base_learning_rate=0.01,max_learning_rate=0.1,step_size_up=4,mode=exp_range,"
     "exp_gamma=0.95}", lambda: lr.CyclicLR(0.01, 0.1, 4, mode="exp_range", exp_gamma=0.95)),
    ("cosine_warm_restarts{learning_rate=0.1,T_0=7}",
     lambda: lr.CosineAnnealingWarmRestarts(0.1, 7)),
    ("cosine_warm_restarts{learning_rate=0.1,T_0=3,T_mult=2,eta_min=0.01}",
     lambda: lr.CosineAnnealingWarmRestarts(0.1, 3, 2, 0.01)),
    ("start_at{step=3},exponential{learning_rate=0.1,gamma=0.9}",
     lambda: after(3, lr.ExponentialDecay(0.1, 0.9))),
    ("start_at{step=8},linear_warmup{warmup_steps=5,start_lr=0,end_lr=0.1},"
     "cosine{learning_rate=0.1,T_max=30}",
     lambda: after(8, lr.LinearWarmup(lr.CosineAnnealingDecay(0.1, 30), 5, 0.0, 0.1))),
]

for spec, make in CASES:
    schedule = make()
    rates = []
    for _ in range(STEPS):
        rates.append(schedule())
        schedule.step()
    print(json.dumps({"schedule": spec, "rates": rates}))
