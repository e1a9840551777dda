#include "tests/processes/elastic_job.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "executor/jobs/job_token.h"
#include "gtest/gtest.h"
#include "tools/job/process.h"

namespace weft::testing {
namespace {

// Standard output without the numbers of processes, the times, and what a step takes: the last
// generation may have run none.
std::string StepsOf(const std::string& out) {
  std::vector<std::string> lines;
  for (absl::string_view line : absl::StrSplit(out, '\n', absl::SkipEmpty())) {
    if (absl::StartsWith(line, "[")) line.remove_prefix(std::min(line.size(), line.find(' ') + 1));
    if (absl::StartsWith(line, "values of a rank: ")) line = line.substr(0, line.find(": "));
    lines.emplace_back(line.substr(0, line.find(" ranks in ")));
  }
  return absl::StrJoin(lines, "\n");
}

// The seconds of the first line "[1] fault: WHAT at SECONDS"; the last, if `last`.
absl::optional<double> TimeOf(const std::string& err, absl::string_view what, bool last) {
  absl::optional<double> found;
  for (absl::string_view line : absl::StrSplit(err, '\n')) {
    const size_t begin = line.find(absl::StrCat("fault: ", what, " at "));
    double seconds = 0;
    if (begin == absl::string_view::npos ||
        !absl::SimpleAtod(line.substr(line.rfind(' ') + 1), &seconds)) {
      continue;
    }
    if (!found.has_value()) found = seconds;
    found = last ? std::max(*found, seconds) : std::min(*found, seconds);
  }
  return found;
}

}  // namespace

const std::vector<ElasticProgram::Mode>& ElasticProgram::Modes() {
  static const auto* const modes = new std::vector<Mode>{
      {"allreduce", "fit_a_line", {"--mode", "grad_allreduce"}},
      {"local_sgd", "fit_a_line", {"--mode", "local_sgd", "--k_steps", "3"}},
      {"topk", "fit_a_line", {"--mode", "singa_sparse_topk", "--spars", "0.1"}},
      {"partial", "fit_a_line", {"--mode", "singa_partial"}},
      {"gathered", "fit_a_line", {"--mode", "multi_thread", "--trans_mode", "all_gather"}},
      {"merge", "mlp_gradient_merge", {"--mode", "grad_allreduce"}},
      {"dropout", "mlp_dropout", {"--mode", "grad_allreduce"}},
      {"adam", "mlp_adam", {"--mode", "grad_allreduce"}},
      {"shares", "mlp_adam", {"--mode", "zero", "--stage", "3"}},
      {"merged_shares", "mlp_gradient_merge", {"--mode", "zero", "--stage", "2"}},
      {"shares_gathered_once", "mlp_adam", {"--mode", "zero", "--stage", "1"}}};
  return *modes;
}

ElasticProgram::ElasticProgram(const Mode& mode)
    : mode_(mode),
      main_(TestPath(mode.name + ".main.pb")),
      startup_(TestPath(mode.name + ".startup.pb")),
      save_(TestPath(mode.name + ".npz")),
      checkpoint_(TestPath(mode.name + ".ckpt")),
      metrics_(TestPath(mode.name + ".jsonl")) {
  const std::string data = absl::StrCat("tests/data/", mode.data);
  const ProcessResult result =
      RunProcess(Args{"tools/transpile"} + mode.transpile_flags +
                 Args{"--nranks", "4", "--startup_in", data + "/startup.pb", "--startup_out",
                      startup_, data + "/main.pb", main_});
  EXPECT_EQ(result.status, 0) << result.err;
}

Args ElasticProgram::RunArgs(const Args& flags) const {
  return Args{"run",          main_,
              "--startup",    startup_,
              "--feeds",      absl::StrCat("tests/data/", mode_.data, "/feeds.npz"),
              "--steps",      absl::StrCat(kSteps),
              "--save_every", absl::StrCat(kSaveEvery),
              "--checkpoint", checkpoint_,
              "--metrics",    metrics_,
              "--save",       save_} +
         flags;
}

ElasticProgram::Outputs ElasticProgram::Read(const std::string& out) const {
  const std::string best = checkpoint_ + ".best";
  return {Contents(save_), Contents(checkpoint_),
          access(best.c_str(), F_OK) == 0 ? Contents(best) : "", MetricsWithoutTimes(metrics_),
          StepsOf(out)};
}

const ElasticProgram::Outputs& ElasticProgram::Expected(int ranks, const Args& flags) {
  // The backend is that of processes.
  Args own;
  for (size_t i = 0; i < flags.size(); ++i) {
    if (flags[i] == "--backend") {
      ++i;
    } else {
      own.push_back(flags[i]);
    }
  }
  const std::string key = absl::StrCat(ranks, " ", absl::StrJoin(own, " "));
  for (const auto& [known, outputs] : expected_) {
    if (known == key) return outputs;
  }
  const ProcessResult result =
      RunProcess(Args{"tools/weft"} + RunArgs(own + Args{"--ranks", absl::StrCat(ranks)}));
  EXPECT_EQ(result.status, 0) << result.err;
  return expected_.emplace_back(key, Read(result.out)).second;
}

bool ElasticProgram::ResumesWell(int ranks) {
  const ProcessResult result =
      RunProcess({"tools/weft", "run", main_, "--startup", startup_, "--feeds",
                  absl::StrCat("tests/data/", mode_.data, "/feeds.npz"), "--resume", checkpoint_,
                  "--save", save_});
  EXPECT_EQ(result.status, 0) << result.err;
  const std::string found = Contents(save_);
  return found == Expected(ranks, {}).save;
}

ElasticOutcome ElasticProgram::Run(const std::string& fault, const ElasticOptions& options) {
  for (const std::string& file : {save_, checkpoint_, checkpoint_ + ".best", metrics_})
    unlink(file.c_str());
  const Args launch = options.hosts == 1 ? Args{"tools/weft", "launch", "--elastic"}
                                         : Args{"/usr/bin/env",
                                                "WEFT_JOB_TOKEN=" + NewJobToken(),
                                                "unshare",
                                                "--net",
                                                "--mount",
                                                "tests/processes/hosts.sh",
                                                absl::StrCat(options.hosts)};
  const ProcessResult result =
      RunProcess(launch + Args{"-n", absl::StrCat(options.processes / options.hosts)} +
                 options.launch_flags + Args{"--", "tests/processes/weft_with_faults", fault} +
                 RunArgs(options.run_flags + Args{"--ranks", absl::StrCat(options.ranks)}));
  ElasticOutcome outcome;
  outcome.status = result.status;
  outcome.out = result.out;
  outcome.err = result.err;
  const absl::optional<double> begin = TimeOf(result.err, "happens", false);
  outcome.has_happened = begin.has_value();
  if (begin.has_value()) {
    const auto noticed = TimeOf(result.err, "noticed", true);
    const auto goes_on = TimeOf(result.err, "goes on", false);
    if (noticed.has_value()) outcome.notice_s = *noticed - *begin;
    if (goes_on.has_value()) outcome.go_on_s = *goes_on - *begin;
  }
  for (int generation = 2;
       absl::StrContains(result.err, absl::StrCat("note: generation ", generation, " of the job"));
       ++generation) {
    outcome.generations = generation;
  }
  if (result.status != 0) return outcome;
  const Outputs found = Read(result.out);
  const Outputs expected = Expected(options.processes * options.ranks, options.run_flags);
  for (const auto& [what, one, other] : {std::make_tuple("--save", &expected.save, &found.save),
                                         {"--checkpoint", &expected.checkpoint, &found.checkpoint},
                                         {"--keep_best", &expected.best, &found.best},
                                         {"--metrics", &expected.metrics, &found.metrics},
                                         {"standard output", &expected.lines, &found.lines}}) {
    if (*one == *other) continue;
    absl::StrAppend(&outcome.difference, what, " differs; ");
    if (one->size() < 4000 && other->size() < 4000 && what[2] != 's' && what[2] != 'c' &&
        what[2] != 'k') {
      absl::StrAppend(&outcome.difference, "expected:\n", *one, "\nfound:\n", *other, "\n");
    }
  }
  return outcome;
}

}  // namespace weft::testing
