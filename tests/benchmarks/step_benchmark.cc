// How long is a step? Trains models of tests/data, and those of
// tests/benchmarks/large_models.py if --models names them, on one rank, or, rewritten by
// grad_allreduce, on several ranks of one process, and prints the median of the steps:
//
//   bazel run -c opt --config=nocuda //tests/benchmarks:step_benchmark -- [--models a,b]
//   [--batch 64] [--ranks 2] [--threads 2] [--steps 40] [--ops]
//   [--beside 'COMMAND {model} {batch} {ranks}']
//
// --ops prints how the time of a step divides among op types. --beside times a command that prints
// one line of JSON with "median_ms", in turn with Weft, A B A B ..., so that a machine whose speed
// drifts does not decide; it prints both medians and their ratio.
//
// Started by a launcher, the processes train together, each with --ranks; with --json the first
// prints such a line. So threads beside processes are
//
//   step_benchmark --ranks 2 --beside 'weft launch -n 2 -- step_benchmark --models {model} --batch
//   {batch} --rounds 1 --json | sed "s/^.0. //"'
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/testing/archive.h"
#include "executor/run/runner.h"
#include "nlohmann/json.hpp"
#include "ops/kernel.h"
#include "proto/formats/program_file.h"
#include "tests/benchmarks/model_batches.h"
#include "tools/job/job_session.h"
#include "transpiler/transpile.h"

namespace weft {
namespace {

struct Case {
  const char* model;
  int64_t batch;  // of a rank
};
// The others are in tests/data/large_models.tar.xz, with random feeds.
constexpr std::array<Case, 12> kCases = {{{"mlp_adam", 64},
                                          {"mlp_adam", 512},
                                          {"lenet_momentum", 64},
                                          {"resnet18_cifar", 16},
                                          {"bert_tiny", 16},
                                          {"wide_deep", 256},
                                          {"resnet50", 8},
                                          {"resnet50_bf16", 8},
                                          {"bert_base", 4},
                                          {"bert_base_bf16", 4},
                                          {"gpt2_small", 1},
                                          {"gpt2_small_bf16", 1}}};
constexpr const char* kLargeModels = "tests/data/large_models.tar.xz";
constexpr int kWarmUp = 5;  // steps that do not count

struct Flags {
  std::vector<std::string> models;
  int64_t batch = 0;  // 0: that of the case
  int ranks = 1;
  int threads = 1;  // of a rank
  int64_t steps = 40;
  int rounds = 5;
  bool ops = false;
  bool json = false;
  std::string beside;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Timing {
  std::vector<double> ms;                                 // of steps of rank 0
  std::map<std::string, std::pair<double, int64_t>> ops;  // by type: ms in all, and how many ran
};

bool IsLarge(const Case& one) {
  const absl::string_view model = one.model;
  return absl::StartsWith(model, "resnet50") || absl::StartsWith(model, "bert_base") ||
         absl::StartsWith(model, "gpt2");
}

Program LargeModel(const Case& one, const char* program) {
  static const auto* const files = new auto(ValueOrDie(testing::ReadTarXz(kLargeModels)));
  return ValueOrDie(Program::Parse(files->at(absl::StrCat(one.model, "/", program, ".pb"))));
}

Timing RunCase(const Case& one, const Flags& flags, const JobSession& session) {
  const int nranks = flags.ranks * session.num_processes();
  const std::string folder = absl::StrCat("tests/data/", one.model);
  const bool is_large = IsLarge(one);
  Program main = is_large ? LargeModel(one, "main") : ValueOrDie(ReadProgram(folder + "/main.pb"));
  Program startup =
      is_large ? LargeModel(one, "startup") : ValueOrDie(ReadProgram(folder + "/startup.pb"));
  if (nranks > 1) {
    TranspileOptions options;
    options.mode = "grad_allreduce";
    options.cluster.nranks = nranks;
    ProgramPair programs{&main, &startup};
    ValueOrDie(Transpile(options, programs));
  }
  Timing timing;
  RunInputs inputs;
  inputs.main = &main;
  inputs.startup = &startup;
  inputs.feeds =
      is_large ? RandomBatch(main, one.batch * nranks) : SameBatch(folder, one.batch * nranks);
  inputs.on_result = [&](const StepResult& result) {
    if (result.rank == 0 && result.step >= kWarmUp) timing.ms.push_back(result.ms);
    return absl::OkStatus();
  };
  if (flags.ops) {
    inputs.on_trace = [&](const StepTrace& trace) {
      if (trace.rank != 0 || trace.step < kWarmUp) return absl::OkStatus();
      for (const std::vector<OpSpan>& stream : trace.spans) {
        for (const OpSpan& span : stream) {
          span.VisitTimes([&](int op, std::chrono::duration<double, std::milli> time) {
            auto& [ms, runs] = timing.ops[trace.plan->ops[op].type];
            ms += time.count();
            ++runs;
          });
        }
      }
      return absl::OkStatus();
    };
  }
  RunOptions options;
  options.kernels = &CpuKernels();
  options.nranks = nranks;
  options.link = session.link();
  options.new_group = session.new_group();
  options.threads = flags.threads;
  options.steps = kWarmUp + flags.steps;
  ValueOrDie(RunProgram(inputs, options));
  return timing;
}

void PrintOps(const Timing& timing, int64_t steps) {
  std::vector<std::pair<double, std::string>> by_time;
  for (const auto& [type, of_type] : timing.ops) by_time.emplace_back(of_type.first, type);
  std::sort(by_time.rbegin(), by_time.rend());
  for (const auto& [ms, type] : by_time) {
    const int64_t runs = timing.ops.at(type).second;
    std::printf("  %9.1f us  %5.1f x  %s\n", ms * 1e3 / steps, static_cast<double>(runs) / steps,
                type.c_str());
  }
}

// What the command prints as median_ms.
double RunBeside(const Case& one, const Flags& flags) {
  const std::string command =
      absl::StrReplaceAll(flags.beside, {{"{model}", one.model},
                                         {"{batch}", absl::StrCat(one.batch)},
                                         {"{ranks}", absl::StrCat(flags.ranks)}});
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) Die(absl::StrCat("cannot start ", command));
  std::string output;
  std::array<char, 4096> piece;
  for (size_t n; (n = std::fread(piece.data(), 1, piece.size(), pipe)) > 0;) {
    output.append(piece.data(), n);
  }
  if (pclose(pipe) != 0) Die(absl::StrCat(command, " failed"));
  const nlohmann::json line = nlohmann::json::parse(output, nullptr, /*allow_exceptions=*/false);
  if (!line.is_object() || !line.contains("median_ms") || !line["median_ms"].is_number()) {
    Die(absl::StrCat(command, " printed no median_ms: ", output));
  }
  return line["median_ms"];
}

void Measure(const Case& one, const Flags& flags, const JobSession& session) {
  Timing timing;
  std::vector<double> medians, others;
  for (int round = 0; round < flags.rounds; ++round) {
    timing = RunCase(one, flags, session);
    if (!session.is_first()) continue;
    medians.push_back(Median(timing.ms));
    if (!flags.beside.empty()) others.push_back(RunBeside(one, flags));
  }
  if (!session.is_first()) return;
  if (flags.json) {
    std::printf("{\"median_ms\": %.4f}\n", Median(medians));
    return;
  }
  std::printf("%-16s %5d  %d rank%s  %9.3f ms", one.model, static_cast<int>(one.batch), flags.ranks,
              flags.ranks == 1 ? " " : "s", Median(medians));
  if (!others.empty()) {
    std::printf("  beside %9.3f ms  ratio %.3f", Median(others), Median(medians) / Median(others));
  }
  std::printf("\n");
  if (flags.ops) PrintOps(timing, flags.steps);
  std::fflush(stdout);
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Times training steps.");
  app.add_option("--models", flags.models, "Only these models")->delimiter(',');
  app.add_option("--batch", flags.batch, "The rows of a rank's batch");
  app.add_option("--ranks", flags.ranks, "Ranks of a process")->check(CLI::Range(1, 64));
  app.add_option("--threads", flags.threads, "Threads of a rank")->check(CLI::Range(1, 64));
  app.add_option("--steps", flags.steps, "Steps of a round")->check(CLI::PositiveNumber);
  app.add_option("--rounds", flags.rounds, "Rounds; the median counts")->check(CLI::PositiveNumber);
  app.add_flag("--ops", flags.ops, "Print the time by op type");
  app.add_flag("--json", flags.json, "Print {\"median_ms\": ...}");
  app.add_option("--beside", flags.beside, "A command to time in turn with Weft");
  CLI11_PARSE(app, argc, argv);
  JobSessionOptions job;
  job.local_ranks = flags.ranks;
  const auto session = ValueOrDie(JobSession::Join(job, std::getenv));
  for (Case one : kCases) {
    const auto& models = flags.models;
    const bool is_named = std::find(models.begin(), models.end(), one.model) != models.end();
    if (models.empty() ? IsLarge(one) : !is_named) continue;
    if (flags.batch > 0) one.batch = flags.batch;
    Measure(one, flags, *session);
    if (flags.json) break;  // one line
  }
  const absl::Status status = session->Finish(absl::OkStatus());
  if (!status.ok()) Die(std::string(status.message()));
  return 0;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) { return weft::Main(argc, argv); }
