// When parameters travel over several steps: SINGA's partial update, Paddle's LocalSGD and
// MegEngine's periodic broadcast, step by step.
#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "base/testing/test.h"
#include "executor/files/checkpoint.h"
#include "executor/run/runner.h"
#include "nlohmann/json.hpp"
#include "ops/kernel.h"
#include "ops/schema/tensor_type.h"
#include "proto/all_ops.h"
#include "proto/text/program_text.h"
#include "tests/support/rewrite.h"
#include "tests/support/stream_sanitizer.h"
#include "transpiler/transpile.h"

namespace weft::testing {
namespace {

using Json = nlohmann::json;

std::vector<Json> ReadCases(const char* name) {
  std::ifstream file(absl::StrCat("tests/data/schedules/", name));
  std::vector<Json> cases;
  for (std::string line; std::getline(file, line);) cases.push_back(Json::parse(line));
  return cases;
}

// Appends the elements of a tensor of the cases.
void AppendBits(const std::string& hex, std::vector<float>* out) {
  for (size_t i = 0; i < hex.size(); i += 8) {
    const auto bits = static_cast<uint32_t>(std::stoul(hex.substr(i, 8), nullptr, 16));
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    out->push_back(value);
  }
}

std::string BitsOf(const Tensor& tensor) {
  std::string hex;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    uint32_t bits;
    std::memcpy(&bits, tensor.data<float>() + i, sizeof(bits));
    absl::StrAppendFormat(&hex, "%08x", bits);
  }
  return hex;
}

Tensor TensorOf(const std::vector<float>& values) {
  Tensor tensor;
  tensor.Resize(DType::kFloat32, {static_cast<int64_t>(values.size())});
  std::memcpy(tensor.data<float>(), values.data(), values.size() * sizeof(float));
  return tensor;
}

struct Programs {
  Program main, startup;
};

std::string Param(size_t i) { return absl::StrCat("w", i); }

// Parameters w0, w1, ... with gradients that are fed as g0, g1, ... and complete from the last to
// the first. Each rank adds `drift`, if it is fed, to every parameter before the update.
absl::StatusOr<Programs> ProgramsOf(const Json& json, const std::string& optimizer, bool drifts) {
  const std::vector<int64_t> sizes = json["sizes"];
  std::string vars, startup_vars, fills, gradients, additions, updates;
  for (size_t i = sizes.size(); i-- > 0;) {
    const std::string w = Param(i);
    const std::string shape = absl::StrCat("fp32[", sizes[i], "]");
    const std::string states =
        absl::StrCat("    var ", w, " : ", shape, " parameter persistable\n    var v", i, " : ",
                     shape, " persistable\n");
    absl::StrAppend(&startup_vars, states);
    absl::StrAppend(&vars, states, "    var g", i, " : fp32[-1] need_check_feed stop_gradient\n",
                    "    var ", w, "@GRAD : ", shape, "\n");
    for (const std::string& name : {w, absl::StrCat("v", i)}) {
      absl::StrAppend(&fills, "    Out=[", name, "] = fill_constant() role=forward {shape=longs[",
                      sizes[i], "], dtype=5, value=", json.value("initial", Json(0.0)).dump(),
                      "}\n");
    }
    absl::StrAppend(&gradients, "    Out=[", w, "@GRAD] = scale(X=[g", i, "]) role=backward vars=[",
                    w, ", ", w, "@GRAD] {scale=1.0}\n");
    if (drifts) {
      absl::StrAppend(&additions, "    Out=[", w, "] = elementwise_add(X=[", w,
                      "], Y=[drift]) role=forward {axis=-1}\n");
    }
    if (optimizer == "momentum") {
      absl::StrAppend(&updates, "    ParamOut=[", w, "], VelocityOut=[v", i, "] = momentum(Param=[",
                      w, "], Grad=[", w, "@GRAD], Velocity=[v", i,
                      "], LearningRate=[lr]) role=optimize vars=[", w, ", ", w,
                      "@GRAD] {mu=", json["momentum"].dump(), "}\n");
    } else {
      absl::StrAppend(&updates, "    ParamOut=[", w, "] = sgd(Param=[", w, "], Grad=[", w,
                      "@GRAD], LearningRate=[lr]) role=optimize vars=[", w, ", ", w, "@GRAD]\n");
    }
  }
  const char* const lr = "    var lr : fp32[1] persistable\n";
  if (json.contains("lr_decay")) {
    additions = absl::StrCat(
        "    Out=[lr] = scale(X=[lr]) role=lr_sched {scale=", json["lr_decay"].dump(), "}\n");
  }
  const char* const drift =
      drifts ? "    var drift : fp32[-1] need_check_feed stop_gradient\n" : "";
  const auto program = [](const std::string& lines) {
    return ParseProgramText(
        absl::StrCat("program version=2006002 {\n  block 0 parent=-1 {\n", lines, "  }\n}"));
  };
  WEFT_ASSIGN_OR_RETURN(Program main,
                        program(absl::StrCat(vars, lr, drift, gradients, additions, updates)));
  WEFT_ASSIGN_OR_RETURN(
      Program startup,
      program(absl::StrCat(startup_vars, lr, fills, "    Out=[lr] = fill_constant() role=forward ",
                           "{shape=longs[1], dtype=5, value=", json["lr"].dump(), "}\n")));
  return Programs{std::move(main), std::move(startup)};
}

class Trainer {
 public:
  Trainer(const Json& json, const Programs& programs, bool drifts) : json_(json), drifts_(drifts) {
    ranks_ = json["ranks"];
    options_.kernels = &CpuKernels();
    options_.nranks = ranks_;
    inputs_.main = &programs.main;
    inputs_.startup = &programs.startup;
    for (size_t i = 0; i < json["sizes"].size(); ++i) {
      options_.fetch.push_back(Param(i));
      inputs_.feeds.variables.push_back(absl::StrCat("g", i));
    }
    if (drifts) inputs_.feeds.variables.emplace_back("drift");
    inputs_.feeds.read = [this](int64_t step) { return Batch(step); };
  }

  // Trains from the parameters of each rank; returns bits by step, rank and parameter.
  absl::StatusOr<Json> Train() {
    // The state before the first step, with what each rank begins with.
    absl::optional<Checkpoint> begin;
    options_.steps = 0;
    inputs_.on_checkpoint = [&begin](const Checkpoint& checkpoint) {
      begin = checkpoint;
      return absl::OkStatus();
    };
    WEFT_RETURN_IF_ERROR(RunChecked(inputs_, options_).status());
    inputs_.on_checkpoint = nullptr;
    begin->own.resize(ranks_);
    for (int rank = 0; rank < ranks_; ++rank) {
      for (size_t i = 0; i < json_["sizes"].size(); ++i) {
        std::vector<float> values;
        AppendBits(json_["begin"][rank][i], &values);
        begin->own[rank][Param(i)] = TensorOf(values);
        begin->shared.erase(Param(i));
      }
    }
    options_.steps = static_cast<int64_t>(json_["grads"].size());
    begin->end_step = options_.steps;
    inputs_.resume = &*begin;
    Json after = Json::array();
    inputs_.on_result = [&after](const StepResult& result) {
      if (result.rank == 0) after.push_back(Json::array());
      Json params = Json::array();
      for (const Tensor& value : result.values) params.push_back(BitsOf(value));
      after.back().push_back(params);
      return absl::OkStatus();
    };
    WEFT_RETURN_IF_ERROR(RunChecked(inputs_, options_).status());
    return after;
  }

 private:
  std::vector<Tensor> Batch(int64_t step) const {
    std::vector<Tensor> tensors;
    for (size_t i = 0; i < json_["sizes"].size(); ++i) {
      std::vector<float> values;
      for (int rank = 0; rank < ranks_; ++rank) AppendBits(json_["grads"][step][rank][i], &values);
      tensors.push_back(TensorOf(values));
    }
    if (drifts_) {
      std::vector<float> drift;
      // Once for all micro-batches of a step.
      const bool is_last = (step + 1) % json_.value("micro_batches", 1) == 0;
      for (int rank = 0; rank < ranks_; ++rank) {
        drift.push_back(is_last ? json_["drift"].get<float>() * static_cast<float>(rank) : 0.0F);
      }
      tensors.push_back(TensorOf(drift));
    }
    return tensors;
  }

  const Json& json_;
  const bool drifts_;
  int ranks_;
  RunOptions options_;
  RunInputs inputs_;
};

// In all steps, ranks and parameters.
void ExpectNear(const Json& found, const Json& expected) {
  ASSERT_EQ(found.size(), expected.size());
  if (found.is_array()) {
    for (size_t i = 0; i < found.size(); ++i) {
      SCOPED_TRACE(i);
      ExpectNear(found[i], expected[i]);
    }
    return;
  }
  std::vector<float> values, wanted;
  AppendBits(found.get<std::string>(), &values);
  AppendBits(expected.get<std::string>(), &wanted);
  EXPECT_THAT(values, Pointwise(FloatNear(1e-6F), wanted));
}

int CountOps(const Program& program, absl::string_view type) {
  int count = 0;
  for (const Op& op : AllOps(program)) count += op.type() == type ? 1 : 0;
  return count;
}

// --- SINGA's partial update ----------------------------------------------------------------------

TEST(TrainSchedulesTest, PartialUpdatesAreThoseOfSinga) {
  const std::vector<Json> cases = ReadCases("partial_update.jsonl");
  EXPECT_EQ(cases.size(), 4u);
  for (const Json& json : cases) {
    SCOPED_TRACE(json["id"].get<std::string>());
    WEFT_ASSERT_OK_AND_ASSIGN(Programs programs, ProgramsOf(json, "momentum", /*drifts=*/false));
    TranspileOptions options = InMode("singa_partial", json["ranks"].get<int>(),
                                      {{"threshold", json["threshold"].dump()}});
    options.verification = Verification::kAfterEachPass;
    WEFT_ASSERT_OK(Rewrite(options, &programs.main, &programs.startup).status());

    const Json& partitions = json["partitions"];
    EXPECT_EQ(CountOps(programs.main, "c_allreduce_sum"), partitions.size());
    for (size_t k = 0; partitions.size() > 1 && k < partitions.size(); ++k) {
      std::vector<std::string> expected, found;
      for (const Json& i : partitions[k]) expected.push_back(Param(i.get<size_t>()));
      for (OpId id : programs.main.block(0).ops()) {
        const Op op = programs.main.op(id);
        if (op.SubBlocks() != std::vector<int>{static_cast<int>(k) + 1}) continue;
        for (Symbol name : op.Input("Input")) found.emplace_back(programs.main.name(name));
      }
      EXPECT_EQ(found, expected) << "partition " << k + 1;
    }
    WEFT_ASSERT_OK_AND_ASSIGN(const Json after, Trainer(json, programs, false).Train());
    EXPECT_EQ(after, json["after"]);
  }
}

// --- Paddle's LocalSGD ---------------------------------------------------------------------------

// Paddle averages the change since the last average, which is the same but for rounding.
TEST(TrainSchedulesTest, LocalSgdAveragesInTheStepsOfPaddlesStrategy) {
  const std::vector<Json> cases = ReadCases("local_sgd.jsonl");
  EXPECT_EQ(cases.size(), 5u);
  for (const Json& json : cases) {
    SCOPED_TRACE(json["id"].get<std::string>());
    WEFT_ASSERT_OK_AND_ASSIGN(Programs programs, ProgramsOf(json, "sgd", /*drifts=*/false));
    TranspileOptions options = InMode("local_sgd");
    for (const char* flag : {"k_steps", "begin_step"}) options.mode_flags[flag] = json[flag].dump();
    options.cluster.nranks = json["ranks"].get<int>();
    options.verification = Verification::kAfterEachPass;
    WEFT_ASSERT_OK(Rewrite(options, &programs.main, &programs.startup).status());
    WEFT_ASSERT_OK_AND_ASSIGN(const Json after, Trainer(json, programs, false).Train());
    ExpectNear(after, json["after"]);
    for (size_t step = 0; step < after.size(); ++step) {
      EXPECT_EQ(after[step][0] == after[step][1], json["averages"][step].get<bool>()) << step + 1;
    }
  }
}

// --- Outer optimizers ----------------------------------------------------------------------------

// The same bits as NumPy, by the formulas; replicas are equal in the steps that synchronize.
TEST(TrainSchedulesTest, OuterOptimizersFollowTheirFormulas) {
  const std::vector<Json> cases = ReadCases("outer.jsonl");
  EXPECT_EQ(cases.size(), 17u);
  for (const Json& json : cases) {
    SCOPED_TRACE(json["id"].get<std::string>());
    WEFT_ASSERT_OK_AND_ASSIGN(Programs programs, ProgramsOf(json, "sgd", /*drifts=*/false));
    TranspileOptions options = InMode("local_sgd", json["ranks"].get<int>(),
                                      {{"outer", json["outer"].get<std::string>()}});
    for (const char* flag : {"k_steps", "fragments", "delay", "mix"}) {
      options.mode_flags[flag] = json[flag].dump();
    }
    options.mode_flags["comm_dtype"] = json["comm_dtype"].get<std::string>();
    options.verification = Verification::kAfterEachPass;
    WEFT_ASSERT_OK(Rewrite(options, &programs.main, &programs.startup).status());
    WEFT_ASSERT_OK_AND_ASSIGN(const Json after, Trainer(json, programs, false).Train());
    EXPECT_EQ(after, json["after"]);
    if (json["fragments"] != 1 || json["mix"] != 0) continue;
    for (size_t step = 0; step < after.size(); ++step) {
      const bool is_due = (step + 1) % json["k_steps"].get<size_t>() == 0;
      EXPECT_EQ(after[step][0] == after[step][1], is_due) << step + 1;
    }
  }
}

// A published run, as Trainer reads it: fragment i is parameter N - 1 - i, as updates begin with
// the last parameter.
Json TrainerCase(const Json& published) {
  const auto hex = [](float value) { return BitsOf(TensorOf({value})); };
  const auto fragments = published["fragments"].get<size_t>();
  const auto ranks = published["replicas"].get<size_t>();
  const size_t steps = published["local"][0].size() - 1;
  const Json begin(fragments, hex(published["initial"].get<float>()));
  const Json grads(fragments, hex(published["inner"]["grad"].get<float>()));
  return {{"ranks", ranks},
          {"sizes", std::vector<int64_t>(fragments, 1)},
          {"lr", published["inner"]["lr"].get<double>()},
          {"initial", published["initial"].get<double>()},
          {"begin", Json(ranks, begin)},
          {"grads", Json(steps, Json(ranks, grads))}};
}

TEST(TrainSchedulesTest, FragmentsTakeTurnsAsInARunOfTorchft) {
  const std::vector<Json> cases = ReadCases("diloco.jsonl");
  EXPECT_EQ(cases.size(), 4u);
  for (const Json& published : cases) {
    SCOPED_TRACE(published["id"].get<std::string>());
    const Json json = TrainerCase(published);
    WEFT_ASSERT_OK_AND_ASSIGN(Programs programs, ProgramsOf(json, "sgd", /*drifts=*/false));
    TranspileOptions options =
        InMode("local_sgd", json["ranks"].get<int>(),
               {{"k_steps", published["sync_every"].dump()},
                {"fragments", published["fragments"].dump()},
                {"delay", published["fragment_sync_delay"].dump()},
                {"mix", published["fragment_update_alpha"].dump()},
                {"outer", absl::StrCat("sgd{lr=", published["outer"]["lr"].dump(), "}")}});
    options.verification = Verification::kAfterEachPass;
    if (published["fragment_update_alpha"] == 1) {
      // No rank has anything of the others.
      Programs refused = programs;
      EXPECT_THAT(
          Rewrite(options, &refused.main, &refused.startup).status(),
          StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("each rank updates it")));
      options.verification = Verification::kNever;
    }
    WEFT_ASSERT_OK(Rewrite(options, &programs.main, &programs.startup).status());
    WEFT_ASSERT_OK_AND_ASSIGN(const Json after, Trainer(json, programs, false).Train());
    const auto fragments = published["fragments"].get<size_t>();
    for (size_t step = 0; step < after.size(); ++step) {
      for (size_t i = 0; i < fragments; ++i) {
        const auto expected = published["local"][i][step + 1].get<float>();
        for (const Json& params : after[step]) {
          EXPECT_EQ(params[fragments - 1 - i], BitsOf(TensorOf({expected}))) << step << " " << i;
        }
      }
    }
  }
}

// --- MegEngine's periodic broadcast --------------------------------------------------------------

TEST(TrainSchedulesTest, PeriodicBroadcastsAreThoseOfMegEngine) {
  const std::vector<Json> cases = ReadCases("bcast_period.jsonl");
  EXPECT_EQ(cases.size(), 7u);
  for (const Json& json : cases) {
    SCOPED_TRACE(json["id"].get<std::string>());
    WEFT_ASSERT_OK_AND_ASSIGN(Programs programs, ProgramsOf(json, "sgd", /*drifts=*/true));
    const std::string period = absl::StrCat("{bcast_period=", json["period"].dump(), "}");
    const char* const scale = json["reduce_method"] == "mean" ? "avg" : "none";
    TranspileOptions options;
    options.passes =
        absl::StrCat("comm-init,broadcast-params", period, ",grad-all-reduce{scale=", scale,
                     "},periodic-broadcast", period, ",sync-elimination");
    options.cluster.nranks = json["ranks"].get<int>();
    // Ranks that drift apart are wrong.
    options.verification = Verification::kNever;
    WEFT_ASSERT_OK(Rewrite(options, &programs.main, &programs.startup).status());
    EXPECT_EQ(CountOps(programs.startup, "c_broadcast"),
              json["broadcasts_at_construction"].get<int>());
    WEFT_ASSERT_OK_AND_ASSIGN(const Json after, Trainer(json, programs, true).Train());
    EXPECT_EQ(after, json["after"]);
  }
}

// What each all-reduce of gradients passes, in order, without padding.
std::vector<int64_t> ElementsOfAllReduces(const Program& program) {
  std::map<Symbol, int64_t> elements;
  for (VarId id : program.block(0).vars()) {
    const absl::optional<TensorType> type = DeclaredType(program.var(id));
    if (type.has_value()) elements[program.var(id).name_symbol()] = NumElements(type->dims);
  }
  std::vector<int64_t> all;
  for (const Op& op : AllOps(program)) {
    for (Symbol buffer : op.Output("FusedOutput")) {
      elements[buffer] = 0;
      for (Symbol member : op.Input("Input")) elements[buffer] += elements[member];
    }
    if (!absl::StartsWith(op.type(), "c_allreduce")) continue;
    for (Symbol reduced : op.Input("X")) all.push_back(elements[reduced]);
  }
  return all;
}

// MegEngine packs from the second backward pass on: the first one tells it the order of gradients.
// Weft knows the order from the program, and packs in the first step as in the others.
TEST(TrainSchedulesTest, PackedGradientsAreThoseOfMegEngine) {
  const std::vector<Json> cases = ReadCases("packed.jsonl");
  EXPECT_EQ(cases.size(), 2u);
  for (const Json& json : cases) {
    SCOPED_TRACE(json["id"].get<std::string>());
    WEFT_ASSERT_OK_AND_ASSIGN(Programs programs, ProgramsOf(json, "sgd", /*drifts=*/true));
    TranspileOptions options =
        InMode("megengine", json["ranks"].get<int>(),
               {{"reduce_method", json["reduce_method"].get<std::string>()},
                {"bcast_period", json["period"].dump()},
                {"buckets",
                 absl::StrCat("megengine{threshold_bytes=", json["threshold_bytes"].dump(), "}")}});
    // Ranks that drift apart are wrong.
    options.verification = Verification::kNever;
    WEFT_ASSERT_OK(Rewrite(options, &programs.main, &programs.startup).status());
    const auto of_steps = json["elements_of_all_reduces"].get<std::vector<std::vector<int64_t>>>();
    const std::vector<int64_t> found = ElementsOfAllReduces(programs.main);
    ASSERT_GT(of_steps.size(), 1u);
    EXPECT_EQ(of_steps[0].size(), json["sizes"].size());
    for (size_t step = 1; step < of_steps.size(); ++step) EXPECT_EQ(found, of_steps[step]);
    EXPECT_LT(found.size(), of_steps[0].size());
    WEFT_ASSERT_OK_AND_ASSIGN(const Json after, Trainer(json, programs, true).Train());
    EXPECT_EQ(after, json["after"]);
  }
}

// MegEngine reduces the gradients of every micro-batch, and adds what is reduced. grad-accumulate
// adds first, and reduces once, which is the same but for rounding.
TEST(TrainSchedulesTest, MicroBatchesAreAccumulatedAndReducedOnce) {
  const std::vector<Json> cases = ReadCases("micro_batches.jsonl");
  EXPECT_EQ(cases.size(), 1u);
  for (const Json& json : cases) {
    SCOPED_TRACE(json["id"].get<std::string>());
    WEFT_ASSERT_OK_AND_ASSIGN(Programs programs, ProgramsOf(json, "sgd", /*drifts=*/true));
    const auto micro_batches = json["micro_batches"].get<size_t>();
    TranspileOptions options;
    options.passes = absl::StrCat("grad-accumulate{k=", micro_batches,
                                  "},comm-init,broadcast-params,grad-reduce{reduce_method=",
                                  json["reduce_method"].get<std::string>(),
                                  ",division=quotient},sync-elimination");
    options.cluster.nranks = json["ranks"].get<int>();
    // Ranks that drift apart are wrong.
    options.verification = Verification::kNever;
    WEFT_ASSERT_OK(Rewrite(options, &programs.main, &programs.startup).status());
    std::vector<int64_t> expected = ElementsOfAllReduces(programs.main);
    for (size_t i = 1; i < micro_batches; ++i) {
      const std::vector<int64_t> of_one(expected.begin(), expected.begin() + json["sizes"].size());
      expected.insert(expected.end(), of_one.begin(), of_one.end());
    }
    for (const Json& of_step : json["elements_of_all_reduces"]) {
      EXPECT_EQ(of_step.get<std::vector<int64_t>>(), expected);
    }
    WEFT_ASSERT_OK_AND_ASSIGN(const Json after, Trainer(json, programs, true).Train());
    ASSERT_EQ(after.size(), json["after"].size() * micro_batches);
    for (size_t step = 0; step < json["after"].size(); ++step) {
      ExpectNear(after[(step + 1) * micro_batches - 1], json["after"][step]);
    }
  }
}

}  // namespace
}  // namespace weft::testing
