#!/usr/bin/env python3
"""Two processes of Paddle train what weft.paddle.distribute gives them; Trainer leaves the same in
Paddle's scope.

usage: WEFT_C_LIBRARY=libweft_c.so distribute_in_paddle.py [OUTPUT]

Without OUTPUT, runs itself in two processes of paddle.distributed.launch, compares their losses and
parameters with those of weft.paddle.Trainer on two ranks and of Paddle alone, and prints a line. Exit
status 77 without Paddle. FLAGS_enable_pir_api=0 in the environment makes Paddle 3 use its old format.
"""
import json
import os
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, os.environ.get("WEFT_PYTHON") or os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))

try:
    import numpy as np
    import paddle
except ImportError as missing:
    print("skipped: %s" % missing)
    sys.exit(77)

import weft.paddle  # pylint: disable=wrong-import-position

STEPS = 4
BATCH = 8


def layer(x, size, name, **options):
    """A layer whose parameters have the same names in all programs of a process."""
    return paddle.static.nn.fc(x, size, weight_attr=paddle.ParamAttr(name=name + ".w"),
                               bias_attr=paddle.ParamAttr(name=name + ".b"), **options)


def build(rate=None):
    """A small network with Adam, a schedule, and a start that differs from rank to rank."""
    main, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.utils.unique_name.guard(), paddle.static.program_guard(main, startup):
        x = paddle.static.data("x", [-1, 13], "float32")
        y = paddle.static.data("y", [-1, 1], "float32")
        hidden = layer(x, 8, "hidden", activation="tanh")
        prediction = layer(hidden, 1, "out")
        loss = paddle.mean(paddle.nn.functional.square_error_cost(prediction, y))
        rate = rate or paddle.optimizer.lr.ExponentialDecay(0.05, 0.5)
        paddle.optimizer.Adam(rate).minimize(loss)
    return main, startup, loss, rate


def batches():
    """The batches of both ranks together."""
    generator = np.random.default_rng(7)
    return [{"x": generator.standard_normal((BATCH, 13), dtype=np.float32),
             "y": generator.standard_normal((BATCH, 1), dtype=np.float32)} for _ in range(STEPS)]


def train(mode, begins_with):
    """Paddle trains on this rank. Returns losses, and what the scope has then."""
    main, startup, loss, rate = build()
    executor = paddle.static.Executor(paddle.CPUPlace())
    if begins_with:
        executor.run(startup)
        weft.paddle.load_state_dict(dict(np.load(begins_with)), main)
    job = weft.paddle.distribute(main, startup, mode=mode)
    paddle.seed(100 + job.rank)
    job.start(executor)
    begin = job.state_dict()
    losses = []
    for batch in batches():
        found = executor.run(job.main, feed=job.part(batch), fetch_list=job.fetch([loss]))
        losses.append(float(np.mean(found[0])))
        rate.step()
    return losses, begin, job.state_dict()


def in_launcher(output, mode, begins_with):
    """A process of the launcher."""
    losses, begin, end = train(mode, begins_with)
    path = os.path.join(output, os.environ["PADDLE_TRAINER_ID"])
    np.savez(path + "_begin.npz", **begin)
    np.savez(path + "_end.npz", **end)
    with open(path + ".json", "w", encoding="utf-8") as file:
        json.dump(losses, file)


def free_port():
    """A port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def launch(directory, mode, begins_with=""):
    """Runs two processes. Returns what in_launcher writes of each."""
    os.makedirs(directory)
    done = subprocess.run(
        [sys.executable, "-m", "paddle.distributed.launch", "--nproc_per_node", "2",
         "--log_dir", os.path.join(directory, "log"), os.path.abspath(__file__), directory, mode,
         begins_with], capture_output=True, text=True, timeout=300, check=False)
    ranks = []
    for rank in "01":
        path = os.path.join(directory, rank)
        if not os.path.exists(path + ".json"):
            log = os.path.join(directory, "log", "workerlog." + rank)
            with open(log, encoding="utf-8", errors="replace") as file:
                sys.exit("rank %s: exit status %d\n%s\n%s" % (
                    rank, done.returncode, file.read()[-3000:], done.stderr[-2000:]))
        with open(path + ".json", encoding="utf-8") as file:
            losses = json.load(file)
        ranks.append((losses, dict(np.load(path + "_begin.npz")), dict(np.load(path + "_end.npz"))))
    return ranks


def assert_close(found, expected, what):
    """Equal, but for another order of summation."""
    assert sorted(found) == sorted(expected), (what, sorted(found), sorted(expected))
    for name, array in expected.items():
        np.testing.assert_allclose(np.asarray(found[name]), array, rtol=2e-4, atol=2e-6,
                                   err_msg="%s: %s" % (what, name))


def alone(begin):
    """Paddle trains the original program on whole batches."""
    with paddle.static.scope_guard(paddle.static.Scope()):
        main, startup, loss, rate = build()
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(startup)
        weft.paddle.load_state_dict(begin, main)
        losses = []
        for batch in batches():
            losses.append(float(np.mean(executor.run(main, feed=batch, fetch_list=[loss])[0])))
            rate.step()
        return losses, weft.paddle.state_dict(main)


def trained_here(begin, mode):
    """Weft trains, and leaves the result in the scope."""
    with paddle.static.scope_guard(paddle.static.Scope()):
        main, startup, loss, rate = build()
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(startup)
        weft.paddle.load_state_dict(begin, main)
        with weft.paddle.Trainer(main, startup, mode=mode, ranks=2) as trainer:
            losses = [float(trainer.step(batch)[0]) for batch in batches()]
        assert rate.last_epoch == STEPS, rate.last_epoch
        state = weft.paddle.state_dict(main)
        # Paddle goes on from there.
        after = executor.run(main, feed=batches()[0], fetch_list=[loss])[0]
        assert np.isfinite(after).all()
        return losses, state


def trainer_of_a_job(begin):
    """`nranks` counts the ranks of all processes; this is the only one."""
    with paddle.static.scope_guard(paddle.static.Scope()):
        main, startup, _, _ = build()
        paddle.static.Executor(paddle.CPUPlace()).run(startup)
        weft.paddle.load_state_dict(begin, main)
        for mode in (None, "grad_allreduce"):
            with weft.paddle.Trainer(main, startup, mode=mode, ranks=2,
                                     transpile={"nranks": 2}) as trainer:
                trainer.step(batches()[0])
        try:
            weft.paddle.Trainer(main, startup, ranks=2, transpile={"nranks": 4})
            raise AssertionError("expected an error")
        except weft.Error as error:
            assert "expected ranks 4, found 2" in str(error), error


def follows_plateau(begin, every, **options):
    """20 steps of a rate that follows the loss, of Paddle alone, and of Weft and then Paddle."""
    steps, all_batches = 20, [batches()[i % STEPS] for i in range(20)]
    results = []
    for here in (0, 12):
        with paddle.static.scope_guard(paddle.static.Scope()):
            rate = paddle.optimizer.lr.ReduceOnPlateau(0.05, **options)
            main, startup, loss, _ = build(rate)
            executor = paddle.static.Executor(paddle.CPUPlace())
            executor.run(startup)
            weft.paddle.load_state_dict(begin, main, strict=False)
            losses, period = [], []
            if here:
                with weft.paddle.Trainer(main, startup, plateau_steps=every, ranks=2) as trainer:
                    losses = [float(trainer.step(batch)[0]) for batch in all_batches[:here]]
            for batch in all_batches[here:steps]:
                losses.append(float(np.mean(executor.run(main, feed=batch, fetch_list=[loss])[0])))
                period.append(losses[-1])
                if len(period) == every:
                    rate.step(float(np.mean(period)))
                    period = []
            results.append((losses, [rate.last_lr, rate.num_bad_epochs, rate.cooldown_counter,
                                     rate.last_epoch], rate.best))
    np.testing.assert_allclose(results[1][0], results[0][0], rtol=1e-4)
    assert results[1][1] == results[0][1], results
    assert results[0][1][0] < 0.05, results  # it fell
    np.testing.assert_allclose(results[1][2], results[0][2], rtol=1e-4)


def a_plateau_needs_its_steps():
    """But not where the script looks at the loss itself."""
    main, startup, _, _ = build(paddle.optimizer.lr.ReduceOnPlateau(0.05))
    for call in (lambda: weft.Program(main), lambda: weft.paddle.Trainer(main, startup),
                 lambda: weft.paddle.Trainer(main, startup, plateau_steps=True),
                 lambda: weft.paddle.Trainer(main, startup, plateau_steps=0)):
        try:
            call()
            raise AssertionError("expected an error")
        except weft.Error as error:
            assert "plateau_steps" in str(error), error
    job = weft.paddle.Job(main, startup, "grad_allreduce", None, 0, 2, {"device_kind": "cpu"})
    assert job.main.lr_scheduler is main.lr_scheduler
    main, startup, _, _ = build(paddle.optimizer.lr.StepDecay(0.05, 2))
    for call in (lambda: weft.Program(main, plateau_steps=2),
                 lambda: weft.paddle.Trainer(main, startup, plateau_steps=2)):
        try:
            call()
            raise AssertionError("expected an error")
        except weft.Error as error:
            assert str(error).endswith("follows ReduceOnPlateau, found StepDecay"), error


def wrong_arguments_say_what_is_expected():
    """As errors of Weft."""
    main, startup, loss, _ = build()
    job = weft.paddle.Job(main, startup, "grad_allreduce", None, 0, 2, {"device_kind": "cpu"})
    batch = batches()[0]
    for call, message in (
            (lambda: weft.paddle.distribute("main.pb", startup), "main: expected a static program"),
            (lambda: weft.paddle.distribute(main, 3), "startup: expected a static program of Paddle"),
            (lambda: weft.paddle.Trainer("main.pb"), "main: expected a static program of Paddle"),
            (lambda: weft.paddle.state_dict(3), "main: expected a static program of Paddle, found int"),
            (lambda: weft.paddle.load_state_dict(None, main), "state: expected name -> array, found"),
            (lambda: weft.Program(loss), "weft.Program or a static program of Paddle, found "),
            (lambda: job.part([batch["x"]]), "batch: expected name -> array, found list"),
            (lambda: job.part({"x": [1.0]}), "feed x: expected an array, found list"),
            (lambda: job.part(batch, whole="z"), "whole: expected names of the batch (x, y), found z"),
            (lambda: job.fetch(3), "fetch: expected variables of the program, or names, found int")):
        try:
            call()
        except weft.Error as error:
            assert message in str(error), error
        else:
            raise AssertionError("expected: " + message)
    assert job.part(batch, whole="x")["x"] is batch["x"]
    assert len(job.part(batch, whole="x")["y"]) == BATCH // 2


def state_goes_in(begin):
    """During a run whose ranks have parts of the optimizer's state, all ranks take theirs."""
    with paddle.static.scope_guard(paddle.static.Scope()):
        main, startup, _, _ = build()
        paddle.static.Executor(paddle.CPUPlace()).run(startup)
        weft.paddle.load_state_dict(begin, main)
        rate = [name for name in begin if "learning_rate" in name][0]
        with weft.paddle.Trainer(main, startup, mode="zero", ranks=2, set={rate: 0.05}) as trainer:
            assert any("moment" in name for name in trainer.state_dict())
            trainer.step(batches()[0])
            kept = trainer.state_dict()
            first = [float(trainer.step(batch)[0]) for batch in batches()]
            trainer.load_state_dict(kept)
            assert_close(trainer.state_dict(), kept, "state that was set")
            assert [float(trainer.step(batch)[0]) for batch in batches()] == first, first


def one_process():
    """Without a launcher, a job runs the programs as they are, from the values of the scope."""
    with paddle.static.scope_guard(paddle.static.Scope()):
        main, startup, loss, _ = build()
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(startup)
        begin = weft.paddle.state_dict(main)
        job = weft.paddle.distribute(main, startup)
        job.start(executor)
        assert_close(job.state_dict(), begin, "begin of one process")
        batch = batches()[0]
        executor.run(job.main, feed=job.part(batch), fetch_list=job.fetch(loss))
        missing = {name: value for name, value in begin.items() if not name.endswith("hidden.w")}
        wrong = dict(begin, **{"out.b": np.zeros(2, "float32")})
        for state, message in ((missing, "hidden.w: expected a value for each"),
                               (wrong, "out.b: the program declares float32[1], but the state has "
                                       "float32[2]")):
            before = weft.paddle.state_dict(main)
            try:
                weft.paddle.load_state_dict(state, main)
                raise AssertionError("expected: " + message)
            except weft.Error as error:
                assert message in str(error), error
            assert_close(weft.paddle.state_dict(main), before, "after an error")


def main():
    """Compares all of them."""
    paddle.enable_static()
    if len(sys.argv) > 1:
        return in_launcher(*sys.argv[1:])
    one_process()
    with tempfile.TemporaryDirectory() as directory:
        ranks = launch(os.path.join(directory, "new"), "grad_allreduce")
        begin = ranks[0][1]
        assert_close(ranks[1][1], begin, "begin of rank 1")
        expected, end = alone(begin)
        np.testing.assert_allclose(np.mean([ranks[0][0], ranks[1][0]], axis=0), expected, rtol=1e-4)
        for rank in range(2):
            # The executor sets the rate before a step, not after it.
            assert_close(ranks[rank][2], end, "end of rank %d" % rank)
        state_goes_in(begin)
        trainer_of_a_job(begin)
        follows_plateau(begin, 1, patience=0, factor=0.5, threshold=0.2)
        follows_plateau(begin, 2, patience=0, factor=0.7, cooldown=1, threshold=0.1,
                        threshold_mode="abs", min_lr=0.02)
        follows_plateau(begin, 3, mode="max", patience=1, factor=0.5)
        a_plateau_needs_its_steps()
        wrong_arguments_say_what_is_expected()
        losses, state = trained_here(begin, "grad_allreduce")
        np.testing.assert_allclose(losses, expected, rtol=1e-4)
        rates = [name for name in end if "learning_rate" in name]
        for name in rates:
            state.pop(name), end.pop(name)
        assert_close(state, end, "Trainer")
        # From values of the scope, which one rank alone has.
        path = os.path.join(directory, "begin.npz")
        np.savez(path, **ranks[0][2])
        again = launch(os.path.join(directory, "again"), "multi_thread", path)
        for rank in range(2):
            assert_close(again[rank][1], ranks[0][2], "begin of the second job, rank %d" % rank)
    print("Paddle %s, %s: two processes and Trainer train what Paddle does" % (
        paddle.__version__, weft.Program(build()[0]).format))
    return 0


if __name__ == "__main__":
    sys.exit(main())
