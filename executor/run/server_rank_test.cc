// A parameter server, and what it answers to the messages of workers, in the order that a test
// wants.
#include "executor/run/server_rank.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/testing/test.h"
#include "executor/communicators/local_communicator.h"
#include "ops/cpu/testing.h"
#include "ops/kernel.h"
#include "proto/text/program_text.h"

namespace weft::testing {
namespace {

constexpr char kVars[] = R"(program {
  block 0 parent=-1 {
    var a : fp32[1] parameter persistable
    var b : fp32[1] parameter persistable
    var a@GRAD : fp32[1]
    var b@GRAD : fp32[1]
    var lr : fp32[1]
)";
constexpr char kReceiveA[] =
    "Grad=[a@GRAD], LearningRate=[lr] = ps_receive() {server_key=0, shape=longs[1], "
    "averages=false, is_async=ASYNC}\n";
constexpr char kReceiveB[] =
    "Grad=[b@GRAD], LearningRate=[lr] = ps_receive() {server_key=1, shape=longs[1], "
    "averages=false, is_async=ASYNC}\n";
constexpr char kUpdateA[] =
    "ParamOut=[a] = sgd(Param=[a], Grad=[a@GRAD], LearningRate=[lr]) {server_key=0}\n"
    "ps_serve(X=[a]) {server_key=0, is_async=ASYNC}\n";
constexpr char kUpdateB[] =
    "ParamOut=[b] = sgd(Param=[b], Grad=[b@GRAD], LearningRate=[lr]) {server_key=1}\n"
    "ps_serve(X=[b]) {server_key=1, is_async=ASYNC}\n";

// Updates per key, or after all keys have come.
std::string PerKey() {
  return absl::StrCat(kVars, kReceiveA, kUpdateA, kReceiveB, kUpdateB, "  }\n}\n");
}
std::string AllKeys() {
  return absl::StrCat(kVars, kReceiveA, kReceiveB, kUpdateA, kUpdateB, "  }\n}\n");
}

constexpr int64_t kA = 0, kB = 1;  // keys

// One server, and workers that the test plays. Parameters begin at 0; an update adds the sum of the
// gradients.
class ServerTest : public ::testing::Test {
 protected:
  void Start(const std::string& text, int workers, bool is_async = false) {
    auto program =
        ParseProgramText(absl::StrReplaceAll(text, {{"ASYNC", is_async ? "true" : "false"}}));
    WEFT_ASSERT_OK(program.status());
    program_ = std::make_unique<Program>(*std::move(program));
    params_ = {{"a", Floats({1}, {0})}, {"b", Floats({1}, {0})}};
    inputs_.server = program_.get();
    inputs_.params = &params_;
    options_.kernels = &CpuKernels();
    options_.nranks = workers;
    options_.num_servers = 1;
    job_ = std::make_unique<RunJob>(inputs_, options_);
    job_->post = std::make_unique<ServerPost>(job_->world, nullptr);
    job_->servers = {workers, 1, {}, job_->post.get(), 60, /*timeout_s=*/20, nullptr};
    WEFT_ASSERT_OK_AND_ASSIGN(job_->servers.keys, FindServedKeys(*program_));
    job_->group = NewLocalGroup({});
    job_->steps = std::make_unique<StepGate>(0, 100, nullptr);
    job_->failures = std::make_unique<RunFailures>(job_->group.get(), nullptr, [this] {
      job_->post->Abort(absl::AbortedError("the run was aborted"));
    });
    server_ = std::make_unique<ServerRank>(job_.get(), 0);
    thread_ = std::thread([this] { server_->RunAll(); });
  }

  // The workers have done `steps` steps.
  absl::Status End(int64_t steps) {
    for (int worker = 0; worker < options_.nranks; ++worker) {
      ServerMessage end = Message(ServerMessage::Kind::kEnd, worker, 0, steps);
      WEFT_EXPECT_OK(job_->post->Send(options_.nranks, std::move(end)));
    }
    thread_.join();
    return job_->failures->Cause();
  }

  void TearDown() override {
    if (!thread_.joinable()) return;
    job_->post->Abort(absl::AbortedError("the test has failed"));
    thread_.join();
  }

  static ServerMessage Message(ServerMessage::Kind kind, int worker, int64_t key, int64_t step) {
    ServerMessage message;
    message.kind = kind;
    message.from = worker;
    message.key = key;
    message.step = step;
    return message;
  }
  void Push(int worker, int64_t key, int64_t step, float grad) {
    ServerMessage push = Message(ServerMessage::Kind::kPush, worker, key, step);
    push.tensors.push_back(Floats({1}, {grad}));
    push.tensors.push_back(Floats({1}, {-1}));
    WEFT_EXPECT_OK(job_->post->Send(options_.nranks, std::move(push)));
  }
  // The answer is `Next` once the parameter is that before `step`.
  void Pull(int worker, int64_t key, int64_t step) {
    WEFT_EXPECT_OK(
        job_->post->Send(options_.nranks, Message(ServerMessage::Kind::kPull, worker, key, step)));
  }
  // Key and value of the next answer to a worker. If there is none for long, the server waits for
  // something else.
  std::pair<int64_t, float> Next(int worker) {
    const auto message = job_->post->mailbox(worker)->Take(10);
    if (!message.ok() || !message->has_value()) {
      ADD_FAILURE() << "worker " << worker << " got no answer";
      return {-1, 0};
    }
    return {(*message)->key, *(*message)->tensors[0].data<float>()};
  }

  std::unique_ptr<Program> program_;
  std::map<std::string, Tensor> params_;
  RunInputs inputs_;
  RunOptions options_;
  std::unique_ptr<RunJob> job_;
  std::unique_ptr<ServerRank> server_;
  std::thread thread_;
};

TEST_F(ServerTest, LateKeyHoldsUpNoOther) {
  Start(PerKey(), 2);
  Push(0, kA, 0, 1);
  Push(0, kB, 0, 2);
  Push(1, kB, 0, 20);
  Pull(1, kA, 1);
  Pull(1, kB, 1);
  EXPECT_THAT(Next(1), Pair(kB, 22)) << "worker 1 has not sent key A";
  Push(1, kA, 0, 10);
  EXPECT_THAT(Next(1), Pair(kA, 11));
  WEFT_EXPECT_OK(End(1));
}

TEST_F(ServerTest, KeysAreUpdatedInTheOrderInWhichTheyAreComplete) {
  Start(PerKey(), 2);
  for (int64_t step = 0; step < 3; ++step) {
    const bool is_reversed = step == 1;
    const int64_t first = is_reversed ? kB : kA, second = is_reversed ? kA : kB;
    Pull(0, kA, step + 1);
    Pull(0, kB, step + 1);
    for (int64_t key : {first, second}) {
      for (int worker : {1, 0}) Push(worker, key, step, 1);
    }
    EXPECT_THAT(Next(0), Pair(first, 2 * (step + 1)));
    EXPECT_THAT(Next(0), Pair(second, 2 * (step + 1)));
  }
  WEFT_EXPECT_OK(End(3));
}

// The answer to the pull of step 0 shows that the server has taken the pushes before it.
TEST_F(ServerTest, ProgramThatReceivesAllKeysFirstWaitsForAll) {
  Start(AllKeys(), 2);
  Push(0, kA, 0, 1);
  Push(0, kB, 0, 2);
  Push(1, kB, 0, 20);
  Pull(1, kB, 1);
  Pull(1, kB, 0);
  EXPECT_THAT(Next(1), Pair(kB, 0)) << "not updated yet";
  Push(1, kA, 0, 10);
  EXPECT_THAT(Next(1), Pair(kB, 22));
  WEFT_EXPECT_OK(End(1));
}

// Sums that depend on their order.
TEST_F(ServerTest, GradientsAreAddedInTheOrderOfTheWorkers) {
  const std::vector<float> grads = {1e8F, -1e8F, 1};
  for (const std::vector<int>& order : {std::vector<int>{0, 1, 2}, {2, 1, 0}, {1, 2, 0}}) {
    Start(PerKey(), 3);
    for (int64_t key : {kB, kA}) {
      for (int worker : order) Push(worker, key, 0, grads[worker]);
      Pull(0, key, 1);
    }
    EXPECT_THAT(Next(0), Pair(kB, 1));
    EXPECT_THAT(Next(0), Pair(kA, 1));
    WEFT_EXPECT_OK(End(1));
  }
}

TEST_F(ServerTest, AsynchronousUpdatesOfAKeyWaitForNoOther) {
  Start(PerKey(), 2, /*is_async=*/true);
  Push(0, kB, 0, 1);
  Push(1, kB, 0, 10);
  Pull(0, kB, 1);
  EXPECT_THAT(Next(0), Pair(kB, 11)) << "key A has not come";
  Push(0, kA, 0, 2);
  Push(1, kA, 0, 20);
  Pull(0, kA, 1);
  EXPECT_THAT(Next(0), Pair(kA, 22));
  WEFT_EXPECT_OK(End(1));
}

TEST_F(ServerTest, KeyThatIsReceivedTwiceIsAnError) {
  Start(absl::StrCat(kVars, kReceiveA, kReceiveA, kUpdateA, kReceiveB, kUpdateB, "  }\n}\n"), 1);
  Push(0, kA, 0, 1);
  thread_.join();
  EXPECT_THAT(job_->failures->Cause(),
              IsInvalidArgument("step 0, rank 1 (server 0): op 1 (ps_receive): expected one op "
                                "that receives key 0, found another"));
}

}  // namespace
}  // namespace weft::testing
