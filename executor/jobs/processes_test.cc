// Runs over several processes, which are threads of the test; their ranks communicate in one local
// group, which is that of all of them.
#include <atomic>
#include <chrono>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/test.h"
#include "executor/communicators/communicator_decorators.h"
#include "executor/communicators/local_communicator.h"
#include "executor/communicators/world.h"
#include "executor/jobs/job_link_testing.h"
#include "executor/run/runner.h"
#include "executor/run/runner_testing.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

// A group that belongs to all processes.
class SharedGroup : public CommunicatorGroup {
 public:
  explicit SharedGroup(CommunicatorGroup* group) : group_(group) {}
  absl::StatusOr<Communicator*> Get(const RingKey& ring, int rank) override {
    return group_->Get(ring, rank);
  }
  void Abort(const absl::Status& status) override { group_->Abort(status); }

 private:
  CommunicatorGroup* const group_;
};

struct Outcome {
  absl::StatusOr<RunResult> result = absl::UnknownError("did not run");
  std::vector<std::string> results;  // received
  std::vector<std::string> warnings;
  std::vector<Checkpoint> checkpoints;
  std::vector<float> w;  // at the end
};

class ProcessesTest : public ::testing::Test {
 protected:
  ProcessesTest() {
    options_.kernels = &CpuKernels();
    options_.steps = 4;
    options_.timeout_s = 60;
  }

  // Row r of step s is 10 s + r.
  FeedSource Rows() {
    return {{"x"}, [n = options_.nranks](int64_t step) -> absl::StatusOr<std::vector<Tensor>> {
              std::vector<float> rows;
              for (int r = 0; r < n; ++r) rows.push_back(static_cast<float>(10 * step + r));
              return std::vector<Tensor>{Floats({n, 1}, rows)};
            }};
  }

  // One process of a run; may be called from several threads.
  void RunHere(const RunOptions& options, FeedSource feeds, Outcome* outcome) {
    const int process = options.link == nullptr ? 0 : options.link->process();
    const Program main = mains_.empty() ? main_.Build() : mains_[process].Build();
    const Program startup = startup_.Build();
    RunInputs inputs;
    inputs.main = &main;
    inputs.startup = &startup;
    inputs.feeds = std::move(feeds);
    inputs.on_result = [this, outcome](const StepResult& result) {
      ++num_results_;
      outcome->results.push_back(absl::StrCat("step ", result.step, " rank ", result.rank, ": ",
                                              Values<float>(result.values[0])[0]));
      return absl::OkStatus();
    };
    if (writes_checkpoints_) {
      inputs.on_checkpoint = [outcome](Checkpoint checkpoint) {
        for (auto& [name, tensor] : checkpoint.shared) tensor = tensor.Clone();
        outcome->checkpoints.push_back(std::move(checkpoint));
        return absl::OkStatus();
      };
    }
    RunOptions own = options;
    own.warn = [outcome](const std::string& message) { outcome->warnings.push_back(message); };
    outcome->result = RunProgram(inputs, own);
    if (!outcome->result.ok() || outcome->result->persistables.count("w") == 0) return;
    outcome->w = Values<float>(outcome->result->persistables.at("w"));
  }

  // `change` may change the options and feeds of a process.
  using Change = std::function<void(int process, RunOptions* options, FeedSource* feeds)>;

  std::vector<Outcome> RunProcesses(int num_processes, const Change& change = nullptr) {
    const auto links = MakeLinks(num_processes);
    const auto group = NewLocalGroup({options_.nranks, 60, options_.timeout_s, nullptr});
    std::vector<Outcome> outcomes(num_processes);
    std::vector<std::thread> threads;
    for (int p = 0; p < num_processes; ++p) {
      threads.emplace_back([&, p] {
        RunOptions options = options_;
        options.link = links[p].get();
        options.new_group = [&](const GroupOptions&) {
          return std::make_unique<SharedGroup>(group.get());
        };
        FeedSource feeds = Rows();
        if (change) change(p, &options, &feeds);
        RunHere(options, std::move(feeds), &outcomes[p]);
        if (!outcomes[p].result.ok()) return;
        EXPECT_THAT(links[p]->Finish(), IsOk());
      });
    }
    for (std::thread& thread : threads) thread.join();
    return outcomes;
  }

  Outcome RunThreads() {
    Outcome outcome;
    RunHere(options_, Rows(), &outcome);
    return outcome;
  }

  ProgramBuilder main_ = Main(), startup_ = Startup();
  std::vector<ProgramBuilder> mains_;  // of each process; empty: all run main_
  bool writes_checkpoints_ = false;
  std::atomic<int64_t> num_results_{0};  // received
  RunOptions options_;
};

TEST_F(ProcessesTest, ProcessZeroGetsWhatOneProcessGets) {
  for (const auto& [nranks, num_processes] :
       std::vector<std::pair<int, int>>{{2, 2}, {4, 2}, {3, 3}, {2, 1}}) {
    SCOPED_TRACE(absl::StrCat(nranks, " ranks in ", num_processes));
    options_.nranks = nranks;
    const Outcome expected = RunThreads();
    WEFT_ASSERT_OK(expected.result.status());
    const std::vector<Outcome> outcomes = RunProcesses(num_processes);
    EXPECT_EQ(outcomes[0].results, expected.results);
    EXPECT_THAT(outcomes[0].w, AllOf(SizeIs(1), Each(expected.w[0])));
    for (int p = 0; p < num_processes; ++p) {
      WEFT_ASSERT_OK(outcomes[p].result.status());
      EXPECT_EQ(outcomes[p].result->end_step, 4);
      if (p == 0) continue;
      EXPECT_THAT(outcomes[p].results, IsEmpty());
      EXPECT_THAT(outcomes[p].result->persistables, IsEmpty());
    }
  }
}

TEST_F(ProcessesTest, ResultsOfAllProcessesSetAVariableInAll) {
  main_.Param("rate", {1}).Var("y", {-1, 1});
  main_.Op("elementwise_mul", {{"X", {"x"}}, {"Y", {"rate"}}}, {{"Out", {"y"}}});
  options_.nranks = 4;
  options_.steps = 7;
  options_.fetch = {"y"};
  std::vector<int64_t> calls;  // of process 0, if all is well
  const std::vector<Outcome> outcomes =
      RunProcesses(2, [&](int, RunOptions* options, FeedSource* feeds) {
        feeds->variables.push_back("rate");
        feeds->read = [read = feeds->read](int64_t step) {
          absl::StatusOr<std::vector<Tensor>> batch = read(step);
          batch->push_back(Floats({1}, {0}));
          return batch;
        };
        options->feedback = Feedback{"rate", 3, [&](int64_t step) {
                                       calls.push_back(step);
                                       return static_cast<double>(1 + num_results_);
                                     }};
      });
  for (const Outcome& outcome : outcomes) WEFT_ASSERT_OK(outcome.result.status());
  EXPECT_EQ(calls, (std::vector<int64_t>{0, 3, 6}));
  ASSERT_THAT(outcomes[0].results, SizeIs(28));
  for (int i = 0; i < 28; ++i) {
    const int step = i / 4, rank = i % 4, rate = 1 + 12 * (step / 3);
    EXPECT_EQ(outcomes[0].results[i],
              absl::StrCat("step ", step, " rank ", rank, ": ", (10 * step + rank) * rate));
  }
}

TEST_F(ProcessesTest, CheckpointsAreThoseOfOneProcess) {
  writes_checkpoints_ = true;
  options_.nranks = 4;
  options_.checkpoint_every = 3;
  const Outcome expected = RunThreads();
  const std::vector<Outcome> outcomes = RunProcesses(2);
  WEFT_ASSERT_OK(outcomes[0].result.status());
  WEFT_ASSERT_OK(outcomes[1].result.status());
  EXPECT_THAT(outcomes[1].checkpoints, IsEmpty());
  ASSERT_THAT(outcomes[0].checkpoints, SizeIs(2));
  ASSERT_THAT(expected.checkpoints, SizeIs(2));
  for (int i = 0; i < 2; ++i) {
    const Checkpoint& checkpoint = outcomes[0].checkpoints[i];
    EXPECT_EQ(checkpoint.step, expected.checkpoints[i].step);
    EXPECT_EQ(checkpoint.nranks, 4);
    EXPECT_EQ(checkpoint.random, expected.checkpoints[i].random);
    EXPECT_EQ(Values<float>(checkpoint.shared.at("w")),
              Values<float>(expected.checkpoints[i].shared.at("w")));
  }
}

TEST_F(ProcessesTest, AllStopBeforeTheSameStepWhenOneShall) {
  writes_checkpoints_ = true;
  options_.nranks = 4;
  options_.steps = 1'000'000;
  std::atomic<int> begun{0};
  const std::vector<Outcome> outcomes = RunProcesses(2, [&](int p, RunOptions* options, auto*) {
    if (p == 1) options->stop_requested = [&] { return ++begun > 100; };
  });
  for (const Outcome& outcome : outcomes) WEFT_ASSERT_OK(outcome.result.status());
  const int64_t end = outcomes[0].result->end_step;
  EXPECT_LT(end, 1'000'000);
  EXPECT_EQ(outcomes[1].result->end_step, end);
  EXPECT_THAT(outcomes[0].results, SizeIs(4 * end));
  ASSERT_THAT(outcomes[0].checkpoints, SizeIs(1));
  EXPECT_EQ(outcomes[0].checkpoints[0].step, end);
}

TEST_F(ProcessesTest, FailureEndsAllAndIsNamed) {
  options_.nranks = 2;
  options_.steps = 1'000'000;
  const std::vector<Outcome> outcomes = RunProcesses(2, [&](int p, auto*, FeedSource* feeds) {
    if (p == 0) return;
    feeds->read = [read = feeds->read](int64_t step) -> absl::StatusOr<std::vector<Tensor>> {
      if (step == 7) return absl::DataLossError("step 7: disk is broken");
      return read(step);
    };
  });
  EXPECT_THAT(outcomes[1].result.status(),
              StatusIs(absl::StatusCode::kDataLoss, "step 7: disk is broken"));
  EXPECT_THAT(outcomes[0].result.status(),
              StatusIs(absl::StatusCode::kAborted, "rank 1 failed: step 7: disk is broken"));
}

// One of the four ranks is late, fails or diverges, in a random call.
TEST_F(ProcessesTest, FaultOfARankEndsAllAndIsNamed) {
  options_.nranks = 4;
  options_.steps = 1'000'000;
  options_.timeout_s = 1;
  std::mt19937 random(3);
  for (const std::string kind : {"fails", "is late", "diverges"}) {
    const int faulty = static_cast<int>(random() % 4);
    const auto call = static_cast<int64_t>(random() % 50);
    SCOPED_TRACE(absl::StrCat("rank ", faulty, " ", kind, " in call ", call));
    const Fault fault = [&](const RingKey&, int rank, int64_t number, CollectiveCall* changed) {
      if (rank != faulty || number != call) return absl::OkStatus();
      if (kind == "fails") return absl::DataLossError("its memory is broken");
      if (kind == "is late") std::this_thread::sleep_for(std::chrono::seconds(2));
      if (kind == "diverges") ++changed->desc.root;
      return absl::OkStatus();
    };
    const auto begin = std::chrono::steady_clock::now();
    const std::vector<Outcome> outcomes = RunProcesses(2, [&](int, RunOptions* options, auto*) {
      options->new_group = [make = options->new_group, &fault](const GroupOptions& group_options) {
        return NewFaultyGroup(*make(group_options), fault);
      };
    });
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
    const std::string expected = kind == "fails" ? "its memory is broken"
                                 : kind == "is late"
                                     ? absl::StrCat("rank ", faulty, " has not arrived")
                                     : "ranks call different collectives";
    for (const Outcome& outcome : outcomes) {
      EXPECT_THAT(outcome.result.status().message(), HasSubstr(expected));
    }
  }
}

TEST_F(ProcessesTest, LossOfAnotherProcessThatIsNaNIsDeliveredAndEndsAll) {
  options_.nranks = 2;
  const std::vector<Outcome> outcomes = RunProcesses(2, [&](int, auto*, FeedSource* feeds) {
    feeds->read = [](int64_t) -> absl::StatusOr<std::vector<Tensor>> {
      return std::vector<Tensor>{Floats({2, 1}, {1, std::numeric_limits<float>::quiet_NaN()})};
    };
  });
  const std::string expected = "step 0, rank 1: loss loss is nan";
  EXPECT_THAT(outcomes[1].result.status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, expected));
  EXPECT_THAT(outcomes[0].result.status().message(), HasSubstr(expected));
}

TEST_F(ProcessesTest, ProcessThatCannotBeginEndsTheOthers) {
  options_.nranks = 2;
  const std::vector<Outcome> outcomes = RunProcesses(2, [&](int p, RunOptions* options, auto*) {
    if (p == 1) options->fetch = {"nothing"};
  });
  EXPECT_THAT(outcomes[0].result.status(),
              IsAborted(AllOf(HasSubstr("rank 1 failed: "), HasSubstr("nothing"))));
}

TEST_F(ProcessesTest, DifferentSettingsAreAnError) {
  options_.nranks = 2;
  const std::vector<Outcome> outcomes =
      RunProcesses(2, [&](int p, RunOptions* options, auto*) { options->seed = p; });
  for (const Outcome& outcome : outcomes) {
    EXPECT_THAT(outcome.result.status(),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         "processes differ in seed: process 0 has 0, process 1 has 1"));
  }
}

TEST_F(ProcessesTest, RanksMustDivideIntoTheProcesses) {
  options_.nranks = 3;
  for (const Outcome& outcome : RunProcesses(2)) {
    EXPECT_THAT(outcome.result.status().message(),
                HasSubstr("expected a multiple of the 2 processes, found 3"));
  }
}

// Programs that pass x on to the next rank, and keep what they get in a variable of their own.
std::vector<ProgramBuilder> PassOn(int nranks, bool on_compute_stream) {
  std::vector<ProgramBuilder> programs(nranks);
  for (int rank = 0; rank < nranks; ++rank) {
    ProgramBuilder& p = programs[rank];
    const std::string kept = absl::StrCat("kept_", rank);
    p.Var("x", {-1, 1});
    p.last_var().set_need_check_feed(true);
    p.Var("got", {1, 1}).Param(kept, {1, 1});
    const auto send = [&] {
      p.Op("send_v2", {{"X", {"x"}}}, {}).IntAttr("peer", (rank + 1) % nranks);
      p.BoolAttr("use_calc_stream", on_compute_stream);
    };
    if (!on_compute_stream) p.Op("c_wait_compute", {{"X", {"x"}}}, {{"Out", {"x"}}});
    if (rank == 0) send();
    p.Op("recv_v2", {}, {{"Out", {"got"}}}).IntAttr("peer", (rank + nranks - 1) % nranks);
    p.BoolAttr("use_calc_stream", on_compute_stream);
    *p.last_op().add_attrs() = MakeAttr("out_shape", std::vector<int64_t>{1, 1});
    if (rank > 0) send();
    if (!on_compute_stream) p.Op("c_wait_comm", {{"X", {"got"}}}, {{"Out", {"got"}}});
    p.Op("scale", {{"X", {"got"}}}, {{"Out", {kept}}}).FloatAttr("scale", 2);
  }
  return programs;
}

TEST_F(ProcessesTest, RanksWithProgramsOfTheirOwnSendAndReceive) {
  options_.nranks = 3;
  options_.steps = 2;
  options_.fetch = {"got"};
  for (const bool on_compute_stream : {true, false}) {
    mains_ = PassOn(3, on_compute_stream);
    const std::vector<Outcome> outcomes = RunProcesses(3);
    for (const Outcome& outcome : outcomes) {
      WEFT_EXPECT_OK(outcome.result.status());
      EXPECT_THAT(outcome.warnings, IsEmpty());
    }
    EXPECT_THAT(outcomes[0].results,
                ElementsAre("step 0 rank 0: 2", "step 0 rank 1: 0", "step 0 rank 2: 1",
                            "step 1 rank 0: 12", "step 1 rank 1: 10", "step 1 rank 2: 11"));
    // Each variable from the rank that has it.
    ASSERT_TRUE(outcomes[0].result.ok());
    std::map<std::string, float> kept;
    for (const auto& [name, tensor] : outcomes[0].result->persistables) {
      kept[name] = Values<float>(tensor)[0];
    }
    EXPECT_THAT(kept, ElementsAre(Pair("kept_0", 24), Pair("kept_1", 20), Pair("kept_2", 22)));
  }
}

TEST_F(ProcessesTest, MessageWithoutItsPartnerIsAnErrorBeforeTheFirstStep) {
  options_.nranks = 2;
  options_.fetch = {"got"};
  mains_ = PassOn(2, /*on_compute_stream=*/true);
  mains_[1].Op("send_v2", {{"X", {"x"}}}, {}).IntAttr("peer", 0);
  mains_[1].BoolAttr("use_calc_stream", true);
  for (const Outcome& outcome : RunProcesses(2)) {
    EXPECT_THAT(outcome.result.status(),
                IsFailedPrecondition(
                    AllOf(HasSubstr("ring 0 of ranks 0, 1 (compute stream), call #2"),
                          HasSubstr("process 0 has 2 calls, process 1 has send, root 1, peer "
                                    "0 of fp32 in op 3 (send_v2) of x"))));
  }
}

TEST_F(ProcessesTest, RanksOfOneProcessCannotHaveMessages) {
  options_.nranks = 4;
  options_.fetch = {"got"};
  mains_ = PassOn(2, /*on_compute_stream=*/true);
  for (const Outcome& outcome : RunProcesses(2)) {
    EXPECT_THAT(outcome.result.status(),
                IsFailedPrecondition("start a process for each rank, with a program of its own"));
  }
}

TEST_F(ProcessesTest, RanksThatBeginWithDifferentValuesAreReportedByProcessZero) {
  options_.nranks = 4;
  startup_ = ProgramBuilder();
  startup_.Param("w", {1});
  testing::FillConstant(&startup_, "w", 0.5F);
  startup_.Op("bernoulli", {{"X", {"w"}}}, {{"Out", {"w"}}});
  bool has_warned = false;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    options_.seed = seed;
    const Outcome expected = RunThreads();
    const std::vector<Outcome> outcomes = RunProcesses(2);
    EXPECT_EQ(outcomes[0].warnings, expected.warnings);
    EXPECT_THAT(outcomes[1].warnings, IsEmpty());
    has_warned |= !expected.warnings.empty();
  }
  EXPECT_TRUE(has_warned);
}

}  // namespace
}  // namespace weft::testing
