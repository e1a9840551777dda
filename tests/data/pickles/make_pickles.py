#!/usr/bin/env python3
"""Writes files of parameters as Paddle 2.6.2 does: the same two parameters, 0, 1, 2, ... in each.

    make_pickles.py DIRECTORY    # needs PaddlePaddle 2.6.2
"""
import collections
import pickle
import sys

import numpy
import paddle

directory = sys.argv[1]

# A static program, in protocols 4 and 2.
paddle.enable_static()
main, startup = paddle.static.Program(), paddle.static.Program()
with paddle.static.program_guard(main, startup):
    x = paddle.static.data("x", [-1, 2], "float32")
    hidden = paddle.static.nn.fc(x, 3, weight_attr=paddle.ParamAttr(name="w"),
                                 bias_attr=paddle.ParamAttr(name="b"))
    paddle.optimizer.Momentum(0.5, 0.9).minimize(paddle.mean(hidden))
paddle.static.Executor().run(startup)
scope = paddle.static.global_scope()
for name, value in (("w", numpy.arange(6, dtype="float32").reshape(2, 3)),
                    ("b", numpy.arange(3, dtype="float32"))):
    scope.find_var(name).get_tensor().set(value, paddle.CPUPlace())
paddle.static.save(main, directory + "/static")
paddle.static.save(main, directory + "/protocol2", protocol=2)

# A layer: names of its structure, with a table of those of parameters; its optimizer has a schedule.
paddle.disable_static()
layer = paddle.nn.Linear(2, 3, weight_attr=paddle.ParamAttr(name="w"),
                         bias_attr=paddle.ParamAttr(name="b"))
layer.weight.set_value(numpy.arange(6, dtype="float32").reshape(2, 3))
layer.bias.set_value(numpy.arange(3, dtype="float32"))
paddle.save(layer.state_dict(), directory + "/layer.pdparams")
schedule = paddle.optimizer.lr.NoamDecay(16, 4, 0.5)
optimizer = paddle.optimizer.Momentum(schedule, 0.9, parameters=layer.parameters())
layer(paddle.ones([1, 2])).sum().backward()
optimizer.step()
paddle.save(optimizer.state_dict(), directory + "/layer.pdopt")
paddle.save({"h": paddle.ones([2], "bfloat16")}, directory + "/bf16.pdparams")

# Another order of elements, an ordered dictionary, protocol 3.
arrays = collections.OrderedDict(
    w=numpy.asfortranarray(numpy.arange(6, dtype="float32").reshape(2, 3)),
    b=numpy.arange(3, dtype="float32"))
with open(directory + "/fortran.pdparams", "wb") as file:
    pickle.dump(arrays, file, protocol=3)
