// Programs that Paddle 1.8.5 and 2.6.2 wrote, and the states to which their own executors trained
// them on one CPU: whole models, and small ones that tools/paddle/paddle1_programs.py and
// paddle2_programs.py write. For each program:
// - grad_allreduce and local_sgd accept it with its startup program, and verify what they make;
// - one rank trains it to Paddle's states;
// - two ranks train it to those of one.
#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/testing/archive.h"
#include "base/testing/test.h"
#include "executor/files/npz.h"
#include "executor/run/feed_sources.h"
#include "executor/run/runner.h"
#include "ops/analysis/values/layout_guess.h"
#include "proto/formats/program_file.h"
#include "tests/support/rewrite.h"
#include "tests/support/rounding.h"
#include "transpiler/transpile.h"

namespace weft::testing {
namespace {

using Files = std::map<std::string, std::string>;

struct Archive {
  const char* name;
  size_t programs;
};
constexpr Archive kArchives[] = {
    {"paddle1_programs", 31}, {"paddle1_more_programs", 58}, {"paddle2_6_programs", 4}};

// Why what programs train to is not compared: with Paddle,
const std::map<std::string, std::string> kNotComparedWithPaddle = {
    {"drawn_samples", "draws"},
    {"dropout_ema", "draws"},
    {"picked_columns", "gather_grad gives all rows the gradient of the first"},
    {"word2vec_nce", "draws"},
    {"products", "gather gives an index that occurs twice the gradient of its last occurrence"},
};
// and on two ranks with one.
const std::map<std::string, std::string> kNotComparedOnTwoRanks = {
    {"distinct_numbers", "its state has numbers of each rank's own batch"},
    {"drawn_samples", "draws"},
    {"dropout_ema", "draws"},
    {"word2vec_nce", "draws"},
    {"label_metrics", "its state has metrics of each rank's own batch"},
    {"moving_centers", "each rank moves the centers by its own batch, of which W703 warns"},
    {"resnetish", "each rank normalizes by statistics of its own batch"},
    {"reductions", "its loss has extremes over the batch"},
    {"sampled_images", "an attribute fixes the batch size"},
};
// Variables that each rank computes from its own batch.
const std::map<std::string, std::set<std::string>> kOfOwnBatch = {
    {"auc_metric",
     {"_generated_var_0", "_generated_var_1", "_generated_var_2", "_generated_var_3"}},
    {"persist_loss", {"accuracy_0.tmp_0", "mean_0.tmp_0"}},
};

// Where Paddle's CPU kernels deviate (docs/reference/ops.md).
const std::set<std::string> kTrainedWithQuirks = {"adadelta18", "chosen_rows", "ignored_labels",
                                                  "sparse_emb"};
// Their losses are no means over the batch.
const std::set<std::string> kExactLoss = {"masked_mean"};

struct TrainedProgram {
  std::string name;
  Program main, startup;
  TrainingInputs inputs;                // without feeds if Paddle did not train it
  std::map<std::string, Tensor> state;  // that Paddle computed
  bool is_trained = false;
  int64_t steps = 0;
};

absl::StatusOr<std::string> Extract(const Files& files, const std::string& model,
                                    const std::string& name) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/", model, "_", name);
  WEFT_RETURN_IF_ERROR(WriteFile(path, files.at(absl::StrCat(model, "/", name))));
  return path;
}

absl::StatusOr<Program> ReadFrom(const Files& files, const std::string& model,
                                 const std::string& name) {
  WEFT_ASSIGN_OR_RETURN(const std::string path, Extract(files, model, name));
  return ReadProgram(path);
}

absl::StatusOr<TrainedProgram> Read(const Files& files, const std::string& model) {
  WEFT_ASSIGN_OR_RETURN(Program main, ReadFrom(files, model, "main.pb"));
  WEFT_ASSIGN_OR_RETURN(Program startup, ReadFrom(files, model, "startup.pb"));
  TrainedProgram program{model, std::move(main), std::move(startup), {}, {}};
  program.is_trained = files.count(absl::StrCat(model, "/paddle.npz")) > 0;
  if (!program.is_trained) return program;
  WEFT_ASSIGN_OR_RETURN(const std::string init, Extract(files, model, "init.npz"));
  WEFT_ASSIGN_OR_RETURN(const std::string feeds, Extract(files, model, "feeds.npz"));
  WEFT_ASSIGN_OR_RETURN(const std::string paddle, Extract(files, model, "paddle.npz"));
  WEFT_ASSIGN_OR_RETURN(program.inputs.params, ReadNpz(init));
  WEFT_ASSIGN_OR_RETURN(program.inputs.feeds, FeedsFromFile(feeds));
  WEFT_ASSIGN_OR_RETURN(program.inputs.feeds.layouts, FeedLayoutsOf(program.main));
  WEFT_ASSIGN_OR_RETURN(const auto arrays, ReadNpz(feeds));  // <step>/<variable>
  for (const auto& [array, unused] : arrays) {
    program.steps = std::max<int64_t>(program.steps, std::stoll(array) + 1);
  }
  WEFT_ASSIGN_OR_RETURN(program.state, ReadNpz(paddle));
  return program;
}

// All of the archives. A program that fails to read fails the test.
std::vector<TrainedProgram> AllPrograms() {
  std::vector<TrainedProgram> programs;
  for (const Archive& archive : kArchives) {
    const absl::StatusOr<Files> files =
        ReadTarXz(absl::StrCat("tests/data/", archive.name, ".tar.xz"));
    EXPECT_TRUE(files.ok()) << files.status();
    if (!files.ok()) continue;
    const size_t before = programs.size();
    for (const auto& [name, unused] : *files) {
      absl::string_view model = name;
      if (!absl::ConsumeSuffix(&model, "/main.pb")) continue;
      absl::StatusOr<TrainedProgram> program = Read(*files, std::string(model));
      EXPECT_TRUE(program.ok()) << name << ": " << program.status();
      if (program.ok()) programs.push_back(*std::move(program));
    }
    EXPECT_EQ(programs.size() - before, archive.programs);
  }
  return programs;
}

absl::StatusOr<TrainingResults> Train(const Program& main, const Program& startup, int ranks,
                                      int64_t steps, bool with_quirks, const TrainingInputs& from) {
  TrainingResults results;
  results.losses.resize(1);
  RunInputs inputs;
  inputs.feeds = from.feeds;
  inputs.main = &main;
  inputs.startup = &startup;
  inputs.params = &from.params;
  inputs.on_result = [&results](const StepResult& result) {
    if (result.rank == 0) results.losses[0].push_back(*result.values[0].data<float>());
    return absl::OkStatus();
  };
  RunOptions options;
  options.kernels = from.kernels;
  options.nranks = ranks;
  options.steps = steps;
  options.paddle_cpu_quirks = with_quirks;
  WEFT_ASSIGN_OR_RETURN(RunResult result, RunProgram(inputs, options));
  results.state = std::move(result.persistables);
  return results;
}

TEST(TrainedProgramsTest, ModesAcceptThem) {
  for (const TrainedProgram& program : AllPrograms()) {
    for (const char* mode : {"grad_allreduce", "local_sgd"}) {
      SCOPED_TRACE(absl::StrCat(program.name, " ", mode));
      Program main = program.main, startup = program.startup;
      WEFT_EXPECT_OK(Rewrite(InMode(mode, 2), &main, &startup).status());
    }
  }
}

absl::StatusOr<RoundingBounds> TrainOnOneRank(const TrainedProgram& program, bool with_quirks) {
  return RoundingBounds::Measure(program.inputs, [&](const TrainingInputs& from) {
    return Train(program.main, program.startup, 1, program.steps, with_quirks, from);
  });
}

void OneRankTrainsAsPaddle(const TrainedProgram& program) {
  SCOPED_TRACE(program.name);
  WEFT_ASSERT_OK_AND_ASSIGN(const RoundingBounds bounds,
                            TrainOnOneRank(program, kTrainedWithQuirks.count(program.name) > 0));
  for (const auto& [name, expected] : program.state) {
    ASSERT_TRUE(bounds.results().state.count(name) > 0) << name;
    bounds.ExpectState(name, bounds.results().state.at(name), expected);
  }
}

TEST(TrainedProgramsTest, OneRankTrainsAsPaddle) {
  for (const TrainedProgram& program : AllPrograms()) {
    if (!program.is_trained || kNotComparedWithPaddle.count(program.name) > 0) continue;
    OneRankTrainsAsPaddle(program);
  }
}

void TwoRanksTrainAsOne(const TrainedProgram& program) {
  SCOPED_TRACE(program.name);
  WEFT_ASSERT_OK_AND_ASSIGN(const RoundingBounds bounds,
                            TrainOnOneRank(program, /*with_quirks=*/false));
  Program main = program.main, startup = program.startup;
  TranspileOptions options = InMode("grad_allreduce", 2);
  if (kExactLoss.count(program.name) > 0) options.mode_flags["exact_loss"] = "on";
  WEFT_ASSERT_OK(Rewrite(options, &main, &startup).status());
  WEFT_ASSERT_OK_AND_ASSIGN(
      const TrainingResults found,
      Train(main, startup, 2, program.steps, /*with_quirks=*/false, program.inputs));
  const auto own = kOfOwnBatch.find(program.name);
  for (const auto& [name, expected] : bounds.results().state) {
    if (own != kOfOwnBatch.end() && own->second.count(name) > 0) continue;
    ASSERT_TRUE(found.state.count(name) > 0) << name;
    bounds.ExpectState(name, found.state.at(name), expected);
  }
}

TEST(TrainedProgramsTest, TwoRanksTrainAsOne) {
  for (const TrainedProgram& program : AllPrograms()) {
    if (!program.is_trained || kNotComparedOnTwoRanks.count(program.name) > 0) continue;
    TwoRanksTrainAsOne(program);
  }
}

}  // namespace
}  // namespace weft::testing
