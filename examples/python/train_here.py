"""The same on two ranks of Weft, which leaves the result in Paddle's scope."""
import paddle
import weft.paddle

paddle.enable_static()
x, y = paddle.static.data("x", [-1, 13]), paddle.static.data("y", [-1, 1])
loss = paddle.mean(paddle.square(paddle.static.nn.fc(x, 1) - y))
paddle.optimizer.Adam(0.05).minimize(loss)
executor = paddle.static.Executor(paddle.CPUPlace())
executor.run(paddle.static.default_startup_program())
with weft.paddle.Trainer(paddle.static.default_main_program(),
                         paddle.static.default_startup_program(), ranks=2) as trainer:
    trainer.fit(weft.batches("feeds.npz"), steps=5,
                log=lambda step, losses: print("step %d: %.4f" % (step, *losses.values())))
paddle.static.save(paddle.static.default_main_program(), "model")
