"""Writes programs of tests/data/paddle2_6_fleet.tar.xz: what fleet of Paddle 2.6 makes of a small model,
by strategy.

    PYTHON fleet_programs.py DIRECTORY [NAME...]

needs Paddle 2.6.2. DIRECTORY/NAME gets main.RANK.pb and startup.RANK.pb for two ranks, and original.pb
and original_startup.pb, the programs of the same optimizer without fleet, without the places in this
script that ops come from. tests/training/fleet_programs_test.cc verifies and runs them.
"""
import os
import subprocess
import sys
import tempfile

from program_files import Models, save

RANKS = 2
strategy = STRATEGIES = Models()


def sgd(paddle):
    return paddle.optimizer.SGD(0.1)


def momentum(paddle, **more):
    return paddle.optimizer.Momentum(0.1, 0.9, **more)


def adam(paddle, **more):
    return paddle.optimizer.Adam(0.01, **more)


def global_norm(paddle):
    return paddle.nn.ClipGradByGlobalNorm(0.5)


# Each sets the strategy, and returns the optimizer that fleet gets.


@strategy
def raw(paddle, of):
    of.fuse_all_reduce_ops = False
    return momentum(paddle)


@strategy
def raw_fused(paddle, of):
    return momentum(paddle)


@strategy
def raw_small_groups(paddle, of):
    of.fuse_grad_size_in_num = 3
    return adam(paddle)


@strategy
def raw_same_stream(paddle, of):
    of._calc_comm_same_stream = True
    return momentum(paddle)


@strategy
def raw_clip(paddle, of):
    return momentum(paddle, grad_clip=global_norm(paddle), weight_decay=0.01)


@strategy
def merge(paddle, of):
    of.gradient_merge = True
    of.gradient_merge_configs = {"k_steps": 2, "avg": True}
    return momentum(paddle)


@strategy
def merge_sum(paddle, of):
    of.gradient_merge = True
    of.gradient_merge_configs = {"k_steps": 2, "avg": False}
    return sgd(paddle)


@strategy
def amp_o1(paddle, of):
    of.amp = True
    of.amp_configs = {"init_loss_scaling": 1024.0, "use_dynamic_loss_scaling": True}
    return momentum(paddle)


@strategy
def amp_o2(paddle, of):
    of.amp = True
    of.amp_configs = {"init_loss_scaling": 1024.0, "use_dynamic_loss_scaling": True,
                      "use_pure_fp16": True, "use_fp16_guard": False}
    return momentum(paddle, multi_precision=True)


@strategy
def amp_o2_seeded(paddle, of):
    """Ranks draw alike: in amp_o2, master weights begin otherwise on each rank."""
    return amp_o2(paddle, of)


@strategy
def recompute(paddle, of):
    of.recompute = True
    of.recompute_configs = {"checkpoints": paddle.checkpoints}
    return adam(paddle)


@strategy
def recompute_amp(paddle, of):
    of.amp = True
    of.recompute = True
    of.recompute_configs = {"checkpoints": paddle.checkpoints}
    return adam(paddle)


@strategy
def lars(paddle, of):
    of.lars = True
    of.lars_configs = {"lars_coeff": 0.01, "lars_weight_decay": 0.0005, "epsilon": 1e-6,
                       "exclude_from_weight_decay": ["b_0"]}
    return momentum(paddle)


@strategy
def lamb(paddle, of):
    of.lamb = True
    of.lamb_configs = {"lamb_weight_decay": 0.01, "exclude_from_weight_decay": ["b_0"]}
    return adam(paddle)


@strategy
def local_sgd(paddle, of):
    of.localsgd = True
    of.localsgd_configs = {"k_steps": 2, "begin_step": 1}
    return sgd(paddle)


@strategy
def adaptive_local_sgd(paddle, of):
    of.adaptive_localsgd = True
    of.adaptive_localsgd_configs = {"init_k_steps": 1, "begin_step": 1}
    return sgd(paddle)


@strategy
def dgc(paddle, of):
    of.dgc = True
    of.dgc_configs = {"rampup_begin_step": 2, "rampup_step": 2, "sparsity": [0.75, 0.9]}
    return momentum(paddle)


@strategy
def fp16_all_reduce(paddle, of):
    of.fp16_allreduce = True
    return momentum(paddle)


def sharding_configs(of, **more):
    of.sharding = True
    of.sharding_configs = dict({"sharding_segment_strategy": "segment_broadcast_MB",
                                "segment_broadcast_MB": 0.0005, "sharding_degree": RANKS}, **more)


@strategy
def sharding(paddle, of):
    sharding_configs(of)
    return momentum(paddle)


@strategy
def sharding_adam(paddle, of):
    sharding_configs(of, segment_broadcast_MB=32.0)
    return adam(paddle)


@strategy
def sharding_clip(paddle, of):
    sharding_configs(of)
    return momentum(paddle, grad_clip=global_norm(paddle), weight_decay=0.01)


@strategy
def sharding_amp(paddle, of):
    sharding_configs(of)
    of.amp = True
    of.amp_configs = {"init_loss_scaling": 1024.0}
    return momentum(paddle)


@strategy
def sharding_amp_recompute(paddle, of):
    sharding_configs(of)
    of.amp = True
    of.recompute = True
    of.recompute_configs = {"checkpoints": paddle.checkpoints}
    return adam(paddle)


@strategy
def sharding_merge(paddle, of):
    sharding_configs(of, gradient_merge_acc_step=2)
    return momentum(paddle)


@strategy
def sharding_merge_clip(paddle, of):
    sharding_configs(of, gradient_merge_acc_step=2)
    return momentum(paddle, grad_clip=global_norm(paddle), weight_decay=0.01)


@strategy
def sharding_merge_recompute(paddle, of):
    sharding_configs(of, gradient_merge_acc_step=2)
    of.recompute = True
    of.recompute_configs = {"checkpoints": paddle.checkpoints}
    return adam(paddle)


@strategy
def sharding_merge_amp(paddle, of):
    sharding_configs(of, gradient_merge_acc_step=2)
    of.amp = True
    of.amp_configs = {"init_loss_scaling": 1024.0}
    return momentum(paddle)


@strategy
def sharding_offload(paddle, of):
    sharding_configs(of, optimize_offload=True)
    return adam(paddle)


@strategy
def sharding_lamb(paddle, of):
    sharding_configs(of)
    of.lamb = True
    return adam(paddle)


def build_model(paddle):
    x = paddle.static.data("x", [-1, 8], "float32")
    y = paddle.static.data("y", [-1, 1], "int64")
    hidden = paddle.static.nn.fc(x, 16, activation="tanh")
    paddle.checkpoints = [hidden.name]
    hidden = paddle.static.nn.fc(hidden, 16, activation="tanh")
    paddle.checkpoints.append(hidden.name)
    scores = paddle.static.nn.fc(hidden, 5)
    return paddle.mean(paddle.nn.functional.softmax_with_cross_entropy(scores, y))


def write(name, directory, rank):
    """The programs of a rank; -1: without fleet."""
    import paddle
    from paddle.distributed import fleet

    paddle.enable_static()
    pretend_to_have_gpus(paddle)
    main, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, startup), paddle.utils.unique_name.guard():
        startup.random_seed = 1 if name.endswith("_seeded") else 0
        loss = build_model(paddle)
        of = fleet.DistributedStrategy()
        optimizer = STRATEGIES[name](paddle, of)
        if rank < 0:
            minimize_without_fleet(fleet, of, optimizer, loss, startup)
        else:
            fleet.init(is_collective=True, strategy=of)
            fleet.distributed_optimizer(optimizer, of).minimize(loss, startup)
    main = loss.block.program
    names, rename = ("original.pb", "original_startup.pb"), as_sharding_has_it if of.sharding else None
    if rank >= 0:
        names, rename = ("main.%d.pb" % rank, "startup.%d.pb" % rank), None
    save(main, os.path.join(directory, names[0]), rename)
    save(startup, os.path.join(directory, names[1]), rename)


def as_sharding_has_it(name):
    """What sharding calls a state of the optimizer that merges gradients."""
    names = {"gradient_merge_step": "gradient_merge_current_step",
             "gradient_merge_k": "gradient_merge_acc_step"}
    return names.get(name, name.replace("@GradientMerge", "@GradiantMerge"))


def pretend_to_have_gpus(paddle):
    """Fleet writes programs for GPUs, with ops that builds for CPUs lack."""
    from types import SimpleNamespace
    from paddle.base import core, framework

    core.is_compiled_with_cuda = lambda: True
    core.op_supported_infos = lambda place, dtype: (set(), set(), set())  # none lacks a kernel for fp16
    paddle.get_flags = lambda flag: {flag: True}
    core.dgc = SimpleNamespace(
        kDGCCounterName=lambda: "__g_dgc_counter__", kDGCRampUpBeginStepName=lambda: "__g_rampup_begin_step__",
        kDGCKName=lambda: "__dgc_k__", kDGCUName=lambda: "__dgc_u__", kDGCVName=lambda: "__dgc_v__",
        kDGCEncodedName=lambda: "__dgc_encoded__", kDGCGatherName=lambda: "__dgc_gather__",
        kDGCNRanksName=lambda: "__g_dgc_nranks__")
    lacking = ("c_gen_nccl_id", "dgc", "dgc_momentum", "dgc_clip_by_norm", "c_comm_init")
    append_op = framework.Block.append_op

    def append(block, *args, **kwargs):
        if kwargs.get("type") not in lacking:
            return append_op(block, *args, **kwargs)
        desc = block.desc.append_op()
        desc.set_type(kwargs["type"])
        for put, slots in ((desc.set_input, kwargs.get("inputs")), (desc.set_output, kwargs.get("outputs"))):
            for slot, of_slot in (slots or {}).items():
                of_slot = of_slot if isinstance(of_slot, (list, tuple)) else [of_slot]
                put(slot, [getattr(one, "name", one) for one in of_slot])
        for attr, value in kwargs.get("attrs", {}).items():
            desc._set_attr(attr, value)
        block.ops.append(framework.Operator(block=block, desc=desc))
        return block.ops[-1]

    framework.Block.append_op = append


def minimize_without_fleet(fleet, of, optimizer, loss, startup):
    """By the optimizer that the strategy makes, for one device."""
    from paddle.distributed.fleet import meta_optimizers as meta

    role = fleet.PaddleCloudRoleMaker(is_collective=True)
    role._generate_role()
    steps = of.sharding_configs["gradient_merge_acc_step"] if of.sharding else 1
    if steps > 1:
        of.gradient_merge_configs = {"k_steps": steps, "avg": True}
    kinds = [(of.lars, meta.LarsOptimizer), (of.lamb, meta.LambOptimizer),
             (of.recompute, meta.RecomputeOptimizer), (of.amp, meta.AMPOptimizer),
             (of.gradient_merge or steps > 1, meta.GradientMergeOptimizer)]
    inner = optimizer
    for is_chosen, kind in kinds:
        if not is_chosen:
            continue
        optimizer = kind(optimizer)
        optimizer._set_basic_info(loss, role, inner, of)
    optimizer.minimize(loss, startup)


def run_all(directory, names):
    for name in names or STRATEGIES:
        target = os.path.abspath(os.path.join(directory, name))
        os.makedirs(target, exist_ok=True)
        for rank in range(-1, RANKS):
            endpoints = ["127.0.0.1:%d" % (36001 + r) for r in range(RANKS)]
            env = dict(os.environ, PADDLE_TRAINERS_NUM=str(RANKS), PADDLE_TRAINER_ID=str(max(rank, 0)),
                       PADDLE_TRAINER_ENDPOINTS=",".join(endpoints),
                       PADDLE_CURRENT_ENDPOINT=endpoints[max(rank, 0)], TRAINING_ROLE="TRAINER")
            with tempfile.TemporaryDirectory() as here:  # fleet leaves programs as text
                done = subprocess.run(
                    [sys.executable, os.path.abspath(__file__), "--rank", str(rank), target, name],
                    env=env, cwd=here, capture_output=True, text=True)
            if done.returncode != 0:
                lines = done.stderr.strip().splitlines()
                print(name, "rank", rank, "failed:", "\n".join(lines[-4:]))


if __name__ == "__main__":
    if sys.argv[1] == "--rank":
        write(sys.argv[4], sys.argv[3], int(sys.argv[2]))
    else:
        run_all(sys.argv[1], sys.argv[2:])
