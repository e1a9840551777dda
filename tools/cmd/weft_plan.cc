// weft plan: which gradients travel together, and how much of that is exposed.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/annotate.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "ops/analysis/devices/op_times.h"
#include "tools/cmd/program_texts.h"
#include "tools/cmd/weft_commands.h"
#include "tools/files/bucket_file.h"
#include "tools/files/param_attrs_file.h"
#include "tools/files/step_times_file.h"
#include "tools/inspect/program_plan.h"
#include "transpiler/passes/support/properties.h"
#include "transpiler/pipeline/cluster.h"
#include "transpiler/pipeline/param_attrs.h"

namespace weft {
namespace {

constexpr char kCommand[] = "weft plan";

absl::StatusOr<CollectiveTime> CollectiveTimeOf(const PlanFlags& options) {
  if (options.comm_table.empty()) return CollectiveTime();
  return ReadAs(options.comm_table, ParseCollectiveTable);
}

absl::StatusOr<std::vector<double>> OpTimesOf(const PlanFlags& options, const Program& program) {
  if (options.profile.empty()) return EstimateOpTimes(program, {options.batch});
  return ReadAs(options.profile,
                [&](absl::string_view text) { return ParseProfile(text, program); });
}

absl::StatusOr<ParamAttrsByName> ParamAttrsOf(const PlanFlags& options, const Program& program) {
  if (options.param_attrs.empty()) return ParamAttrsByName();
  WEFT_ASSIGN_OR_RETURN(ParamAttrsByName params, ReadAs(options.param_attrs, ParseParamAttrs));
  ClusterSpec spec;
  if (options.nranks > 0) spec.nranks = options.nranks;
  WEFT_ASSIGN_OR_RETURN(const Cluster cluster, Cluster::Create(spec, /*min_trainers=*/1));
  WEFT_RETURN_IF_ERROR(Annotate(options.param_attrs, ResolveGroups(cluster, &params)));
  WEFT_RETURN_IF_ERROR(Annotate(options.param_attrs, CheckParamAttrs(params, program)));
  return params;
}

std::string TextOf(const PlanFlags& options, const ProgramPlan& plan) {
  std::string text;
  size_t gradients = 0;
  int64_t bytes = 0;
  for (const PlannedBucket& bucket : plan.buckets) {
    gradients += bucket.gradients.size();
    bytes += bucket.bytes;
  }
  absl::StrAppendFormat(&text, "%s: %zu gradients, %lld bytes, in %zu bucket%s by policy %s\n",
                        options.file.c_str(), gradients, static_cast<long long>(bytes),
                        plan.buckets.size(), plan.buckets.size() == 1 ? "" : "s",
                        options.buckets.c_str());
  absl::StrAppendFormat(&text, "%6s %4s %9s %12s %9s %9s %9s  %s\n", "bucket", "ring", "gradients",
                        "bytes", "ready ms", "starts", "ends", "ended by");
  for (size_t b = 0; b < plan.buckets.size(); ++b) {
    const PlannedBucket& bucket = plan.buckets[b];
    const std::string& why = bucket.why_alone.empty() ? bucket.why_ended : bucket.why_alone;
    absl::StrAppendFormat(&text, "%6zu %4d %9zu %12lld %9.3f %9.3f %9.3f  %s\n", b, bucket.ring,
                          bucket.gradients.size(), static_cast<long long>(bucket.bytes),
                          bucket.ready * 1e3, bucket.run.begin * 1e3, bucket.run.end * 1e3,
                          why.c_str());
  }
  absl::StrAppendFormat(
      &text, "backward ends at %.3f ms (%s); collectives take %s\n", plan.backward_end * 1e3,
      options.profile.empty() ? absl::StrCat("estimated for a batch of ", options.batch).c_str()
                              : "measured",
      options.comm_table.empty() ? "20 us and 4 GB/s (assumed)" : "as in the table");
  absl::StrAppendFormat(
      &text,
      "exposed communication: %.3f ms; by policy optimal: %.3f ms; by any: %.3f ms or more "
      "(gap of this policy: %.3f ms)\n",
      plan.exposed * 1e3, plan.least_exposed * 1e3, plan.lower_bound * 1e3,
      (plan.exposed - plan.lower_bound) * 1e3);
  return text;
}

// The plan of a program whose gradients are reduced already would promise a second reduction.
absl::Status CheckIsOriginal(Program* program) {
  WEFT_ASSIGN_OR_RETURN(const Properties properties, DetectProperties({program, nullptr}));
  if (properties.empty()) return absl::OkStatus();
  const auto& [property, evidence] = *properties.begin();
  return absl::FailedPreconditionError(
      absl::StrCat("expected a program before it is rewritten, found ", property, ": ", evidence,
                   "; plan the original"));
}

absl::Status PlanOfGradients(const PlanFlags& options) {
  WEFT_ASSIGN_OR_RETURN(const CollectiveTime time, CollectiveTimeOf(options));
  WEFT_ASSIGN_OR_RETURN(const BucketFile file, ReadAs(options.gradients, ParseBucketFile));
  const absl::StatusOr<std::string> text = PlanBucketFile(file, time, options.nrings);
  WEFT_RETURN_IF_ERROR(Annotate(options.gradients, text.status()));
  std::fputs(text->c_str(), stdout);
  return absl::OkStatus();
}

absl::Status PlanOfProgram(const PlanFlags& flags) {
  WEFT_RETURN_IF_ERROR(CheckOutputs({flags.file, flags.profile, flags.comm_table}, {flags.svg}));
  WEFT_RETURN_IF_ERROR(BucketPolicy::Parse(flags.buckets).status());
  WEFT_ASSIGN_OR_RETURN(Program program, ReadProgramOrExplain(flags.file));
  std::vector<Said> said;
  WEFT_ASSIGN_OR_RETURN(const std::string text, PlanText(flags, std::move(program), &said));
  for (const Said& line : said) Print(kCommand, line);
  std::fputs(text.c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace

void AddPlanFlags(CLI::App* app, PlanFlags* flags) {
  AddOption(*app, "file", "FILE", flags->file, "The program, before it is rewritten");
  AddOption(*app, "--gradients", "FILE.json", flags->gradients,
            "Gradients and a policy instead of a program; prints JSON");
  AddOption(*app, "--buckets", "POLICY", flags->buckets, "As for transpile; docs/modes.md")
      ->capture_default_str();
  AddInteger(*app, "--nrings", flags->nrings, 1, 1024, "Rings, which buckets take in turn")
      ->capture_default_str();
  AddOption(*app, "--op_times,--profile", "FILE.json", flags->profile,
            "Times of ops, from weft run --profile; default: estimated");
  AddOption(
      *app, "--comm_table", "FILE.json", flags->comm_table,
      "Times of collectives, from weft comm_bench, or {\"latency_s\": .., \"bytes_per_s\": ..}");
  AddOption(*app, "--param_attrs", "FILE.json", flags->param_attrs, "As for transpile");
  AddInteger(*app, "--nranks", flags->nranks, 1, INT32_MAX,
             "Number of ranks, with --param_attrs; default: any number");
  AddInteger(*app, "--batch", flags->batch, 1, INT32_MAX,
             "Rows of a rank's batch, for estimated times")
      ->capture_default_str();
  AddOption(*app, "--why", "A,B", flags->why, "Why two gradients do not share a bucket");
  AddOption(*app, "--svg", "FILE.svg", flags->svg, "Draw the timeline");
  app->callback([flags, app] {
    Require(flags->file.empty() != flags->gradients.empty(), "file",
            "expected a program or --gradients, and not both");
    for (const char* flag :
         {"--buckets", "--op_times", "--why", "--svg", "--batch", "--param_attrs", "--nranks"}) {
      Require(flags->gradients.empty() || app->count(flag) == 0, flag,
              "is for a program, not for --gradients");
    }
    Require(flags->nranks == 0 || !flags->param_attrs.empty(), "--nranks",
            "is for groups of ranks: expected --param_attrs");
    const std::vector<std::string> names = absl::StrSplit(flags->why, ',');
    Require(flags->why.empty() || names.size() == 2, "--why", "expected two names: A,B");
  });
}

absl::StatusOr<std::string> PlanText(const PlanFlags& flags, Program program,
                                     std::vector<Said>* said) {
  WEFT_ASSIGN_OR_RETURN(const BucketPolicy policy, BucketPolicy::Parse(flags.buckets));
  WEFT_RETURN_IF_ERROR(Annotate(flags.file, CheckIsOriginal(&program)));
  StepTimes times;
  WEFT_ASSIGN_OR_RETURN(times.collective, CollectiveTimeOf(flags));
  WEFT_ASSIGN_OR_RETURN(times.op_seconds, OpTimesOf(flags, program));
  WEFT_ASSIGN_OR_RETURN(const ParamAttrsByName params, ParamAttrsOf(flags, program));
  const absl::StatusOr<ProgramPlan> plan =
      PlanProgram(program, policy, times, flags.nrings, params);
  WEFT_RETURN_IF_ERROR(Annotate(flags.file, plan.status()));
  for (const std::string& warning : plan->warnings) {
    said->push_back({Severity::kWarning, warning, /*names_command=*/true});
  }
  std::string text = TextOf(flags, *plan);
  if (!flags.why.empty()) {
    const std::vector<std::string> names = absl::StrSplit(flags.why, ',');
    WEFT_ASSIGN_OR_RETURN(const std::string why, WhyApart(*plan, names[0], names[1]));
    absl::StrAppend(&text, names[0], ", ", names[1], ": ", why, "\n");
  }
  if (flags.svg.empty()) return text;
  WEFT_RETURN_IF_ERROR(Annotate(flags.svg, WriteFile(flags.svg, PlanSvg(*plan))));
  return text;
}

Subcommand AddPlan(CLI::App* weft) {
  CLI::App* app = weft->add_subcommand(
      "plan", "Prints which gradients travel together, and the communication that is exposed.");
  auto options = std::make_shared<PlanFlags>();
  AddPlanFlags(app, options.get());
  app->footer(
      "Communication is exposed while neither forward nor backward computes. A bucket is sent "
      "when\n"
      "its last gradient is complete and its ring has sent the previous bucket; rings do not slow\n"
      "each other down. Several ranks on one machine share its cores: measure the times of ops\n"
      "and of collectives with as many ranks.\n\n"
      "Example:\n  weft plan main.pb --buckets optimal --svg plan.svg");
  return {app, [options] {
            return FinishCommand(kCommand, options->gradients.empty() ? PlanOfProgram(*options)
                                                                      : PlanOfGradients(*options));
          }};
}

}  // namespace weft
