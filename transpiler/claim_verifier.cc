#include "transpiler/claim_verifier.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/analysis/core/communication.h"
#include "ops/schema/algebra.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/op_schema.h"
#include "proto/all_ops.h"
#include "proto/op_role.h"
#include "transpiler/passes/support/properties.h"
#include "transpiler/verifier/servers/server_programs.h"

namespace weft {
namespace {

bool IsReordered(const Finding& finding) { return finding.kind == FindingKind::kReordering; }

// What is found, of several programs what is found in any of them, once.
class Distinct {
 public:
  Distinct(const Findings& findings, size_t num_programs)
      : findings_(findings), is_of_several_(num_programs > 1) {
    std::set<std::pair<std::string, std::string>> known;
    for (const Finding& finding : findings.all()) {
      if (known.emplace(finding.rule, finding.message).second) all_.push_back(&finding);
    }
  }

  const std::vector<const Finding*>& all() const { return all_; }

  // Warns of the findings that `is_meant` accepts: by the first of each rule and the number of the
  // others.
  void WarnOfEachRule(Message::Topic topic, const std::function<bool(const Finding&)>& is_meant,
                      const PassContext& context) const {
    std::map<std::string, std::vector<const Finding*>> by_rule;
    for (const Finding* finding : all_) {
      if (is_meant(*finding)) by_rule[finding->rule].push_back(finding);
    }
    for (const auto& [rule, found] : by_rule) {
      int64_t more = static_cast<int64_t>(found.size()) - 1;
      // Of several programs, those that were not kept may be repetitions.
      const bool is_least = is_of_several_ && findings_.NumOmitted(rule) > 0;
      if (!is_least) more += findings_.NumOmitted(rule);
      const std::string others =
          more == 0 ? "" : absl::StrCat(" (and ", is_least ? "at least " : "", more, " more)");
      context.sink.Say(
          {Severity::kWarning, topic, rule, absl::StrCat(found.front()->message, others)});
    }
  }

 private:
  const Findings& findings_;
  const bool is_of_several_;
  std::vector<const Finding*> all_;
};

// What is wrong in the paddle dialect, which reproduces it.
void SayDefects(const Distinct& findings, const PassContext& context) {
  const auto is_defect = [](const Finding& finding) {
    return finding.severity != Severity::kNote && !IsDifference(finding.kind) &&
           !IsReordered(finding);
  };
  findings.WarnOfEachRule(Message::Topic::kPaddleDefect, is_defect, context);
}

// The differences from one device, and what Paddle's executor may reorder.
void SayDifferences(const Distinct& findings, const PassContext& context) {
  for (const Finding* finding : findings.all()) {
    if (!IsDifference(finding->kind)) continue;
    context.sink.Say({finding->severity, Message::Topic::kResult, finding->rule, finding->message});
  }
  findings.WarnOfEachRule(Message::Topic::kResult, IsReordered, context);
}

bool AreEqual(const Program* a, const Program* b) {
  if (a == nullptr || b == nullptr) return a == b;
  return a->origin() == b->origin() && a->Serialize() == b->Serialize();
}

// Ranks that run the program of rank 0 share it.
void AddRank(ConstProgramPair programs, const VerifyOptions& options, JobPrograms* job) {
  if (!job->made.empty()) {
    const ConstProgramPair& first = job->made.front();
    if (AreEqual(first.main, programs.main)) programs.main = first.main;
    if (AreEqual(first.startup, programs.startup)) programs.startup = first.startup;
  }
  job->made.push_back(programs);
  job->groups.insert(options.setting.groups.begin(), options.setting.groups.end());
}

bool AllRunOne(absl::Span<const ConstProgramPair> ranks) {
  return absl::c_all_of(ranks, [&](const ConstProgramPair& programs) {
    return programs.main == ranks[0].main && programs.startup == ranks[0].startup;
  });
}

absl::optional<Op> FindDivisionByRanks(const Program& main) {
  for (const Op& op : AllOps(main)) {
    const bool scales = AlgebraOf(op, FindOpSchema(op.type())) == Algebra::kScale;
    if (scales && IsBackward(op) && op.HasAttr(kNumRanksAttr)) return op;
  }
  return absl::nullopt;
}

class ClaimChecks {
 public:
  ClaimChecks(const Claims& claims, const PassContext& context, const Properties& properties,
              const ProgramPair& before, const ProgramPair& changed, JobPrograms* job)
      : claims_(claims),
        compared_(claims),
        context_(context),
        communicate_(claims.Communicate() || properties.count(kGradientsReduced) > 0 ||
                     properties.count(kParametersAveraged) > 0),
        revision_before_(RevisionOf(before)),
        job_(job) {
    if (claims.computation == Claims::Computation::kPreserved) CompareWith(before);
    if (changed.main != nullptr) CompareWith(changed);
  }

  absl::Status Check(Stage stage, const ProgramPair& programs) {
    if (stage == Stage::kComputationChanged) {
      CompareWith(programs);
      return absl::OkStatus();
    }
    if (context_.target.dialect == Dialect::kPaddle && stage == Stage::kBetweenPasses) {
      return absl::OkStatus();
    }
    ConstProgramPair original;
    if (original_.has_value()) original.main = &*original_;
    if (original_startup_.has_value()) original.startup = &*original_startup_;
    VerifyOptions options = ExpectationsOf(compared_, context_, original);
    // What workers and servers compute, they compute together.
    const bool is_part = options.server == nullptr && HasServerOps(*programs.main) &&
                         RevisionOf(programs) == revision_before_;
    if (is_part && stage == Stage::kAtEnd) {
      context_.sink.Note(
          "a program of workers or of servers alone: weft verify option:server verifies both");
    }
    if (stage == Stage::kBetweenPasses || !communicate_ || is_part) {
      options.layers = {Layer::kStructure, Layer::kTypes, Layer::kRaces};
    }
    if (stage == Stage::kBetweenPasses) {
      return ToStatus(Verify({{programs.main, programs.startup}}, options));
    }
    std::vector<ConstProgramPair> ranks = {{programs.main, programs.startup}};
    if (job_ != nullptr) {
      AddRank(ranks[0], options, job_);
      ranks = job_->made;
      options.setting.groups = job_->groups;
    }
    if (job_ == nullptr || ranks.size() == job_->num_ranks) {
      WEFT_RETURN_IF_ERROR(VerifyResults(ranks, options));
    }
    return CheckNothingIsUnclaimed(programs);
  }

 private:
  absl::Status VerifyResults(absl::Span<const ConstProgramPair> ranks,
                             const VerifyOptions& options) const {
    if (!AllRunOne(ranks)) return Report(Verify(ranks, options), ranks.size());
    WEFT_RETURN_IF_ERROR(Report(Verify(ranks.subspan(0, 1), options), 1));
    if (ranks.size() == 1 || options.layers.count(Layer::kAcrossRanks) == 0) {
      return absl::OkStatus();
    }
    // Whether ranks fit each other, too.
    VerifyOptions across = options;
    across.original = {};
    across.layers = {Layer::kStructure, Layer::kAcrossRanks};
    return Report(Verify(ranks, across), ranks.size());
  }

  absl::Status Report(const Findings& findings, size_t num_programs) const {
    const Distinct distinct(findings, num_programs);
    SayDifferences(distinct, context_);
    if (context_.target.dialect == Dialect::kWeft) return ToStatus(findings, num_programs == 1);
    SayDefects(distinct, context_);
    return absl::OkStatus();
  }

  // From here on, passes preserve what is computed.
  void CompareWith(const ProgramPair& programs) {
    compared_.computation = Claims::Computation::kPreserved;
    if (!claims_.Communicate() || Communicates(*programs.main)) return;
    const bool makes_means = claims_.gradients == Claims::Gradients::kAveraged;
    const absl::optional<Op> division =
        makes_means ? FindDivisionByRanks(*programs.main) : absl::nullopt;
    if (division.has_value()) {
      return context_.sink.Note(absl::StrCat(
          "not compared with what was read, which is half of a rewrite: ", division->DebugName(),
          " divides by the number of ranks"));
    }
    original_ = *programs.main;
    if (programs.startup != nullptr) original_startup_ = *programs.startup;
  }

  absl::Status CheckNothingIsUnclaimed(const ProgramPair& programs) const {
    if (communicate_ || RevisionOf(programs) == revision_before_) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(const Properties properties, DetectProperties(programs));
    if (properties.empty()) return absl::OkStatus();
    const auto& [property, evidence] = *properties.begin();
    return absl::FailedPreconditionError(
        absl::StrCat(evidence, ": expected a pass that claims ", property, ", found none"));
  }

  const Claims claims_;
  Claims compared_;  // with the original
  const PassContext& context_;
  const bool communicate_;
  const int revision_before_;
  JobPrograms* const job_;
  absl::optional<Program> original_, original_startup_;
};

}  // namespace

Setting ClaimedSetting(const Claims& claims, const PassContext& context) {
  Setting setting = context.setting;
  // Some of Paddle's modes have a default number of devices; the verifier reads it from the
  // program.
  const bool is_known =
      context.target.dialect == Dialect::kWeft || context.target.cluster.devices().has_value();
  if (is_known && context.target.cluster.nranks().has_value()) {
    setting.nranks = context.target.cluster.nranks();
  }
  for (const auto& [param, attrs] : context.target.param_attrs) {
    if (attrs.group.has_value()) setting.groups[param] = attrs.group->ranks;
  }
  if (!claims.Communicate()) return setting;
  setting.reduction = claims.gradients == Claims::Gradients::kByLoss   ? Setting::Reduction::kByLoss
                      : claims.gradients == Claims::Gradients::kSummed ? Setting::Reduction::kSum
                                                                       : Setting::Reduction::kMean;
  setting.averaging = claims.averaging;
  setting.gradients_are_rounded = claims.rounds_gradients;
  return setting;
}

VerifyOptions ExpectationsOf(const Claims& claims, const PassContext& context,
                             const ConstProgramPair& original) {
  VerifyOptions options;
  options.setting = ClaimedSetting(claims, context);
  const absl::optional<Program>* const server = context.sink.server;
  if (server != nullptr && server->has_value()) options.server = &**server;
  if (context.sink.shares != nullptr) AddShares(*context.sink.shares, &options.setting);
  if (claims.computation == Claims::Computation::kPreserved) options.original = original;
  return options;
}

PipelineVerifier ClaimVerifier(const Claims& claims, const PassContext& context,
                               const Properties& properties, const ProgramPair& before,
                               const ProgramPair& changed, JobPrograms* job) {
  // Shared, so that copies of the std::function do not copy the programs.
  const auto verifier =
      std::make_shared<ClaimChecks>(claims, context, properties, before, changed, job);
  return [verifier](Stage stage, const ProgramPair& programs) {
    return verifier->Check(stage, programs);
  };
}

}  // namespace weft
