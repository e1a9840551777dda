"""The ops that gpu_check.py times: programs of a few ops, and what they read, write and compute."""
import collections
import re

# What the parts need, and the ops they time.
GROUPS = [
    ("ops: memory", [], ["copy", "adam", "embedding"]),
    ("ops: products", ["cuBLASLt"], ["product fp32", "product tf32", "product bf16"]),
    ("ops: images, attention", ["cuBLASLt"], ["convolution", "batch_norm", "attention"]),
]
# Dense operations a second by precision, and bytes a second, of the data sheets.
PEAKS = {
    "H200": {"fp32": 67e12, "tf32": 494e12, "bf16": 989e12, "bytes": 4.8e12},
    "H100 80GB HBM3": {"fp32": 67e12, "tf32": 494e12, "bf16": 989e12, "bytes": 3.35e12},
    "A100-SXM4-80GB": {"fp32": 19.5e12, "tf32": 156e12, "bf16": 312e12, "bytes": 2.04e12},
    "A100-SXM4-40GB": {"fp32": 19.5e12, "tf32": 156e12, "bf16": 312e12, "bytes": 1.56e12},
}
TYPES = {"fp32": 5, "int64": 3, "bf16": 22}

# `kept`: variables that the startup program makes; `made`: those of a step; both name: (type, dims).
# `timed`: several figures of ops, as (name, ops, bytes, operations).
Case = collections.namedtuple("Case", "kept made ops timed precision")


def cases(names, is_small):
    """The cases of these names; small ones to test the script on a CPU."""
    for name in names:
        kind, _, precision = name.partition(" ")
        yield CASES[kind](is_small, precision or "fp32")


def copy(is_small, _):
    n = 1 << (16 if is_small else 26)
    return Case({"x": ("fp32", [n])}, {"y": ("fp32", [n])}, ["Out=[y] = assign(X=[x])"],
                [("copy", [0], 8 * n, 0)], "fp32")


def adam(is_small, _):
    n = 1 << (16 if is_small else 24)
    states = {name: ("fp32", [n]) for name in ("w", "g", "m", "v")}
    scalars = {name: ("fp32", [1]) for name in ("a", "b", "lr")}
    op = ("ParamOut=[w], Moment1Out=[m], Moment2Out=[v], Beta1PowOut=[a], Beta2PowOut=[b] = "
          "adam(Param=[w], Grad=[g], Moment1=[m], Moment2=[v], Beta1Pow=[a], Beta2Pow=[b], "
          "LearningRate=[lr])")
    return Case(dict(states, **scalars), {}, [op], [("adam", [0], 28 * n, 0)], "fp32")


def embedding(is_small, _):
    rows, ids, width = (100, 256, 8) if is_small else (30522, 65536, 768)
    kept = {"w": ("fp32", [rows, width]), "g": ("fp32", [ids, width]), "ids": ("int64", [ids])}
    made = {"e": ("fp32", [ids, width]), "dw": ("fp32", [rows, width])}
    ops = ["Out=[e] = lookup_table_v2(W=[w], Ids=[ids])",
           "W@GRAD=[dw] = lookup_table_v2_grad(W=[w], Ids=[ids], Out@GRAD=[g])"]
    moved = 4 * ids * width
    return Case(kept, made, ops, [("embedding", [0], 2 * moved, 0),
                                  ("embedding_grad", [1], moved + 4 * rows * width, 0)], "fp32")


def product(is_small, precision):
    n = 64 if is_small else 4096
    kind = "bf16" if precision == "bf16" else "fp32"
    kept = {"x": (kind, [n, n]), "y": (kind, [n, n])}
    return Case(kept, {"z": (kind, [n, n])}, ["Out=[z] = matmul_v2(X=[x], Y=[y])"],
                [("product " + precision, [0], 0, 2 * n**3)], precision)


def convolution(is_small, _):
    n, c, size = (1, 8, 8) if is_small else (64, 64, 56)
    image, filters = ("fp32", [n, c, size, size]), ("fp32", [c, c, 3, 3])
    attrs = '{strides=ints[1, 1], paddings=ints[1, 1], dilations=ints[1, 1], groups=1, data_format="NCHW"}'
    flops = 2 * n * c * c * 9 * size * size
    ops = ["Output=[y] = conv2d(Input=[x], Filter=[w]) " + attrs,
           "Input@GRAD=[dx], Filter@GRAD=[dw] = conv2d_grad(Input=[x], Filter=[w], Output@GRAD=[dy]) " + attrs]
    return Case({"x": image, "w": filters, "dy": image}, {"y": image, "dx": image, "dw": filters}, ops,
                [("convolution", [0], 0, flops), ("convolution_grad", [1], 0, 2 * flops)], "fp32")


def batch_norm(is_small, _):
    n, c, size = (2, 4, 4) if is_small else (64, 64, 56)
    image, channels = ("fp32", [n, c, size, size]), ("fp32", [c])
    kept = dict({name: channels for name in ("scale", "bias", "mean", "var")}, x=image, dy=image)
    made = dict({name: channels for name in ("sm", "sv", "ds", "db")}, y=image, dx=image)
    ops = ["Y=[y], MeanOut=[mean], VarianceOut=[var], SavedMean=[sm], SavedVariance=[sv] = "
           "batch_norm(X=[x], Scale=[scale], Bias=[bias], Mean=[mean], Variance=[var])",
           "X@GRAD=[dx], Scale@GRAD=[ds], Bias@GRAD=[db] = batch_norm_grad(X=[x], Scale=[scale], "
           "Bias=[bias], SavedMean=[sm], SavedVariance=[sv], Y@GRAD=[dy])"]
    moved = 4 * n * c * size * size
    return Case(kept, made, ops, [("batch_norm", [0], 3 * moved, 0),
                                  ("batch_norm_grad", [1], 5 * moved, 0)], "fp32")


def attention(is_small, _):
    n, heads, length, width = (1, 2, 8, 4) if is_small else (16, 12, 512, 64)
    rows, scores = ("fp32", [n, heads, length, width]), ("fp32", [n, heads, length, length])
    ops = ["Out=[s] = matmul_v2(X=[q], Y=[k]) {trans_y=true}", "Out=[p] = softmax(X=[s]) {axis=-1}",
           "Out=[o] = matmul_v2(X=[p], Y=[v])"]
    return Case({"q": rows, "k": rows, "v": rows}, {"s": scores, "p": scores, "o": rows}, ops,
                [("attention", [0, 1, 2], 0, 4 * n * heads * length * length * width)], "fp32")


CASES = {f.__name__: f for f in (copy, adam, embedding, product, convolution, batch_norm, attention)}


def program(variables, ops):
    lines = ["program version=2006002 {", "  block 0 parent=-1 {"]
    lines += ["    var %s : %s%s%s" % (name, kind, dims, " persistable" if is_kept else "")
              for name, ((kind, dims), is_kept) in variables.items()]
    lines += ["    %s" % (op if op.endswith("}") else op + " {}") for op in ops]
    return "\n".join(lines + ["  }", "}", ""])


def write(case, main, startup):
    """Writes the two programs. The main one also makes `done`, which is cheap to fetch."""
    number = ("fp32", [1])
    variables = dict({name: (kind, True) for name, kind in case.kept.items()},
                     **{name: (kind, False) for name, kind in case.made.items()}, done=(number, False))
    fill = "Out=[done] = fill_constant() {dtype=5, shape=longs[1], value=0.0}"
    with open(main, "w", encoding="utf-8") as file:
        file.write(program(variables, case.ops + [fill]))
    variables, ops = {}, []
    for name, (kind, dims) in case.kept.items():
        variables[name] = ((kind, dims), True)
        shape = "shape=longs%s, seed=1" % dims
        drawn = name if kind == "fp32" else name + "_fp32"
        top = case.kept["w"][1][0] - 1 if kind == "int64" else 0.75  # ids of the rows of w
        variables[drawn] = (("fp32", dims), kind == "fp32")
        ops.append("Out=[%s] = uniform_random() {dtype=5, %s, min=0.25, max=%r}" % (
            drawn, shape, float(top)))
        if drawn != name:
            ops.append("Out=[%s] = cast(X=[%s]) {in_dtype=5, out_dtype=%d}" % (name, drawn, TYPES[kind]))
    with open(startup, "w", encoding="utf-8") as file:
        file.write(program(variables, ops))


def figures(case, ops, gpu, copied):
    """What a profile says of the ops; `copied` is how many bytes a second a copy moves."""
    seconds = {int(re.match(r"op (\d+) ", op["op"]).group(1)): op["seconds"] for op in ops}
    peak = next((PEAKS[card] for card in PEAKS if card in gpu), {})
    for name, positions, moved, operations in case.timed:
        figure = {"name": name, "ms": sum(seconds[p] for p in positions) * 1e3}
        for what, amount, best in (("bytes", moved, peak.get("bytes")),
                                   ("flops", operations, peak.get(case.precision))):
            if not amount:
                continue
            figure[what + "_per_s"] = amount * 1e3 / figure["ms"]
            if best:
                figure["share_of_peak"] = figure[what + "_per_s"] / best
        if moved and copied:
            figure["share_of_copy"] = figure["bytes_per_s"] / copied
        yield figure


def text(figure):
    line = "  %-18s %10.4f ms" % (figure["name"], figure["ms"])
    if "bytes_per_s" in figure:
        line += " %9.1f GB/s" % (figure["bytes_per_s"] / 1e9)
    if "flops_per_s" in figure:
        line += " %9.2f TFLOP/s" % (figure["flops_per_s"] / 1e12)
    for key, of in (("share_of_peak", "the card's peak"), ("share_of_copy", "a copy")):
        if key in figure:
            line += "  %3.0f %% of %s" % (100 * figure[key], of)
    return line
