// A buffer that a startup program makes of weights, as recurrent layers do, has their values
// wherever it is read: after the last step, in results, in checkpoints and by the main program.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "base/testing/test.h"
#include "executor/files/checkpoint.h"
#include "executor/run/feed_sources.h"
#include "executor/run/runner.h"
#include "ops/analysis/values/layout_guess.h"
#include "ops/kernel.h"
#include "proto/formats/program_file.h"
#include "proto/text/program_text.h"
#include "transpiler/transpile.h"

namespace weft::testing {
namespace {

using Tensors = std::map<std::string, Tensor>;

// A SimpleRNN, whose startup program makes one buffer of its weights.
constexpr char kBuffer[] = "simple_rnn_0.w_0";
const std::vector<std::string>& Parts() {
  static const auto* const parts =
      new std::vector<std::string>{"simple_rnn_cell_0.w_0", "simple_rnn_cell_0.w_1",
                                   "simple_rnn_cell_0.b_0", "simple_rnn_cell_0.b_1"};
  return *parts;
}
constexpr int64_t kSteps = 4;

struct Programs {
  Program main, startup;
  absl::optional<Program> server;
};

std::string Path(const char* file) { return absl::StrCat("tests/data/survey/time_major/", file); }

Programs Read() {
  absl::StatusOr<Program> main = ReadProgram(Path("main.pb"));
  absl::StatusOr<Program> startup = ReadProgram(Path("startup.pb"));
  WEFT_EXPECT_OK(main.status());
  WEFT_EXPECT_OK(startup.status());
  return {*std::move(main), *std::move(startup), absl::nullopt};
}

// With ops before and after those of the main program, and a variable `copy` of the buffer's type.
Programs With(const std::string& before, const std::string& after) {
  Programs programs = Read();
  std::string text = ProgramText(programs.main);
  const size_t first = text.find("    Out=[shape_0.tmp_0 ");
  EXPECT_NE(first, std::string::npos) << text;
  text.insert(first, before);
  text.insert(text.find("\n  }\n") + 1, after);
  const size_t vars = text.find("    var ");
  text.insert(vars, "    var copy : fp32[128]\n");
  absl::StatusOr<Program> main = ParseProgramText(text);
  WEFT_EXPECT_OK(main.status()) << text;
  if (main.ok()) programs.main = *std::move(main);
  return programs;
}

constexpr char kRead[] = "    Out=[copy] = relu(X=[simple_rnn_0.w_0]) role=forward\n";

absl::Status Rewrite(TranspileOptions options, Programs* programs) {
  ProgramPair pair{&programs->main, &programs->startup};
  WEFT_ASSIGN_OR_RETURN(TranspileResult result, Transpile(options, pair));
  programs->server = std::move(result.server);
  return absl::OkStatus();
}

TranspileOptions Mode(const char* mode, int ranks, const char* place = "") {
  TranspileOptions options;
  options.mode = mode;
  if (ranks > 1) options.cluster.nranks = ranks;
  options.placement.place = place;
  return options;
}

struct TrainOptions {
  int ranks = 1, servers = 0;
  std::vector<std::string> fetch;
  std::function<void(RunInputs*, RunOptions*)> change = [](RunInputs*, RunOptions*) {};
};

struct Trained {
  Tensors persistables;
  std::vector<Tensors> fetched;  // by step, of rank 0
};

absl::StatusOr<Trained> Train(const Programs& programs, const TrainOptions& run) {
  WEFT_ASSIGN_OR_RETURN(FeedSource feeds, FeedsFromFile(Path("feeds.npz")));
  WEFT_ASSIGN_OR_RETURN(feeds.layouts, FeedLayoutsOf(programs.main));
  Trained trained;
  RunOptions options;
  options.kernels = &CpuKernels();
  options.nranks = run.ranks;
  options.num_servers = run.servers;
  options.steps = kSteps;
  options.timeout_s = 60;
  options.fetch = run.fetch;
  RunInputs inputs;
  inputs.main = &programs.main;
  inputs.startup = &programs.startup;
  inputs.server = programs.server.has_value() ? &*programs.server : nullptr;
  inputs.feeds = feeds;
  inputs.on_result = [&](const StepResult& result) {
    if (result.rank != 0) return absl::OkStatus();
    Tensors& values = trained.fetched.emplace_back();
    for (size_t i = 0; i < run.fetch.size(); ++i) {
      values[run.fetch[i]] = result.values[i].Clone();
    }
    return absl::OkStatus();
  };
  run.change(&inputs, &options);
  WEFT_ASSIGN_OR_RETURN(RunResult result, RunProgram(inputs, options));
  trained.persistables = std::move(result.persistables);
  return trained;
}

std::string BitsOf(const Tensor& tensor) {
  return std::string(static_cast<const char*>(tensor.raw()), tensor.bytes());
}

std::string BitsOfParts(const Tensors& tensors) {
  std::string bits;
  for (const std::string& part : Parts()) bits += BitsOf(tensors.at(part));
  return bits;
}

void ExpectEqualParts(const Tensors& tensors) {
  EXPECT_EQ(BitsOf(tensors.at(kBuffer)), BitsOfParts(tensors));
}

struct Case {
  const char* name;
  const char* mode;
  int ranks;
  const char* place;
};

class StartupBuffers : public ::testing::TestWithParam<Case> {
 protected:
  static Programs Rewritten(Programs programs = Read()) {
    const Case& of = GetParam();
    WEFT_EXPECT_OK(Rewrite(Mode(of.mode, of.ranks, of.place), &programs));
    return programs;
  }
  static TrainOptions Here() {
    TrainOptions run;
    run.ranks = GetParam().ranks;
    return run;
  }
};

TEST_P(StartupBuffers, AreSavedWithTheirParts) {
  Programs programs = Rewritten();
  TrainOptions run = Here();
  run.fetch = Parts();
  run.fetch.push_back(kBuffer);
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained trained, Train(programs, run));
  ExpectEqualParts(trained.persistables);
  ASSERT_EQ(trained.fetched.size(), kSteps);
  for (const Tensors& fetched : trained.fetched) ExpectEqualParts(fetched);
  EXPECT_NE(BitsOf(trained.fetched[0].at(kBuffer)), BitsOf(trained.fetched[1].at(kBuffer)));
}

TEST_P(StartupBuffers, AreReadBeforeTheirPartsAreWritten) {
  Programs original = With(kRead, "");
  TrainOptions run;
  run.fetch = {"copy"};
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained expected, Train(original, run));
  run.ranks = GetParam().ranks;
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained trained, Train(Rewritten(original), run));
  ASSERT_EQ(trained.fetched.size(), kSteps);
  for (int64_t step = 0; step < kSteps; ++step) {
    const Tensor &a = expected.fetched[step].at("copy"), &b = trained.fetched[step].at("copy");
    for (int64_t i = 0; i < a.size(); ++i) {
      ASSERT_NEAR(a.data<float>()[i], b.data<float>()[i], 2e-3) << "step " << step;
    }
  }
  EXPECT_NE(BitsOf(trained.fetched[0].at("copy")), BitsOf(trained.fetched[1].at("copy")));
}

TEST_P(StartupBuffers, AreSavedAfterTheParametersOfAFile) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained before, Train(Rewritten(), Here()));
  Tensors stale = before.persistables;
  stale.at(kBuffer) = stale.at(kBuffer).Clone();
  std::memset(stale.at(kBuffer).raw(), 0, stale.at(kBuffer).bytes());
  TrainOptions run = Here();
  run.change = [&](RunInputs* inputs, RunOptions*) { inputs->params = &stale; };
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained trained, Train(Rewritten(), run));
  ExpectEqualParts(trained.persistables);
  EXPECT_NE(BitsOfParts(trained.persistables), BitsOfParts(before.persistables));
}

TEST_P(StartupBuffers, GoOnFromACheckpoint) {
  const Programs programs = Rewritten(With(kRead, ""));
  TrainOptions whole = Here();
  whole.fetch = {"copy"};
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained expected, Train(programs, whole));
  const std::string file = absl::StrCat(::testing::TempDir(), "/buffers_", GetParam().name);
  TrainOptions first = whole;
  first.change = [&](RunInputs* inputs, RunOptions* options) {
    options->steps = kSteps / 2;
    inputs->on_checkpoint = [&](const Checkpoint& checkpoint) {
      ExpectEqualParts(checkpoint.shared);
      return WriteCheckpoint(file, checkpoint);
    };
  };
  WEFT_ASSERT_OK(Train(programs, first).status());
  WEFT_ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, ReadCheckpoint(file));
  TrainOptions second = whole;
  second.change = [&](RunInputs* inputs, RunOptions* options) {
    inputs->startup = nullptr;
    inputs->resume = &checkpoint;
    options->begin_step = options->steps = kSteps / 2;
  };
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained resumed, Train(programs, second));
  ExpectEqualParts(resumed.persistables);
  EXPECT_EQ(BitsOfParts(resumed.persistables), BitsOfParts(expected.persistables));
  EXPECT_EQ(BitsOf(resumed.fetched.back().at("copy")), BitsOf(expected.fetched.back().at("copy")));
}

INSTANTIATE_TEST_SUITE_P(Modes, StartupBuffers,
                         ::testing::Values(Case{"OneDevice", "none", 1, ""},
                                           Case{"UpdatesOnTheHost", "none", 1, "type:sgd=cpu"},
                                           Case{"GradientsOnTheHost", "none", 1,
                                                "type:rnn_grad=cpu"},
                                           Case{"OptimizerOffload", "optimizer_offload", 2, ""},
                                           Case{"GradAllReduce", "grad_allreduce", 2, ""},
                                           Case{"LocalSgd", "local_sgd", 2, ""}),
                         [](const auto& info) { return info.param.name; });

TEST(StartupBuffersMemory, OfAGivenSize) {
  TrainOptions run;
  run.change = [](RunInputs*, RunOptions* options) { options->sim.memory_bytes = 1 << 20; };
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained trained, Train(Read(), run));
  ExpectEqualParts(trained.persistables);
}

// On one device, the two share memory: an op may read the buffer after an update.
TEST(StartupBuffersConflict, IsRefusedWhereTheyShareNoMemory) {
  const Programs programs = With("", kRead);
  TrainOptions run;
  run.fetch = {"copy"};
  for (const std::string& part : Parts()) run.fetch.push_back(part);
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained trained, Train(programs, run));
  const Tensor& copy = trained.fetched.back().at("copy");
  const Tensor& part = trained.fetched.back().at(Parts()[0]);
  EXPECT_EQ(copy.data<float>()[0], std::max(0.0F, part.data<float>()[0]));
  EXPECT_EQ(copy.data<float>()[2], std::max(0.0F, part.data<float>()[2]));

  run.change = [](RunInputs*, RunOptions* options) { options->sim.memory_bytes = 1 << 20; };
  EXPECT_THAT(
      Train(programs, run).status(),
      IsFailedPrecondition(
          "(relu) reads simple_rnn_0.w_0 after op 23 (sgd) has written simple_rnn_cell_0.b_0: the "
          "startup program makes simple_rnn_cell_0.b_0 a part of simple_rnn_0.w_0"));
  Programs placed = programs;
  EXPECT_THAT(Rewrite(Mode("none", 1, "type:sgd=cpu"), &placed),
              IsUnimplemented("reads simple_rnn_0.w_0 after"));
}

TEST(StartupBuffersConflict, GoesOnFromACheckpointOnOneDevice) {
  const Programs programs = With("", kRead);
  TrainOptions whole;
  whole.fetch = {"copy"};
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained expected, Train(programs, whole));
  const std::string file = absl::StrCat(::testing::TempDir(), "/buffers_conflict");
  TrainOptions first = whole;
  first.change = [&](RunInputs* inputs, RunOptions* options) {
    options->steps = kSteps / 2;
    inputs->on_checkpoint = [&](const Checkpoint& checkpoint) {
      return WriteCheckpoint(file, checkpoint);
    };
  };
  WEFT_ASSERT_OK(Train(programs, first).status());
  WEFT_ASSERT_OK_AND_ASSIGN(Checkpoint checkpoint, ReadCheckpoint(file));
  ASSERT_FALSE(checkpoint.buffers.empty());
  // Earlier versions did not write them. Then the startup program says them.
  for (const bool has_buffers : {true, false}) {
    if (!has_buffers) checkpoint.buffers.clear();
    TrainOptions second = whole;
    second.change = [&](RunInputs* inputs, RunOptions* options) {
      if (has_buffers) inputs->startup = nullptr;
      inputs->resume = &checkpoint;
      options->begin_step = options->steps = kSteps / 2;
    };
    WEFT_ASSERT_OK_AND_ASSIGN(const Trained resumed, Train(programs, second));
    EXPECT_EQ(BitsOf(resumed.fetched.back().at("copy")),
              BitsOf(expected.fetched.back().at("copy")));
  }
}

TranspileOptions OnServers() {
  TranspileOptions options = Mode("parameter_server", 2);
  options.param_attrs[Parts()[0]].parameter_server = true;
  options.param_attrs[Parts()[2]].parameter_server = true;
  return options;
}

TEST(StartupBuffersOnServers, AreSavedWithTheirParts) {
  for (const int servers : {1, 2}) {
    Programs programs = Read();
    WEFT_ASSERT_OK(Rewrite(OnServers(), &programs));
    TrainOptions run;
    run.ranks = 2;
    run.servers = servers;
    WEFT_ASSERT_OK_AND_ASSIGN(const Trained trained, Train(programs, run));
    ExpectEqualParts(trained.persistables);
  }
}

TEST(StartupBuffersOnServers, GiveTheirPartsTheValuesOfAFile) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained before, Train(Read(), {}));
  Programs programs = Read();
  WEFT_ASSERT_OK(Rewrite(OnServers(), &programs));
  std::vector<std::string> found;
  for (const bool names_parts : {true, false}) {
    Tensors params = {{kBuffer, before.persistables.at(kBuffer)}};
    for (const std::string& part : Parts()) {
      if (names_parts) params[part] = before.persistables.at(part);
    }
    TrainOptions run;
    run.ranks = 2;
    run.servers = 1;
    run.change = [&](RunInputs* inputs, RunOptions*) { inputs->params = &params; };
    WEFT_ASSERT_OK_AND_ASSIGN(const Trained trained, Train(programs, run));
    ExpectEqualParts(trained.persistables);
    found.push_back(BitsOfParts(trained.persistables));
  }
  EXPECT_EQ(found[1], found[0]);
}

TEST(StartupBuffersOnServers, AreNotReadByWorkers) {
  Programs programs = With(kRead, "");
  WEFT_ASSERT_OK(Rewrite(OnServers(), &programs));
  TrainOptions run;
  run.ranks = 2;
  run.servers = 1;
  EXPECT_THAT(Train(programs, run).status(),
              IsFailedPrecondition("the main program uses simple_rnn_0.w_0, of which the startup "
                                   "program makes simple_rnn_cell_0.w_0 a part; expected them in "
                                   "one memory, on one device without parameter servers"));
}

}  // namespace
}  // namespace weft::testing
