// Programs of Paddle 2.6.2 with tables that static.nn.sparse_embedding declares, as rows of a fixed
// height (tools/paddle/embedding_programs.py). They train to the states to which Paddle trains the
// same models with static.nn.embedding: on one rank, on two, and with the tables on servers.
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/testing/archive.h"
#include "base/testing/test.h"
#include "executor/files/npz.h"
#include "executor/run/feed_sources.h"
#include "executor/run/runner.h"
#include "ops/analysis/values/layout_guess.h"
#include "ops/schema/tensor_type.h"
#include "proto/formats/program_file.h"
#include "tests/support/rewrite.h"
#include "tests/support/rounding.h"
#include "transpiler/transpile.h"

namespace weft::testing {
namespace {

constexpr int kSteps = 4;

struct Model {
  std::string name;
  std::vector<std::string> tables;
  bool with_quirks;  // of Paddle's CPU kernels
};
const Model kModels[] = {{"sgd", {"table"}, false},
                         {"adam_padding", {"table"}, true},
                         {"lazy_adam_entries", {"users", "items"}, true}};

struct Programs {
  Program main, startup;
  absl::optional<Program> server;
  TrainingInputs inputs;
  std::map<std::string, Tensor> state;  // of Paddle
};

absl::StatusOr<std::map<std::string, std::string>> Extract(const std::string& model) {
  WEFT_ASSIGN_OR_RETURN(const auto files, ReadTarXz("tests/data/paddle2_6_embeddings.tar.xz"));
  std::map<std::string, std::string> paths;
  for (const char* name : {"main.pb", "startup.pb", "init.npz", "feeds.npz", "paddle.npz"}) {
    paths[name] = absl::StrCat(::testing::TempDir(), "/", model, "_", name);
    WEFT_RETURN_IF_ERROR(WriteFile(paths[name], files.at(absl::StrCat(model, "/", name))));
  }
  return paths;
}

absl::StatusOr<Programs> Read(const std::string& model) {
  WEFT_ASSIGN_OR_RETURN(const auto paths, Extract(model));
  WEFT_ASSIGN_OR_RETURN(Program main, ReadProgram(paths.at("main.pb")));
  WEFT_ASSIGN_OR_RETURN(Program startup, ReadProgram(paths.at("startup.pb")));
  Programs programs{std::move(main), std::move(startup), absl::nullopt, {}, {}};
  WEFT_ASSIGN_OR_RETURN(programs.inputs.params, ReadNpz(paths.at("init.npz")));
  WEFT_ASSIGN_OR_RETURN(programs.inputs.feeds, FeedsFromFile(paths.at("feeds.npz")));
  WEFT_ASSIGN_OR_RETURN(programs.inputs.feeds.layouts, FeedLayoutsOf(programs.main));
  WEFT_ASSIGN_OR_RETURN(programs.state, ReadNpz(paths.at("paddle.npz")));
  return programs;
}

absl::StatusOr<TrainingResults> Train(const Programs& programs, int ranks, bool with_quirks,
                                      const TrainingInputs& from) {
  RunInputs inputs;
  inputs.feeds = from.feeds;
  inputs.main = &programs.main;
  inputs.startup = &programs.startup;
  inputs.params = &from.params;
  if (programs.server.has_value()) inputs.server = &*programs.server;
  TrainingResults results;
  results.losses.resize(1);
  inputs.on_result = [&results](const StepResult& result) {
    if (result.rank == 0) results.losses[0].push_back(*result.values[0].data<float>());
    return absl::OkStatus();
  };
  RunOptions options;
  options.kernels = from.kernels;
  options.nranks = ranks;
  options.num_servers = programs.server.has_value() ? 2 : 0;
  options.steps = kSteps;
  options.paddle_cpu_quirks = with_quirks;
  WEFT_ASSIGN_OR_RETURN(RunResult result, RunProgram(inputs, options));
  results.state = std::move(result.persistables);
  return results;
}

absl::StatusOr<RoundingBounds> TrainOnOneRank(const Model& model, const Programs& programs) {
  return RoundingBounds::Measure(programs.inputs, [&](const TrainingInputs& from) {
    return Train(programs, 1, model.with_quirks, from);
  });
}

TEST(EmbeddingProgramsTest, TableIsDense) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Programs programs, Read("sgd"));
  const Block block = programs.main.block(0);
  const Var table = programs.main.var(block.FindVar("table"));
  EXPECT_EQ(table.type(), pb::VarType::SELECTED_ROWS);
  EXPECT_EQ(DeclaredType(table)->kind, TensorType::Kind::kDense);
  const Var grad = programs.main.var(block.FindVar("table@GRAD"));
  EXPECT_EQ(DeclaredType(grad)->kind, TensorType::Kind::kSelectedRows);
}

TEST(EmbeddingProgramsTest, OneRankTrainsAsPaddle) {
  for (const Model& model : kModels) {
    SCOPED_TRACE(model.name);
    WEFT_ASSERT_OK_AND_ASSIGN(const Programs programs, Read(model.name));
    WEFT_ASSERT_OK_AND_ASSIGN(const RoundingBounds bounds, TrainOnOneRank(model, programs));
    for (const auto& [name, expected] : programs.state) {
      ASSERT_TRUE(bounds.results().state.count(name) > 0) << name;
      bounds.ExpectState(name, bounds.results().state.at(name), expected);
    }
  }
}

// `rewrite` makes programs for two ranks, or workers.
void TwoTrainAsOne(const std::function<absl::Status(const Model&, Programs*)>& rewrite) {
  for (const Model& model : kModels) {
    SCOPED_TRACE(model.name);
    WEFT_ASSERT_OK_AND_ASSIGN(Programs programs, Read(model.name));
    WEFT_ASSERT_OK_AND_ASSIGN(const RoundingBounds bounds, TrainOnOneRank(model, programs));
    WEFT_ASSERT_OK(rewrite(model, &programs));
    WEFT_ASSERT_OK_AND_ASSIGN(const TrainingResults found,
                              Train(programs, 2, model.with_quirks, programs.inputs));
    for (const auto& [name, expected] : programs.state) {
      // Servers have the powers of beta of a table; what workers have of that stays as it was.
      const auto is_of_table = [&](const std::string& table) {
        return absl::StrContains(name, absl::StrCat(table, "_beta"));
      };
      if (programs.server.has_value() && absl::c_any_of(model.tables, is_of_table)) continue;
      ASSERT_TRUE(found.state.count(name) > 0) << name;
      bounds.ExpectState(name, found.state.at(name), expected);
    }
    for (const std::string& table : model.tables) EXPECT_EQ(found.state.count(table), 1);
  }
}

TEST(EmbeddingProgramsTest, TwoRanksTrainAsOne) {
  TwoTrainAsOne([](const Model&, Programs* programs) {
    return Rewrite(InMode("grad_allreduce", 2), &programs->main, &programs->startup).status();
  });
}

TEST(EmbeddingProgramsTest, WorkersAndServersTrainAsOne) {
  TwoTrainAsOne([](const Model& model, Programs* programs) -> absl::Status {
    TranspileOptions options = InMode("parameter_server");
    for (const std::string& table : model.tables) {
      options.param_attrs[table].parameter_server = true;
    }
    WEFT_ASSIGN_OR_RETURN(TranspileResult result,
                          Rewrite(options, &programs->main, &programs->startup));
    programs->server = std::move(result.server);
    return absl::OkStatus();
  });
}

}  // namespace
}  // namespace weft::testing
