// What do buckets gain on a network with latency? Trains a program of many gradients, 4 KiB to 4
// MiB (log-uniform), on ranks of one process whose collectives take 1 ms + bytes / 4 GB/s, with
// several bucket policies in turn, A B C A B C ..., and prints the time of a step and the
// communication that is exposed, measured and predicted.
//
//   bazel run -c opt --config=nocuda //tests/benchmarks:bucket_benchmark -- [--ranks 2] [--steps
//   20]
//       [--rounds 5] [--gradients 200]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "executor/communicators/communicator_decorators.h"
#include "executor/communicators/local_communicator.h"
#include "executor/run/runner.h"
#include "ops/kernel.h"
#include "proto/op_role.h"
#include "proto/testing/program_builder.h"
#include "tests/benchmarks/model_batches.h"
#include "tools/files/step_times_file.h"
#include "tools/inspect/op_profile.h"
#include "tools/inspect/program_plan.h"
#include "transpiler/transpile.h"

namespace weft {
namespace {

using testing::ProgramBuilder;

constexpr double kLatency = 1e-3, kBandwidth = 4e9;
constexpr int kWidth = 256, kRows = 16;
constexpr int kWarmUp = 3;  // steps that do not count

struct Flags {
  int ranks = 2;
  int64_t steps = 20;
  int rounds = 5;
  int gradients = 200;
};

struct Programs {
  Program main, startup;
};

std::string Name(const char* what, int i) { return absl::StrCat(what, i); }

// y_i = x w_i for each i; the loss is the sum of their means.
Programs BuildPrograms(int gradients) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> log_bytes(std::log(4096.0), std::log(4096.0 * 1024));
  ProgramBuilder main, startup;
  main.Var("x", {-1, kWidth});
  main.last_var().set_need_check_feed(true);
  main.Var("loss", {}).Var("loss@GRAD", {}).Var("lr", {1});
  main.last_var().set_persistable(true);
  startup.Var("lr", {1});
  startup.last_var().set_persistable(true);
  startup.Op("fill_constant", {}, {{"Out", {"lr"}}}).LongsAttr("shape", {1});
  startup.IntAttr("dtype", pb::VarType::FP32).FloatAttr("value", 1e-3f);
  std::vector<std::string> means;
  for (int i = 0; i < gradients; ++i) {
    const std::string w = Name("w", i), y = Name("y", i), mean = Name("mean", i);
    const auto columns = static_cast<int64_t>(std::exp(log_bytes(random)) / (4 * kWidth));
    startup.Param(w, {kWidth, columns});
    startup.Op("fill_constant", {}, {{"Out", {w}}}).LongsAttr("shape", {kWidth, columns});
    startup.IntAttr("dtype", pb::VarType::FP32).FloatAttr("value", 0.01f);
    main.Param(w, {kWidth, columns}).Var(w + "@GRAD", {kWidth, columns});
    main.Var(y, {-1, columns}).Var(y + "@GRAD", {-1, columns});
    main.Var(mean, {}).Var(mean + "@GRAD", {});
    main.Op("mul", {{"X", {"x"}}, {"Y", {w}}}, {{"Out", {y}}});
    main.IntAttr("x_num_col_dims", 1).IntAttr("y_num_col_dims", 1);
    main.Op("reduce_mean", {{"X", {y}}}, {{"Out", {mean}}}).BoolAttr("reduce_all", true);
    means.push_back(mean);
  }
  main.Op("sum", {{"X", means}}, {{"Out", {"loss"}}}, kRoleForward | kRoleLoss);
  main.Op("fill_constant", {}, {{"Out", {"loss@GRAD"}}}, kRoleBackward | kRoleLoss);
  main.LongsAttr("shape", {}).IntAttr("dtype", pb::VarType::FP32).FloatAttr("value", 1);
  for (int i = gradients - 1; i >= 0; --i) {
    const std::string w = Name("w", i), y = Name("y", i), mean = Name("mean", i);
    main.Op("scale", {{"X", {"loss@GRAD"}}}, {{"Out", {mean + "@GRAD"}}}, kRoleBackward);
    main.FloatAttr("scale", 1);
    main.Op("reduce_mean_grad", {{"X", {y}}, {"Out@GRAD", {mean + "@GRAD"}}},
            {{"X@GRAD", {y + "@GRAD"}}}, kRoleBackward);
    main.BoolAttr("reduce_all", true);
    main.Op("mul_grad", {{"X", {"x"}}, {"Y", {w}}, {"Out@GRAD", {y + "@GRAD"}}},
            {{"Y@GRAD", {w + "@GRAD"}}}, kRoleBackward);
    main.IntAttr("x_num_col_dims", 1).IntAttr("y_num_col_dims", 1).Pairs({w, w + "@GRAD"});
  }
  for (int i = 0; i < gradients; ++i) {
    const std::string w = Name("w", i);
    main.Op("sgd", {{"Param", {w}}, {"Grad", {w + "@GRAD"}}, {"LearningRate", {"lr"}}},
            {{"ParamOut", {w}}}, kRoleOptimize);
    main.Pairs({w, w + "@GRAD"});
  }
  return {main.Build(), startup.Build()};
}

FeedSource Ones(int ranks) {
  FeedSource source;
  source.variables = {"x"};
  source.read = [ranks](int64_t) -> absl::StatusOr<std::vector<Tensor>> {
    Tensor x;
    x.Resize(DType::kFloat32, {int64_t{kRows} * ranks, kWidth});
    std::fill_n(x.data<float>(), x.size(), 1.0f);
    std::vector<Tensor> batch;
    batch.push_back(std::move(x));
    return batch;
  };
  return source;
}

struct Timing {
  std::vector<double> ms;       // of steps of rank 0
  std::vector<double> exposed;  // of the same steps, in ms
};

// Of communication that no op other than an update covers, in ms.
double ExposedMs(const StepTrace& trace) {
  const auto seconds = [](std::chrono::steady_clock::time_point time) {
    return std::chrono::duration<double>(time.time_since_epoch()).count();
  };
  std::vector<Interval> communication, computation;
  for (const std::vector<OpSpan>& stream : trace.spans) {
    for (const OpSpan& span : stream) {
      const Plan::PlanOp& op = trace.plan->ops[span.op];
      if (op.type == "sgd") continue;
      (op.ring_work() != nullptr ? communication : computation)
          .push_back({seconds(span.begin), seconds(span.end)});
    }
  }
  // Between two ops, the compute stream is about to compute.
  if (!computation.empty()) computation = {{computation.front().begin, computation.back().end}};
  return ExposedSeconds(communication, computation) * 1e3;
}

Timing Train(const Programs& programs, const Flags& flags, OpProfile* profile) {
  Timing timing;
  RunInputs inputs;
  inputs.main = &programs.main;
  inputs.startup = &programs.startup;
  inputs.feeds = Ones(flags.ranks);
  inputs.on_result = [&](const StepResult& result) {
    if (result.rank == 0 && result.step >= kWarmUp) timing.ms.push_back(result.ms);
    return absl::OkStatus();
  };
  inputs.on_trace = [&](const StepTrace& trace) {
    if (trace.rank != 0 || trace.step < kWarmUp) return absl::OkStatus();
    timing.exposed.push_back(ExposedMs(trace));
    if (profile != nullptr) profile->Add(trace);
    return absl::OkStatus();
  };
  RunOptions options;
  options.kernels = &CpuKernels();
  options.nranks = flags.ranks;
  options.steps = kWarmUp + flags.steps;
  options.new_group = [](GroupOptions group) {
    return NewModelledGroup(NewLocalGroup(std::move(group)), kLatency, kBandwidth);
  };
  ValueOrDie(RunProgram(inputs, options));
  return timing;
}

Programs Rewritten(const Programs& programs, const std::string& policy, const StepTimes& times,
                   int ranks) {
  Programs result = programs;
  TranspileOptions options;
  options.mode = "grad_allreduce";
  options.mode_flags["buckets"] = policy;
  options.cluster.nranks = ranks;
  options.times = times;
  ProgramPair pair{&result.main, &result.startup};
  ValueOrDie(Transpile(options, pair));
  return result;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Run(const Flags& flags) {
  const Programs programs = BuildPrograms(flags.gradients);
  StepTimes times;
  times.collective = ValueOrDie(CollectiveTime::AlphaBeta(kLatency, kBandwidth));
  OpProfile profile;
  Flags alone = flags;
  alone.ranks = 1;
  Train(programs, alone, &profile);
  times.op_seconds = ValueOrDie(ParseProfile(profile.Json(), programs.main));

  const std::vector<std::string> policies = {"none", "bytes{first_bytes=26214400}", "bytes",
                                             "optimal"};
  std::vector<Timing> timings(policies.size());
  for (int round = 0; round < flags.rounds; ++round) {
    for (size_t p = 0; p < policies.size(); ++p) {
      const Timing one =
          Train(Rewritten(programs, policies[p], times, flags.ranks), flags, nullptr);
      timings[p].ms.push_back(Median(one.ms));
      timings[p].exposed.push_back(Median(one.exposed));
    }
  }
  std::printf("%-30s %8s %9s %11s %12s %8s\n", "policy", "buckets", "ms a step", "exposed ms",
              "predicted ms", "ratio");
  for (size_t p = 0; p < policies.size(); ++p) {
    const ProgramPlan plan = ValueOrDie(
        PlanProgram(programs.main, ValueOrDie(BucketPolicy::Parse(policies[p])), times, 1));
    std::printf("%-30s %8zu %9.1f %11.1f %12.1f %8.2f\n", policies[p].c_str(), plan.buckets.size(),
                Median(timings[p].ms), Median(timings[p].exposed), plan.exposed * 1e3,
                Median(timings[p].ms) / Median(timings[0].ms));
  }
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  weft::Flags flags;
  CLI::App app("Times steps with several bucket policies on a network that is modelled.");
  app.add_option("--ranks", flags.ranks, "Ranks, in one process")->check(CLI::Range(1, 64));
  app.add_option("--steps", flags.steps, "Steps of a round")->check(CLI::PositiveNumber);
  app.add_option("--rounds", flags.rounds, "Rounds; the median counts")->check(CLI::PositiveNumber);
  app.add_option("--gradients", flags.gradients, "Gradients")->check(CLI::Range(1, 10000));
  CLI11_PARSE(app, argc, argv);
  weft::Run(flags);
}
