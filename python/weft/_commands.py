"""What has the options of the commands. python/generate_commands.py writes this file."""
# pylint: disable=too-many-lines, too-many-locals, too-many-arguments, redefined-builtin
# pylint: disable=redefined-outer-name
from __future__ import annotations

from weft import _fit, _results, _run
from weft._results import Report, Transpiled

TYPE_CHECKING = False  # as of typing, which takes a while to import
if TYPE_CHECKING:
    import os
    from typing import Any, Callable, Dict, Iterable, Mapping, Optional, Sequence, Union

    from weft._program import Program

    Source = Union[Program, str, os.PathLike[str], bytes, Any]


def transpile(
    main: Source, startup: Optional[Source] = None, *,
    mode: Optional[str] = None,
    passes: Optional[str] = None,
    nranks: Optional[int] = None,
    endpoints: Optional[str] = None,
    rank: Optional[Union[int, str]] = None,
    current_endpoint: Optional[str] = None,
    devices: Optional[str] = None,
    device_kind: Optional[str] = None,
    paddle_version: Optional[str] = None,
    distributed_params: Optional[str] = None,
    nrings: Optional[int] = None,
    sync_batch_norm: Optional[bool] = None,
    exact_loss: Optional[bool] = None,
    gather_negatives: Optional[bool] = None,
    statistics: Optional[bool] = None,
    sparse: Optional[str] = None,
    scale: Optional[str] = None,
    buckets: Optional[str] = None,
    prefetch: Optional[int] = None,
    stage: Optional[int] = None,
    rank_approximation: Optional[int] = None,
    start_step: Optional[int] = None,
    spars: Optional[float] = None,
    corr: Optional[bool] = None,
    threshold: Optional[int] = None,
    buffer_elements: Optional[int] = None,
    fallback: Optional[bool] = None,
    adam_epsilon: Optional[str] = None,
    wait: Optional[str] = None,
    async_: Optional[bool] = None,
    staleness: Optional[int] = None,
    prefetch_rows: Optional[bool] = None,
    out_of_range: Optional[str] = None,
    group_size: Optional[int] = None,
    k_steps: Optional[int] = None,
    rounds: Optional[int] = None,
    begin_step: Optional[int] = None,
    first_average: Optional[int] = None,
    state: Optional[str] = None,
    outer: Optional[str] = None,
    fragments: Optional[int] = None,
    delay: Optional[int] = None,
    mix: Optional[float] = None,
    comm_dtype: Optional[str] = None,
    loss_scale: Optional[bool] = None,
    fuse: Optional[str] = None,
    fuse_grad_size_in_num: Optional[int] = None,
    trans_mode: Optional[str] = None,
    reduce_method: Optional[str] = None,
    degree: Optional[str] = None,
    accumulate_type: Optional[str] = None,
    lowering: Optional[str] = None,
    division: Optional[str] = None,
    clip: Optional[float] = None,
    bcast_period: Optional[int] = None,
    no_decay: Optional[str] = None,
    master_weights: Optional[str] = None,
    offload: Optional[str] = None,
    offload_params: Optional[str] = None,
    bias_correction: Optional[bool] = None,
    gradient_copy: Optional[str] = None,
    order: Optional[str] = None,
    staging: Optional[str] = None,
    tables: Optional[str] = None,
    use_nesterov: Optional[bool] = None,
    dialect: Optional[str] = None,
    verify: Optional[bool] = None,
    certificate: Optional[Union[str, os.PathLike[str]]] = None,
    place: Optional[str] = None,
    device_memory: Optional[int] = None,
    rank_memory: Optional[int] = None,
    batch: Optional[float] = None,
    copy_bandwidth: Optional[float] = None,
    accelerator_speed: Optional[float] = None,
    feed_layout: Optional[Union[Sequence[str], Mapping[str, str], str]] = None,
    assume: Optional[str] = None,
    param_attrs: Optional[Union[str, os.PathLike[str]]] = None,
    op_times: Optional[Union[str, os.PathLike[str]]] = None,
    comm_table: Optional[Union[str, os.PathLike[str]]] = None,
    dump_dir: Optional[Union[str, os.PathLike[str]]] = None,
    progress: Optional[Callable[[str], None]] = None,
) -> Transpiled:
    """Rewrites programs, and verifies the result, as the command transpile does.

    main, startup: a path, bytes, a Program, or a static program of Paddle.
    progress: called with the name of each pass that has run.

    Returns a Transpiled, with the programs main, startup and server, and notes.

    >>> out = transpile("main.pb", "startup.pb", mode="grad_allreduce")
    >>> out.main.save("out.pb")

    Options, as of the command, where None stands for its default:

    mode: MODE. named pipeline, or auto: the one that fits the program and the flags; see
        transpile --list_modes
    passes: TEXT. passes instead of a mode: 'a{k=v},b'; see transpile --list_passes
    nranks: N. number of ranks; if unknown, the result is valid for any number (an integer;
        default as option endpoints says, else unknown)
    endpoints: TEXT. the endpoint of each trainer, in order (host:port,host:port; default none)
    rank: N. the trainer that the startup program is written for, from 0 (an integer; default
        0); all: writes outputs for every trainer, whose number replaces {rank} in their names
    current_endpoint: TEXT. the endpoint of the trainer that option rank names (host:port;
        default its entry in option endpoints)
    devices: TEXT. the devices that each trainer drives (numbers, separated by commas; default
        one device per trainer; paddle dialect: Paddle's default)
    device_kind: TEXT. the devices that the result is for (cuda, cpu; paddle dialect: also xpu,
        custom; default cuda)
    paddle_version: TEXT. the major version of the Paddle that runs the result (2 or 3; default
        as the program)
    distributed_params: TEXT. parameters that are not replicated (names, separated by commas;
        default none)
    nrings: N. communication rings (an integer >= 1 and <= 1024; default 1 or 2)
    sync_batch_norm: bool. normalize by the statistics of all ranks' batches, as one device does
    exact_loss: bool. reduce the sums and counts that losses other than batch means use, to get
        the loss of one device on the global batch
    gather_negatives: bool. gather from all ranks the samples that a loss compares with each
        other, as in contrastive losses
    statistics: BOOL. grad_allreduce, zero, parameter_server, local_sgd,
        single_process_multi_thread, multi_thread, optimizer_offload, embedding_offload: reduce
        running statistics over the ranks too (true or false; default false)
    sparse: WORD. grad_allreduce, zero, power_sgd, parameter_server,
        single_process_multi_thread, multi_thread, mindspore_reducer, singa_plain, singa_half,
        megengine, optimizer_offload, embedding_offload: how sparse gradients travel; auto: as
        rows or dense, whichever takes fewer bytes; supported: as rows, but dense for a device
        whose collectives take no rows (auto|rows|supported|dense; default auto or rows or
        supported)
    scale: WORD. grad_allreduce, zero, parameter_server, multi_thread, optimizer_offload,
        embedding_offload: where gradients are divided by the number of ranks: at the gradient
        of the loss, in the reduction (avg), or nowhere; auto: nowhere for losses that are sums
        over the batch, else loss_grad, or avg if the number is unknown
        (auto|loss_grad|avg|none; default auto)
    buckets: TEXT. grad_allreduce, zero, power_sgd, parameter_server,
        single_process_multi_thread, multi_thread, mindspore_reducer, singa_plain, singa_half,
        megengine, optimizer_offload, embedding_offload: which gradients travel together (none,
        optimal, bytes{first_bytes=N,max_bytes=N}, count{count=N}, paddle_count{count=N},
        mindspore{split_indices="I,J",fusion_type=N,honour_comm_fusion=BOOL,parallel_optimizer=BOOL},
        mindspore_size{threshold=N}, singa{threshold=N,buffer_elements=N},
        megengine{threshold_bytes=N} or megengine_pass{max_size_mib=N,ignore_first=N}; default
        bytes or mindspore or singa or none)
    prefetch: N. zero: how many buckets of parameters are gathered ahead of their use, each on a
        ring of its own; 0: buckets are gathered where they are used, on the last of the other
        rings (an integer >= 0 and <= 64; default 1)
    stage: N. zero: what is sharded over the ranks: 1 optimizer state, and parameters between
        steps; 2 gradients, too; 3 parameters within a step, too (an integer >= 1 and <= 3;
        default 1)
    rank_approximation: N. power_sgd: rank of the approximation: columns of the two matrices
        whose product replaces a gradient (an integer >= 1; default 4)
    start_step: N. power_sgd: before this step, gradients travel whole; steps count from 1 (an
        integer >= 2; default 10)
    spars: NUMBER. singa_sparse_topk, singa_sparse_threshold: the share of the elements that is
        sent (topk), or the least magnitude (threshold) (a number; default 0.05)
    corr: BOOL. singa_sparse_topk, singa_sparse_threshold: add what was not sent to the
        gradients of the next step (true or false; default true)
    threshold: N. singa_sparse_topk, singa_sparse_threshold, singa_partial: a tensor with more
        elements than this travels alone; others share a collective until it has more (an
        integer >= 0; default 2097152)
    buffer_elements: N. singa_sparse_topk, singa_sparse_threshold: the size of SINGA's buffer,
        in elements; at least twice the threshold (an integer >= 0; default 4194304)
    fallback: BOOL. singa_sparse_topk, singa_sparse_threshold: send gradients whole where
        sparsifying them saves no bytes, whatever their values; SINGA sparsifies all (true or
        false; default false)
    adam_epsilon: WORD. parameter_server, optimizer_offload, embedding_offload: the epsilon that
        adam and adamw add to the root of the second moment: with Paddle's bias correction, or
        without it (mindspore) (paddle|mindspore; default paddle)
    wait: WORD. parameter_server: servers update a parameter when all workers have sent its
        gradient, or when they have sent all gradients (per_key|all_keys; default per_key)
    async_: bool. servers apply each gradient as it arrives, instead of the mean over the
        workers
    staleness: N. parameter_server: maximum staleness, in steps (with option async) (an integer
        >= 0 and <= 1048576; default 4)
    prefetch_rows: bool. while a step runs, workers prefetch the rows of tables that the next
        batch looks up
    out_of_range: WORD. parameter_server, embedding_offload: what an id without a row in the
        table does, in lookups on the host or in tables that servers hold by rows: it ends the
        run, or gives zeros and no gradient (error|zeros; default error)
    group_size: N. local_sgd: ranks per group: every k_steps, each group averages its parameters
        alone; 0: one group of all ranks (an integer >= 0; default 0)
    k_steps: N. local_sgd: averaging period, in steps (an integer >= 1; default 1)
    rounds: N. local_sgd: with group_size: all ranks average every rounds * k_steps steps (an
        integer >= 1; default 1)
    begin_step: N. local_sgd: before this step, every step averages; steps count from 1 (an
        integer >= 1; default 1)
    first_average: N. local_sgd: before this step, no step averages (an integer >= 1; default 1)
    state: WORD. local_sgd: optimizer state where parameters are averaged: each rank keeps its
        own, the ranks average it, or it is set to its initial value (local|average|reset;
        default local)
    outer: TEXT. local_sgd: the outer optimizer, which moves parameters by the mean change of
        the ranks (averaging, sgd{lr=1}, nesterov{lr=0.7,momentum=0.9} or
        slowmo{lr=1,momentum=0.5}, with lr > 0 and 0 < momentum < 1; default averaging)
    fragments: N. local_sgd: parts of the parameters, which are synchronized in turn within
        k_steps (an integer >= 1; default 1)
    delay: N. local_sgd: steps between sending the outer gradients and applying them (an integer
        >= 0; default 0)
    mix: NUMBER. local_sgd: weight of a rank's own parameters in the result of a synchronization
        (a number from 0 to 1; default 0)
    comm_dtype: WORD. local_sgd, mindspore_reducer, singa_half: the element type that is sent;
        native: as it is; fp32: grad-reduce casts narrower gradients, local-sgd casts nothing
        (native|fp32|fp16|bf16; default fp32 or fp16)
    loss_scale: BOOL. single_process_multi_thread: whether to divide the loss's gradient by the
        number of ranks (true or false; default true)
    fuse: WORD. single_process_multi_thread: how gradients are summed: 0 one by one, 1 in fused
        buffers, 2 by c_allreduce_xsum (paddle dialect) (1|0|2; default 1)
    fuse_grad_size_in_num: N. multi_thread: gradients in a fused buffer (paddle dialect) (an
        integer >= 1; default 128)
    trans_mode: WORD. multi_thread: how gradients travel: in buckets, gathered, or one by one
        (fuse_all_reduce|all_gather|all_reduce|all_reduce_xpu; default fuse_all_reduce)
    reduce_method: WORD. mindspore_reducer, megengine: sum or mean over the ranks (sum|mean;
        default sum)
    degree: TEXT. mindspore_reducer: what a mean divides by, if not the number of ranks (ranks
        or an integer >= 1; default ranks)
    accumulate_type: WORD. mindspore_reducer, singa_half: how half precision is added: in fp32,
        or rounded after each addition (fp32|native; default fp32 or native)
    lowering: WORD. mindspore_reducer, singa_plain, singa_half: how gradients share a
        collective: in a fused buffer, or as variables of one op (buffer|group; default buffer)
    division: WORD. singa_half: how a mean is computed: after the sum, times the fp32 reciprocal
        or as a quotient; or times the reciprocal before gradients are cast, so that their sum
        does not overflow (reciprocal|quotient|before; default reciprocal)
    clip: NUMBER. singa_half: clip each rank's gradient elements to [-clip, clip] before the
        reduction; 0 disables (a number >= 0; default 0)
    bcast_period: N. megengine: when rank 0 broadcasts the parameters: 0 when training begins, N
        > 0 also before the updates of every N-th step, -1 never (an integer >= -1; default 0)
    no_decay: TEXT. optimizer_offload: parameters without weight decay, unless option
        param_attrs gives them one; may have *
    master_weights: WORD. optimizer_offload: whether the host keeps fp32 master weights of
        half-precision parameters (fp32|none; default fp32)
    offload: WORD. optimizer_offload: full: the host updates the parameters and returns them;
        states: it holds the states and returns what the parameters change by (full|states;
        default full)
    offload_params: TEXT. optimizer_offload: parameters whose optimizers go to the host; may
        have * (default *)
    bias_correction: BOOL. optimizer_offload: whether adam and adamw correct moments for their
        start at 0 (true or false; default true)
    gradient_copy: WORD. optimizer_offload: the element type in which fp32 gradients are copied
        to the host (native|fp16|bf16; default native)
    order: WORD. optimizer_offload, embedding_offload: op order: start host ops early, or
        minimize device switches (early_start|few_switches; default early_start)
    staging: WORD. optimizer_offload: memory of values on their way to the host: one buffer for
        each, or two in turns (all|double; default double)
    tables: TEXT. embedding_offload: tables that go to the host; may have *; empty: all that can
    use_nesterov: BOOL. embedding_offload: whether adam with lazy_mode has Nesterov momentum, as
        MindSpore's LazyAdam can (true or false; default false)
    dialect: TEXT:{weft,paddle}. weft: Weft's own rewrite; paddle: op for op what Paddle writes
        (default weft)
    verify: BOOL. whether to refuse programs that the verifier finds wrong (default true; mode
        none only warns)
    certificate: DIR. a proof that the result computes what it should, for checker/ to check:
        writes claim.txt and proof.txt; fails if Weft cannot certify what the mode does
    place: RULES. Which ops run on the host (cpu) and which on an accelerator (sim or gpu),
        after all other passes: type:adam=cpu,param:w=cpu,name:fc_*=sim; see pass
        hetero-partition
    device_memory: BYTES. Bytes of an accelerator: puts on the host what does not fit (state of
        optimizers, then embeddings, then other ops), so that a step takes the least predicted
        time
    rank_memory: BYTES. Bytes of memory that a rank has: warns if a step needs more, and names
        the stage of mode zero that fits
    batch: NUMBER. option device_memory and rank_memory: rows of a rank's batch (default 32)
    copy_bandwidth: NUMBER. device_memory: bytes per second between the two memories (default
        10000000000)
    accelerator_speed: NUMBER. device_memory: speed of the accelerator, in cores of the host
        (default 50)
    feed_layout: TEXT. how feed variables are given to the ranks: x=axis:1,rate=whole; default:
        as the file says, else as their declarations suggest
    assume: 'my_op: elementwise,...'. What to assume about ops without a schema: elementwise,
        per_sample, linear, no_communication, joined by |
    param_attrs: FILE. JSON: comm_fusion, group, layerwise_parallel, in_shard, lr_ratio,
        parameter_server, weight_decay of parameters, and groups of ranks
    op_times: FILE. option buckets optimal: times of ops, from weft run --profile; default:
        estimated
    comm_table: FILE. option buckets optimal and device_memory: times of collectives, from weft
        comm_bench; default: 20 us and 4 GB/s
    dump_dir: DIR. program text before, between and after passes
    """
    return _results.transpile(main, startup, _given(locals()), progress)


def verify(
    main: Union[Transpiled, Source, Sequence[Source]],
    startup: Union[Source, Sequence[Source], None] = None,
    original: Optional[Source] = None,
    original_startup: Optional[Source] = None,
    server: Optional[Source] = None, *,
    expression_depth: Optional[int] = None,
    nranks: Optional[int] = None,
    distributed_params: Optional[Union[Sequence[str], str]] = None,
    feed_layout: Optional[Union[Sequence[str], Mapping[str, str], str]] = None,
    param_attrs: Optional[Union[str, os.PathLike[str]]] = None,
    assume: Optional[str] = None,
    order: Optional[str] = None,
    rounded_gradients: Optional[bool] = None,
    summed_gradients: Optional[bool] = None,
    k_steps: Optional[int] = None,
    begin_step: Optional[int] = None,
    first_average: Optional[int] = None,
    in_turn: Optional[bool] = None,
    numeric: Optional[bool] = None,
    steps: Optional[int] = None,
    certificate: Optional[Union[str, os.PathLike[str]]] = None,
) -> Report:
    """Proves that a program is correct on many ranks, as weft verify does.

    main: the program that all ranks run, a list with one for each rank, or what transpile returns.
    original: the program before the rewrite: does the other compute the same?

    Returns a Report: true if nothing is wrong.

    >>> verify("out.pb", "out_startup.pb", original="main.pb").ok
    True

    Options, as of the command, where None stands for its default:

    expression_depth: N. Also print each value that differs (W601, W602) as a whole, down to N
        levels
    nranks: N. Number of ranks; default: as the files or programs say, else any number
    distributed_params: A,B. Comma-separated parameters that are sharded over the ranks
    feed_layout: x=axis:1,.... How feed variables are given to the ranks: split along an axis,
        or whole; default: as the file says, else as their declarations suggest
    param_attrs: F. JSON, as transpile reads it: groups of ranks, and parameters that are not
        replicated
    assume: 'my_op: elementwise,...'. What to assume about ops without a schema: elementwise,
        per_sample, linear, no_communication, joined by |
    order: streams|events:{streams,events}. What orders ops: their streams and the waits of the
        program, or also the variables that they name, as in Paddle since 2.5; default: as the
        file says, else streams
    rounded_gradients: bool. Gradients may be rounded to half precision and back (singa_half)
    summed_gradients: bool. Expect gradients summed over the ranks; =false: averaged (default:
        as the file says, else summed for losses that are sums over the batch)
    k_steps: N. Expected averaging period of LocalSGD, in steps; default: as the file says
    begin_step: N. Expected step before which LocalSGD averages in every step; default: as the
        file says
    first_average: N. Expected step before which LocalSGD does not average; default: as the file
        says
    in_turn: bool. Expect parameters averaged in turn: one of K partitions in each step
    numeric: bool. Also run both programs on small random data, and compare persistable
        variables: the rewritten one on as many ranks as option nranks says (2 if unknown), the
        original on one rank with the global batch
    steps: N. Steps that option numeric runs (default 2)
    certificate: DIR. If nothing is wrong, write a proof for checker/ to check: claim.txt and
        proof.txt
    """
    return _results.verify(main, startup, original, original_startup, server,
                           _given(locals()))


def evaluate(
    program: Source, batches: Iterable[Any],
    params: Union[_run.Run, Mapping[str, Any], None] = None,
    startup: Optional[Source] = None, *,
    names: Optional[Sequence[str]] = None,
    ema: Optional[bool] = None,
    feed_layout: Optional[Union[Sequence[str], Mapping[str, str], str]] = None,
    fetch: Optional[Union[Sequence[str], str]] = None,
    threads: Optional[int] = None,
    seed: Optional[int] = None,
    paddle_cpu_quirks: Optional[bool] = None,
    check_nan: Optional[bool] = None,
) -> _fit.Evaluated:
    """Evaluates a test program on all batches, as weft eval does.

    batches: an iterable of name -> array, of which arrays that the program does not have are left out;
        of batches that are tuples or lists, `names` are the names.
    params: a Run, whose parameters are taken as they are now, or name -> array, as state_dict returns;
        without any, `startup` makes them.

    Returns an Evaluated: name -> number, of the metrics.

    >>> evaluate("test.pb", batches("feeds.npz"), startup="startup.pb")  # doctest: +ELLIPSIS
    {'loss': 8.605...}

    Options, as of the command, where None stands for its default:

    ema: bool. Evaluate with the moving averages of the parameters that Paddle's
        ExponentialMovingAverage has made in training
    feed_layout: x=axis:1,.... Which axis of feed variables is the batch; whole: they have no
        samples; default: as the file says, else as their declarations suggest
    fetch: A,B. Comma-separated variables to evaluate; default: losses, and numbers that no op
        reads
    threads: N. Compute threads per rank (default 1)
    seed: N. Random seed for ops whose own seed is 0 (default 0)
    paddle_cpu_quirks: bool. Reproduce known bugs of Paddle's CPU kernels
    check_nan: bool. Stop at the first op that produces a NaN or Inf
    """
    return _fit.evaluate(program, batches, params, startup, names, _given(locals()))


def stats(
    program: Source, *,
    batch: Optional[int] = None,
    servers: Optional[int] = None,
) -> str:
    """What weft stats prints: ops, parameters, bytes communicated, memory.

    Options, as of the command, where None stands for its default:

    batch: N. Rows of a rank's batch; replaces unknown first dimensions (default 1)
    servers: N. Number of parameter servers; prints the share of each. Default: 1 for a program
        of servers
    """
    return _results.text_of("weft_stats", "stats", program, _given(locals()))


def plan(
    program: Source, *,
    buckets: Optional[str] = None,
    nrings: Optional[int] = None,
    op_times: Optional[Union[str, os.PathLike[str]]] = None,
    comm_table: Optional[Union[str, os.PathLike[str]]] = None,
    param_attrs: Optional[Union[str, os.PathLike[str]]] = None,
    nranks: Optional[int] = None,
    batch: Optional[int] = None,
    why: Optional[str] = None,
    svg: Optional[Union[str, os.PathLike[str]]] = None,
) -> str:
    """What weft plan prints: which gradients travel together, and what is exposed of that.

    Options, as of the command, where None stands for its default:

    buckets: POLICY. As for transpile; docs/modes.md (default bytes)
    nrings: N. Rings, which buckets take in turn (default 1)
    op_times: FILE.json. Times of ops, from weft run --profile; default: estimated
    comm_table: FILE.json. Times of collectives, from weft comm_bench, or {"latency_s": ..,
        "bytes_per_s": ..}
    param_attrs: FILE.json. As for transpile
    nranks: N. Number of ranks, with option param_attrs; default: any number
    batch: N. Rows of a rank's batch, for estimated times (default 32)
    why: A,B. Why two gradients do not share a bucket
    svg: FILE.svg. Draw the timeline
    """
    return _results.text_of("weft_plan", "plan", program, _given(locals()))


class Run(_run.Run):
    """Trains a program, step by step, on ranks that are threads of this process.

    main, startup: a path, bytes, a Program, a static program of Paddle, or what transpile returns.
    params: parameters and state, set after the startup program: name -> array, or a file, of which
        weft run --params says more.
    progress: step shows a progress bar, with tqdm if it is there.

    `notes` has what weft run says before and while it runs.

    >>> with Run("main.pb", "startup.pb") as run:
    ...     loss, = run.step({"x": x, "y": y})

    Options, as of the command, where None stands for its default:

    params_names: FILE. Names of the tensors in a save_combine stream, in order: one per line,
        or a JSON list; default: the persistable variables of the program, or its parameters,
        sorted
    feed_layout: x=axis:1,.... How feed variables are given to the ranks: split along an axis,
        or whole; default: as the file says, else as their declarations suggest
    assume: 'my_op: elementwise,...'. What to assume about ops without a schema: elementwise,
        per_sample, linear, no_communication, joined by |
    order: streams|events:{streams,events}. What orders ops: their streams and the waits of the
        program, or also the variables that they name, as in Paddle since 2.5; default: as the
        file says, else streams
    set: NAME=VALUE. Set a persistable variable that no op writes, before every step
    lr_schedule: NAME{...}. Compute the learning rate of every step as Paddle's schedulers do:
        'noam{d_model=512,warmup_steps=4000}',
        'linear_warmup{warmup_steps=5,start_lr=0,end_lr=0.1},cosine{...}', ...; docs/running.md
        lists them all
    lr_var: NAME. The variable to set; default: the program's only learning rate
    resume_step: N. Resume after N steps: feeds, schedules and random draws continue from there;
        the state comes from params (default 0)
    resume: FILE. Resume from a checkpoint, to the end of its run: its state replaces startup
        and params, and its ranks, seed and schedule are the defaults; of params, only arrays
        that the program does not have are kept, for save
    fetch: A,B. Comma-separated variables to report; default: the loss
    ranks: N. Ranks of this process (default 1)
    backend: TEXT:{local,shm,mpi,gloo,nccl}. What ranks communicate with; default: nccl on GPUs;
        on CPUs local for one process (ranks are threads), and for processes of a launcher shm
        on one host, else mpi if it belongs to an MPI, else gloo. On a GPU, local is for ranks
        of one process that share it
    device: TEXT:{cpu,gpu}. Device that computes (default cpu)
    cuda_graph: TEXT:{auto,on,off}. With option device gpu: record a step as a CUDA graph, which
        later steps replay; auto: where nothing in it needs the host; on: otherwise fail
        (default off)
    tf32: bool. With option device gpu: products of fp32 round their operands to TF32
    sim_memory: BYTES. Memory of the accelerator that the host simulates, for a program on one
        device or two; a program that needs more fails; 0: as much as the host has (default 0)
    sim_copy_bandwidth: BYTES_PER_S. Limit copies between the memories of two devices to so many
        bytes per second; 0: no limit (default 0)
    threads: N. Compute threads per rank (default 1)
    seed: N. Random seed for initializers and dropout whose own seed is 0 (default 0)
    allow_unsynchronized: bool. Accept a program that updates parameters on several ranks
        without any collective: each rank trains a separate model
    force: bool. Run a program that weft verify proves wrong without its original: the errors
        are warnings
    strict_host_sync: bool. Make c_sync_* block the host, as in Paddle, instead of making
        streams wait
    paddle_cpu_quirks: bool. Reproduce known bugs of Paddle's CPU kernels
    check_nan: bool. Stop at the first op that produces a NaN or Inf
    warn_after_s: S. Report a late rank after S seconds (default 60)
    timeout_s: S. Abort the run when a rank is S seconds late (default 600)
    """

    def __init__(
        self, main: Union[Transpiled, Source], startup: Optional[Source] = None, *,
        params: Union[Mapping[str, Any], str, os.PathLike[str], None] = None,
        progress: bool = False,
        params_names: Optional[Union[str, os.PathLike[str]]] = None,
        feed_layout: Optional[Union[Sequence[str], Mapping[str, str], str]] = None,
        assume: Optional[str] = None,
        order: Optional[str] = None,
        set: Union[Mapping[str, float], Sequence[str], str, None] = None,
        lr_schedule: Optional[str] = None,
        lr_var: Optional[str] = None,
        resume_step: Optional[int] = None,
        resume: Optional[Union[str, os.PathLike[str]]] = None,
        fetch: Optional[Union[Sequence[str], str]] = None,
        ranks: Optional[int] = None,
        backend: Optional[str] = None,
        device: Optional[str] = None,
        cuda_graph: Optional[str] = None,
        tf32: Optional[bool] = None,
        sim_memory: Optional[int] = None,
        sim_copy_bandwidth: Optional[float] = None,
        threads: Optional[int] = None,
        seed: Optional[int] = None,
        allow_unsynchronized: Optional[bool] = None,
        force: Optional[bool] = None,
        strict_host_sync: Optional[bool] = None,
        paddle_cpu_quirks: Optional[bool] = None,
        check_nan: Optional[bool] = None,
        warn_after_s: Optional[float] = None,
        timeout_s: Optional[float] = None,
    ) -> None:
        options = _given(locals())
        del options["self"]
        self._begin(main, startup, params, progress, options)


def _given(arguments: Dict[str, Any]) -> Dict[str, Any]:
    """The options among the arguments of a function."""
    return {name.rstrip("_"): value for name, value in arguments.items() if name not in _OTHERS}


_OTHERS = {"main", "startup", "original", "original_startup", "server", "program", "params",
           "progress", "batches", "names"}
