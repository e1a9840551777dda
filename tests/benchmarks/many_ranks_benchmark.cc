// What does a run with many ranks cost before its first step, and when it hangs? The other
// processes are a model: they send what this one would. Prints seconds for
//
//   plan      Plan::Build, for that many ranks
//   agree     one process compares the plans of all, one process a rank (AgreeOnPlan)
//   differ    the same, if the last process has another plan
//   start     process 0 compares the values with which ranks begin
//   hang      the message about ranks that do not arrive, all at other places
//
//   bazel run -c opt --config=nocuda //tests/benchmarks:many_ranks_benchmark -- [--ranks 10000]
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "executor/communicators/world.h"
#include "executor/jobs/late_ranks.h"
#include "executor/plan/plan.h"
#include "executor/run/plan_agreement.h"
#include "executor/run/start_values.h"
#include "ops/kernel.h"
#include "proto/op_role.h"
#include "proto/testing/program_builder.h"

namespace weft {
namespace {

using testing::ProgramBuilder;

constexpr int kParameters = 200;

// Process 0 of a job in which all others say what it says, but for the last one.
class ModelledLink : public JobLink {
 public:
  ModelledLink(int num_processes, std::function<std::string(const std::string&)> last)
      : num_processes_(num_processes), last_(std::move(last)) {}

  int process() const override { return 0; }
  int num_processes() const override { return num_processes_; }
  bool is_one_host() const override { return false; }
  absl::StatusOr<std::vector<std::string>> AllGather(std::string text) override {
    std::vector<std::string> texts(num_processes_, text);
    texts.back() = last_(text);
    return texts;
  }
  absl::StatusOr<std::vector<std::string>> Gather(std::string text) override {
    return AllGather(std::move(text));
  }
  void Send(int /*process*/, Topic /*topic*/, std::string /*message*/) override {}
  void Listen(Topic /*topic*/, Handler /*handler*/) override {}
  void Abort(int /*rank*/, const absl::Status& /*status*/) override {}
  void OnFailure(std::function<void(const absl::Status&)> /*handler*/) override {}
  absl::Status Finish() override { return absl::OkStatus(); }

 private:
  const int num_processes_;
  const std::function<std::string(const std::string&)> last_;
};

// One all-reduce for each parameter.
Program MakeProgram() {
  ProgramBuilder main;
  for (int i = 0; i < kParameters; ++i) {
    const std::string grad = absl::StrCat("w", i, "@GRAD");
    main.Param(absl::StrCat("w", i), {256, 256}).Var(grad, {256, 256});
    main.Op("fill_constant", {}, {{"Out", {grad}}}, kRoleBackward)
        .IntAttr("dtype", pb::VarType::FP32)
        .LongsAttr("shape", {256, 256});
    main.Op("c_allreduce_sum", {{"X", {grad}}}, {{"Out", {grad}}}, kRoleBackward);
  }
  return main.Build();
}

double Seconds(const std::function<void()>& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void Fail(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

void Measure(const Program& program, int nranks) {
  PlanOptions options;
  options.kernels = &CpuKernels();
  options.nranks = nranks;
  absl::StatusOr<Plan> plan = absl::UnknownError("");
  const double plan_s = Seconds([&] { plan = Plan::Build(program, options); });
  if (!plan.ok()) Fail(plan.status());
  RunFingerprint fingerprint, other;
  AddCalls(*plan, &fingerprint);
  other = fingerprint;
  other.calls.begin()->second.back().call = "broadcast";

  ModelledLink equal(nranks, [](const std::string& text) { return text; });
  const World world = WorldOf(nranks, &equal);
  const double agree_s = Seconds([&] {
    const absl::Status status = AgreeOnPlan(fingerprint, world, &equal).status();
    if (!status.ok()) Fail(status);
  });
  // The last process would send what it has: the same length, another content.
  ModelledLink differing(nranks, [](std::string text) {
    const size_t at = text.find("\"]]") - 1;  // in the hash of the last ring
    text[at] = text[at] == '0' ? '1' : '0';
    return text;
  });
  const double differ_s = Seconds([&] {
    if (AgreeOnPlan(fingerprint, world, &differing).ok())
      Fail(absl::InternalError("no difference"));
  });

  std::vector<StartValues::Variable> variables(kParameters, {"w", nullptr});
  const double start_s = Seconds([&] {
    StartValues values(World::OfThreads(nranks), nullptr, variables, nullptr);
    for (int rank = 0; rank < nranks; ++rank) {
      values.Add(rank, std::vector<uint64_t>(kParameters, 1));
    }
  });

  std::vector<LateRank> late;
  for (int rank = 1; rank < nranks; ++rank) {
    late.push_back({rank, absl::StrCat("last arrived at all-reduce #", rank, " of w (fp32[2])")});
  }
  size_t length = 0;
  const double hang_s =
      Seconds([&] { length = DescribeLateRanks("ring 0", late, {0}, 60).size(); });
  std::printf("%6d ranks  plan %.4f  agree %.4f  differ %.4f  start %.4f  hang %.4f (%zu bytes)\n",
              nranks, plan_s, agree_s, differ_s, start_s, hang_s, length);
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  CLI::App app("What a run with many ranks costs before its first step, and when it hangs.");
  std::vector<int> ranks = {10, 100, 1000, 10000};
  app.add_option("--ranks", ranks, "Numbers of ranks");
  CLI11_PARSE(app, argc, argv);
  const weft::Program program = weft::MakeProgram();
  for (const int nranks : ranks) weft::Measure(program, nranks);
  return 0;
}
