// Sparsified gradients: programs train as Apache SINGA does, bit by bit, and no gradient is lost.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "base/testing/test.h"
#include "executor/run/runner.h"
#include "nlohmann/json.hpp"
#include "ops/kernel.h"
#include "proto/text/program_text.h"
#include "tests/support/stream_sanitizer.h"
#include "tests/support/training_programs.h"
#include "tests/support/training_spec.h"
#include "transpiler/transpile.h"

namespace weft::testing {
namespace {

using Json = nlohmann::json;

using Numbers = std::vector<float>;

// Parameters w0, w1, ... whose gradients are fed: those of rank r are row r of x0, x1, ...
struct Programs {
  Program main, startup;
};

absl::StatusOr<Programs> MakePrograms(const std::vector<int64_t>& sizes, double lr) {
  std::string vars = "    var lr : fp32[1] persistable\n", backward, updates;
  std::string params = vars,
              fills = absl::StrCat(
                  "    Out=[lr] = fill_constant() role=forward {shape=longs[1], dtype=5, value=",
                  lr, "}\n");
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t n = sizes[i];
    absl::StrAppend(&vars, "    var x", i, " : fp32[-1, ", n, "] need_check_feed stop_gradient\n",
                    "    var w", i, " : fp32[1, ", n, "] parameter persistable\n", "    var w", i,
                    "@GRAD : fp32[1, ", n, "]\n");
    absl::StrAppend(&backward, "    Out=[w", i, "@GRAD] = scale(X=[x", i,
                    "]) role=backward vars=[w", i, ", w", i, "@GRAD] {scale=1.0}\n");
    absl::StrAppend(&updates, "    ParamOut=[w", i, "] = sgd(Grad=[w", i,
                    "@GRAD], LearningRate=[lr], Param=[w", i, "]) role=optimize vars=[w", i, ", w",
                    i, "@GRAD]\n");
    absl::StrAppend(&params, "    var w", i, " : fp32[1, ", n, "] parameter persistable\n");
    absl::StrAppend(&fills, "    Out=[w", i, "] = fill_constant() role=forward {shape=longs[1, ", n,
                    "], dtype=5, value=0.0}\n");
  }
  const auto program = [](const std::string& lines) {
    return absl::StrCat("program version=2006002 {\n  block 0 parent=-1 {\n", lines, "  }\n}");
  };
  WEFT_ASSIGN_OR_RETURN(Program main, ParseProgramText(program(vars + backward + updates)));
  WEFT_ASSIGN_OR_RETURN(Program startup, ParseProgramText(program(params + fills)));
  return Programs{std::move(main), std::move(startup)};
}

absl::Status Rewrite(const std::string& passes, int ranks, Programs* programs) {
  TranspileOptions options;
  options.passes = passes;
  options.cluster.nranks = ranks;
  options.verification = Verification::kAfterEachPass;
  ProgramPair pair{&programs->main, &programs->startup};
  return Transpile(options, pair).status();
}

Tensor Row(const Numbers& values, int64_t rows = 1) {
  Tensor tensor;
  tensor.Resize(DType::kFloat32, {rows, static_cast<int64_t>(values.size()) / rows});
  std::copy(values.begin(), values.end(), tensor.data<float>());
  return tensor;
}

// By step, rank and fetched variable.
using Fetched = std::vector<std::vector<std::vector<Numbers>>>;

// `gradients`: by step, rank and parameter.
absl::StatusOr<Fetched> Train(const Programs& programs, const Fetched& gradients,
                              const std::vector<std::string>& fetch) {
  const size_t ranks = gradients[0].size(), params = gradients[0][0].size();
  RunInputs inputs;
  inputs.main = &programs.main;
  inputs.startup = &programs.startup;
  std::map<std::string, Tensor> begin;
  for (size_t i = 0; i < params; ++i) {
    inputs.feeds.variables.push_back(absl::StrCat("x", i));
    Numbers values;
    for (size_t j = 0; j < gradients[0][0][i].size(); ++j) {
      values.push_back(static_cast<float>(j) * 0.25F + static_cast<float>(i));
    }
    begin.emplace(absl::StrCat("w", i), Row(values));
  }
  inputs.params = &begin;
  inputs.feeds.read = [&](int64_t step) {
    std::vector<Tensor> tensors;
    for (size_t i = 0; i < params; ++i) {
      Numbers all;
      for (size_t r = 0; r < ranks; ++r) {
        const Numbers& own = gradients[step][r][i];
        all.insert(all.end(), own.begin(), own.end());
      }
      tensors.push_back(Row(all, static_cast<int64_t>(ranks)));
    }
    return tensors;
  };
  Fetched fetched(gradients.size(), std::vector<std::vector<Numbers>>(ranks));
  inputs.on_result = [&](const StepResult& result) {
    for (const Tensor& value : result.values) {
      fetched[result.step][result.rank].emplace_back(value.data<float>(),
                                                     value.data<float>() + value.size());
    }
    return absl::OkStatus();
  };
  RunOptions options;
  options.kernels = &CpuKernels();
  options.nranks = static_cast<int>(ranks);
  options.steps = static_cast<int64_t>(gradients.size());
  options.fetch = fetch;
  options.timeout_s = 60;
  WEFT_RETURN_IF_ERROR(RunChecked(inputs, options).status());
  return fetched;
}

std::string Hex(const Numbers& values) {
  std::string text;
  for (float value : values) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    absl::StrAppendFormat(&text, "%08x", bits);
  }
  return text;
}

Numbers FromHex(const std::string& hex) {
  Numbers values;
  for (size_t i = 0; i < hex.size(); i += 8) {
    const auto bits = static_cast<uint32_t>(std::stoul(hex.substr(i, 8), nullptr, 16));
    values.emplace_back();
    std::memcpy(&values.back(), &bits, sizeof(bits));
  }
  return values;
}

// --- SINGA's class -------------------------------------------------------------------------------

std::vector<Json> ReadCases() {
  std::ifstream file("tests/data/compression/singa_sparse.jsonl");
  std::vector<Json> cases;
  for (std::string line; std::getline(file, line);) cases.push_back(Json::parse(line));
  return cases;
}

// The parameters of each bucket, in the order of their elements.
std::vector<std::vector<size_t>> BucketsOf(const Json& test) {
  std::vector<std::vector<size_t>> buckets;
  std::vector<size_t> open;
  int64_t elements = 0;
  const int64_t threshold = test["threshold"];
  for (size_t i = 0; i < test["sizes"].size(); ++i) {
    const int64_t size = test["sizes"][i];
    if (size > threshold) {
      buckets.push_back({i});
      continue;
    }
    open.push_back(i);
    elements += size;
    if (elements <= threshold) continue;
    buckets.push_back(std::exchange(open, {}));
    elements = 0;
  }
  if (!open.empty()) buckets.push_back(open);
  return buckets;
}

Numbers Joined(const std::vector<Numbers>& values, const std::vector<size_t>& which, size_t first) {
  Numbers joined;
  for (size_t i : which) {
    joined.insert(joined.end(), values[first + i].begin(), values[first + i].end());
  }
  return joined;
}

void ExpectAsSinga(const Json& test) {
  const std::vector<int64_t> sizes = test["sizes"];
  const bool corr = test["corr"];
  const int ranks = test["ranks"];
  WEFT_ASSERT_OK_AND_ASSIGN(Programs programs, MakePrograms(sizes, test["lr"]));
  WEFT_ASSERT_OK(Rewrite(
      absl::StrCat(
          "comm-init,broadcast-params,sparsify-gradients{mode=", test["mode"].get<std::string>(),
          ",spars=", test["spars"].get<double>(), ",corr=", corr ? "true" : "false",
          ",threshold=", test["threshold"].get<int64_t>(), "},sync-elimination"),
      ranks, &programs));
  Fetched gradients;
  for (const Json& step : test["steps"]) {
    gradients.emplace_back();
    for (const Json& rank : step["inputs"]) {
      gradients.back().emplace_back();
      for (const Json& tensor : rank) gradients.back().back().push_back(FromHex(tensor));
    }
  }
  std::vector<std::string> fetch;
  for (const char* suffix : {"", "@GRAD", "@RESIDUAL"}) {
    for (size_t i = 0; i < sizes.size() && (corr || std::string(suffix) != "@RESIDUAL"); ++i) {
      fetch.push_back(absl::StrCat("w", i, suffix));
    }
  }
  WEFT_ASSERT_OK_AND_ASSIGN(const Fetched found, Train(programs, gradients, fetch));
  const std::vector<std::vector<size_t>> buckets = BucketsOf(test);
  const float reciprocal = 1.0F / static_cast<float>(ranks);
  for (size_t s = 0; s < found.size(); ++s) {
    const Json& step = test["steps"][s];
    for (int rank = 0; rank < ranks; ++rank) {
      SCOPED_TRACE(absl::StrCat("step ", s, ", rank ", rank));
      const std::vector<Numbers>& values = found[s][rank];
      for (size_t i = 0; i < sizes.size(); ++i) EXPECT_EQ(Hex(values[i]), step["params"][i]);
      ASSERT_THAT(step["aggregated"], SizeIs(buckets.size()));
      for (size_t b = 0; b < buckets.size(); ++b) {
        Numbers mean = FromHex(step["aggregated"][b]);
        for (float& value : mean) value *= reciprocal;
        EXPECT_EQ(Hex(Joined(values, buckets[b], sizes.size())), Hex(mean));
        if (!corr) continue;
        const Numbers rest = Joined(values, buckets[b], 2 * sizes.size());
        EXPECT_EQ(Hex(rest), step["residual"][b][rank]);
        for (int64_t sent : step["sent"][b][rank]) EXPECT_EQ(rest[sent], 0);
      }
    }
  }
}

TEST(TrainSparsifiedTest, RanksTrainAsSingasClass) {
  const std::vector<Json> cases = ReadCases();
  ASSERT_THAT(cases, SizeIs(25));
  for (const Json& test : cases) {
    SCOPED_TRACE(test["id"].get<std::string>());
    ExpectAsSinga(test);
  }
}

// --- What is sent and what remains ---------------------------------------------------------------

// With small integers, all sums are exact: what the ranks send and keep is what they had.
TEST(TrainSparsifiedTest, NoGradientIsLost) {
  const std::vector<int64_t> sizes = {40, 3, 5, 1, 17, 2};
  std::mt19937 random(3);
  for (const char* options :
       {"{mode=topk,spars=0.05}", "{mode=topk,spars=0.2,threshold=7,nrings=2}",
        "{mode=topk,spars=1}", "{mode=threshold,spars=3,threshold=7}",
        "{mode=threshold,spars=0,nrings=3,threshold=0}", "{mode=threshold,spars=1000}"}) {
    SCOPED_TRACE(options);
    WEFT_ASSERT_OK_AND_ASSIGN(Programs programs, MakePrograms(sizes, 0.1));
    WEFT_ASSERT_OK(Rewrite(absl::StrCat("comm-init{nrings=3},broadcast-params,sparsify-gradients",
                                        options, ",sync-elimination"),
                           4, &programs));
    Fetched gradients(8, std::vector<std::vector<Numbers>>(4));
    for (auto& step : gradients) {
      for (auto& rank : step) {
        for (int64_t size : sizes) {
          rank.emplace_back();
          for (int64_t j = 0; j < size; ++j) {
            rank.back().push_back(static_cast<float>(random() % 9) - 4);
          }
        }
      }
    }
    // Gradients that travel whole have no residual.
    std::vector<std::string> fetch;
    std::map<size_t, size_t> residual_of;
    for (size_t i = 0; i < sizes.size(); ++i) fetch.push_back(absl::StrCat("w", i, "@GRAD"));
    for (size_t i = 0; i < sizes.size(); ++i) {
      const std::string residual = absl::StrCat("w", i, "@RESIDUAL");
      if (!programs.main.FindSymbol(residual).valid()) continue;
      residual_of[i] = fetch.size();
      fetch.push_back(residual);
    }
    ASSERT_FALSE(residual_of.empty());
    WEFT_ASSERT_OK_AND_ASSIGN(const Fetched found, Train(programs, gradients, fetch));
    for (size_t step = 0; step < found.size(); ++step) {
      for (size_t i = 0; i < sizes.size(); ++i) {
        for (int64_t j = 0; j < sizes[i]; ++j) {
          float had = 0, has = 4 * found[step][0][i][j];
          for (int rank = 0; rank < 4; ++rank) {
            had += gradients[step][rank][i][j];
            const auto residual = residual_of.find(i);
            if (residual != residual_of.end()) {
              if (step > 0) had += found[step - 1][rank][residual->second][j];
              has += found[step][rank][residual->second][j];
            }
            EXPECT_EQ(found[step][rank][i][j], found[step][0][i][j]);
          }
          ASSERT_EQ(has, had) << "step " << step << ", element " << j << " of w" << i;
        }
      }
    }
  }
}

// --- Modes ---------------------------------------------------------------------------------------

struct Job {
  const char* name;
  void (*change)(TrainingSpec* spec);
};

// The parameters after the last step, on rank 0.
absl::StatusOr<std::map<std::string, Tensor>> Trained(const TrainingPrograms& programs, int ranks) {
  RunInputs inputs;
  inputs.main = &programs.main;
  inputs.startup = &programs.startup;
  inputs.feeds = programs.feeds;
  RunOptions options;
  options.kernels = &CpuKernels();
  options.nranks = ranks;
  options.steps = 6;
  options.timeout_s = 60;
  WEFT_ASSIGN_OR_RETURN(const RunResult result, RunChecked(inputs, options));
  std::map<std::string, Tensor> parameters;
  for (const std::string& name : programs.parameters) {
    parameters.emplace(name, result.persistables.at(name).Clone());
  }
  return parameters;
}

// Ranks that send everything train as one device, also where gradients are rows, accumulated over
// several steps, or clipped.
TEST(TrainSparsifiedTest, RanksThatSendEverythingTrainAsOneDevice) {
  const Job jobs[] = {
      {"momentum", [](TrainingSpec* spec) { spec->weights_by = OptimizerKind::kMomentum; }},
      {"rows", [](TrainingSpec* spec) { spec->lookups = 2, spec->sparse = true; }},
      {"merged", [](TrainingSpec* spec) { spec->merged_steps = 3; }},
      {"clipped", [](TrainingSpec* spec) { spec->clip = ClipKind::kByGlobalNorm; }},
  };
  const std::map<std::string, std::map<std::string, std::string>> modes = {
      {"singa_sparse_topk", {{"spars", "1"}, {"threshold", "3"}}},
      {"singa_sparse_threshold", {{"spars", "0"}, {"nrings", "2"}}}};
  for (const Job& job : jobs) {
    TrainingSpec spec;
    spec.layers = {{3, Activation::kTanh, true}, {2, Activation::kNone, true}};
    job.change(&spec);
    WEFT_ASSERT_OK_AND_ASSIGN(const auto expected, Trained(BuildPrograms(spec), 1));
    for (const auto& [mode, flags] : modes) {
      SCOPED_TRACE(absl::StrCat(job.name, ", ", mode));
      TrainingPrograms programs = BuildPrograms(spec);
      TranspileOptions options;
      options.mode = mode;
      options.mode_flags = flags;
      options.cluster.nranks = 3;
      options.verification = Verification::kAfterEachPass;
      ProgramPair pair{&programs.main, &programs.startup};
      WEFT_ASSERT_OK(Transpile(options, pair).status());
      WEFT_ASSERT_OK_AND_ASSIGN(const auto found, Trained(programs, 3));
      for (const auto& [name, tensor] : expected) {
        for (int64_t i = 0; i < tensor.size(); ++i) {
          const float value = tensor.data<float>()[i];
          ASSERT_NEAR(found.at(name).data<float>()[i], value, 1e-5 * (1 + std::abs(value)))
              << name << "[" << i << "]";
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft::testing
