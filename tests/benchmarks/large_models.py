"""Writes the large models of step_benchmark by Paddle 2.6: ResNet-50, BERT base and GPT-2 small, in fp32 and in
mixed precision (O1) of bf16, as the programs MODEL/main.pb and MODEL/startup.pb:

    python tests/benchmarks/large_models.py FOLDER
    tar cJf tests/data/large_models.tar.xz -C FOLDER .
"""

import os
import sys

import paddle
import paddle.nn.functional as F
from paddle import nn
from paddle.amp import amp_lists
from paddle.static import amp


def resnet50():
    x = paddle.static.data("x", [-1, 3, 224, 224], "float32")
    y = paddle.static.data("y", [-1, 1], "int64")
    loss = F.cross_entropy(paddle.vision.models.resnet50()(x), y)
    return loss, paddle.optimizer.Momentum(0.1, 0.9, weight_decay=1e-4)


class Layer(nn.Layer):
    """A layer of a transformer; `before`: normalizes before attention and feed-forward, not after."""

    def __init__(self, width, heads, before):
        super().__init__()
        self.heads, self.size, self.before = heads, width // heads, before
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.norms = nn.LayerList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def split(self, x):
        return x.reshape([0, 0, self.heads, self.size]).transpose([0, 2, 1, 3])

    def attention(self, x, mask):
        scores = paddle.matmul(self.split(self.query(x)) * self.size**-0.5, self.split(self.key(x)), transpose_y=True)
        weights = F.dropout(F.softmax(scores if mask is None else scores + mask), 0.1)
        mixed = paddle.matmul(weights, self.split(self.value(x)))
        return self.out(mixed.transpose([0, 2, 1, 3]).reshape([0, 0, self.heads * self.size]))

    def forward(self, x, mask):
        for norm, part in zip(
            self.norms, [lambda x: self.attention(x, mask), lambda x: self.down(F.gelu(self.up(x)))]
        ):
            x = x + F.dropout(part(norm(x)), 0.1) if self.before else norm(x + F.dropout(part(x), 0.1))
        return x


def transformer(tokens, length, before):
    """Predicts the label of each of the tokens, of which a row has `length`."""
    width = 768
    ids, pos = (paddle.static.data(name, [-1, length], "int64") for name in ("ids", "pos"))
    label = paddle.static.data("label", [-1, length, 1], "int64")
    x = F.dropout(nn.LayerNorm(width)(nn.Embedding(tokens, width)(ids) + nn.Embedding(length, width)(pos)), 0.1)
    mask = paddle.triu(paddle.full([length, length], -1e4, "float32"), 1) if before else None
    for _ in range(12):
        x = Layer(width, 12, before)(x, mask)
    loss = F.cross_entropy(nn.Linear(width, tokens)(x), label)
    return loss, paddle.optimizer.AdamW(1e-4, grad_clip=nn.ClipGradByGlobalNorm(1.0))


MODELS = {
    "resnet50": resnet50,
    "bert_base": lambda: transformer(30522, 128, False),
    "gpt2_small": lambda: transformer(50257, 256, True),
}


def lists():
    """The lists of mixed precision, whose ops a Paddle without GPUs holds for unsupported."""
    result = amp.AutoMixedPrecisionLists(dtype="bfloat16", custom_white_list={"matmul_v2", "conv2d"})
    result.white_list = set(amp_lists.FP16_WHITE_LIST)
    result.black_list = set(amp_lists.FP16_BLACK_LIST | amp_lists.EXTRA_BLACK_LIST)
    result.gray_list = (set(amp.fp16_lists.gray_list) | {"softmax", "gelu", "flatten_contiguous_range"})
    result.black_list -= result.gray_list
    result.unsupported_list = set()
    return result


def leave_callstacks_out(program):
    """Those name files of the machine."""
    for block in program.blocks:
        for op in block.ops:
            if op.has_attr("op_callstack"):
                op._remove_attr("op_callstack")


def main(folder):
    paddle.enable_static()
    for name, model in MODELS.items():
        for suffix in ("", "_bf16"):
            main_program, startup = paddle.static.Program(), paddle.static.Program()
            with paddle.utils.unique_name.guard(), paddle.static.program_guard(main_program, startup):
                loss, optimizer = model()
                if suffix:
                    optimizer = amp.decorate(optimizer, amp_lists=lists(), level="O1", dtype="bfloat16")
                optimizer.minimize(loss, startup)
            os.makedirs(os.path.join(folder, name + suffix), exist_ok=True)
            for file, program in (("main.pb", main_program), ("startup.pb", startup)):
                leave_callstacks_out(program)
                with open(os.path.join(folder, name + suffix, file), "wb") as out:
                    out.write(program.desc.serialize_to_string())


main(sys.argv[1])
