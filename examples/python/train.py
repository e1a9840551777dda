"""Paddle trains a linear regression."""
import numpy as np
import paddle

paddle.enable_static()
x, y = paddle.static.data("x", [-1, 13]), paddle.static.data("y", [-1, 1])
loss = paddle.mean(paddle.square(paddle.static.nn.fc(x, 1) - y))
paddle.optimizer.Adam(0.05).minimize(loss)
executor = paddle.static.Executor(paddle.CPUPlace())
executor.run(paddle.static.default_startup_program())
feeds = np.load("feeds.npz")
for step in range(5):
    batch = {name: feeds["%d/%s" % (step, name)] for name in ("x", "y")}
    value, = executor.run(feed=batch, fetch_list=[loss])
    print("step %d: %.4f" % (step, float(value)))
