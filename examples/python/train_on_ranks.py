"""The same on the ranks of a launcher: python -m paddle.distributed.launch --nproc_per_node 2."""
import numpy as np
import paddle
import weft.paddle

paddle.enable_static()
x, y = paddle.static.data("x", [-1, 13]), paddle.static.data("y", [-1, 1])
loss = paddle.mean(paddle.square(paddle.static.nn.fc(x, 1) - y))
paddle.optimizer.Adam(0.05).minimize(loss)
executor = paddle.static.Executor(paddle.CPUPlace())
job = weft.paddle.distribute(paddle.static.default_main_program(),
                             paddle.static.default_startup_program(), mode="grad_allreduce")
job.start(executor)
feeds = np.load("feeds.npz")
for step in range(5):
    batch = {name: feeds["%d/%s" % (step, name)] for name in ("x", "y")}
    value, = executor.run(job.main, feed=job.part(batch), fetch_list=job.fetch(loss))
    print("step %d: %.4f" % (step, float(value)))
