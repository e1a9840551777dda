#include "transpiler/claim_verifier.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/analysis/core/communication.h"
#include "transpiler/passes/support/facts.h"
#include "transpiler/verifier/servers/server_programs.h"

namespace weft {
namespace {

bool IsReordered(const Finding& finding) { return finding.kind == FindingKind::kReordering; }

// Says, of the findings that `is_meant` accepts, the first of each rule and the number of the
// others.
void WarnOfEachRule(const Findings& findings, Message::Topic topic,
                    const std::function<bool(const Finding&)>& is_meant,
                    const PassContext& context) {
  std::map<std::string, std::vector<const Finding*>> by_rule;
  for (const Finding& finding : findings.all()) {
    if (is_meant(finding)) by_rule[finding.rule].push_back(&finding);
  }
  for (const auto& [rule, found] : by_rule) {
    const int64_t more = static_cast<int64_t>(found.size()) - 1 + findings.NumOmitted(rule);
    context.Say({Severity::kWarning, topic, rule,
                 absl::StrCat(found.front()->message,
                              more == 0 ? "" : absl::StrCat(" (and ", more, " more)"))});
  }
}

// What is wrong in the paddle dialect, which reproduces it.
void SayDefects(const Findings& findings, const PassContext& context) {
  const auto is_defect = [](const Finding& finding) {
    return finding.severity != Severity::kNote && !IsDifference(finding.kind) &&
           !IsReordered(finding);
  };
  WarnOfEachRule(findings, Message::Topic::kPaddleDefect, is_defect, context);
}

// The differences from one device, and what Paddle's executor may reorder.
void SayDifferences(const Findings& findings, const PassContext& context) {
  for (const Finding& finding : findings.all()) {
    if (!IsDifference(finding.kind)) continue;
    context.Say({finding.severity, Message::Topic::kResult, finding.rule, finding.message});
  }
  WarnOfEachRule(findings, Message::Topic::kResult, IsReordered, context);
}

class Verifier {
 public:
  Verifier(const Claims& claims, const PassContext& context, const Facts& facts,
           const ProgramPair& before, const ProgramPair& changed)
      : claims_(claims),
        compared_(claims),
        context_(context),
        communicate_(claims.Communicate() || facts.count(kGradientsReduced) > 0 ||
                     facts.count(kParametersAveraged) > 0),
        revision_before_(RevisionOf(before)) {
    if (claims.computation == Claims::Computation::kPreserved) CompareWith(before);
    if (changed.main != nullptr) CompareWith(changed);
  }

  absl::Status Check(Stage stage, const ProgramPair& programs) {
    if (stage == Stage::kComputationChanged) {
      CompareWith(programs);
      return absl::OkStatus();
    }
    const bool is_paddle = context_.dialect == Dialect::kPaddle;
    if (is_paddle && stage == Stage::kBetweenPasses) return absl::OkStatus();
    ConstProgramPair original;
    if (original_.has_value()) original.main = &*original_;
    if (original_startup_.has_value()) original.startup = &*original_startup_;
    VerifyOptions options = ExpectationsOf(compared_, context_, original);
    // What workers and servers compute, they compute together.
    const bool is_part = options.server == nullptr && HasServerOps(*programs.main) &&
                         RevisionOf(programs) == revision_before_;
    if (is_part && stage == Stage::kAtEnd) {
      context_.Note(
          "a program of workers or of servers alone: weft verify option:server verifies both");
    }
    if (stage == Stage::kBetweenPasses || !communicate_ || is_part) {
      options.layers = {Layer::kStructure, Layer::kTypes, Layer::kRaces};
    }
    const Findings findings = Verify({{programs.main, programs.startup}}, options);
    if (is_paddle) {
      SayDefects(findings, context_);
    } else {
      WEFT_RETURN_IF_ERROR(ToStatus(findings));
    }
    if (stage == Stage::kAtEnd) SayDifferences(findings, context_);
    return stage == Stage::kAtEnd ? CheckNothingIsUnclaimed(programs) : absl::OkStatus();
  }

 private:
  // From here on, passes preserve what is computed.
  void CompareWith(const ProgramPair& programs) {
    compared_.computation = Claims::Computation::kPreserved;
    if (!claims_.Communicate() || Communicates(*programs.main)) return;
    original_ = *programs.main;
    if (programs.startup != nullptr) original_startup_ = *programs.startup;
  }

  absl::Status CheckNothingIsUnclaimed(const ProgramPair& programs) const {
    if (communicate_ || RevisionOf(programs) == revision_before_) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(const Facts facts, DetectFacts(programs));
    if (facts.empty()) return absl::OkStatus();
    const auto& [fact, evidence] = *facts.begin();
    return absl::FailedPreconditionError(
        absl::StrCat(evidence, ": expected a pass that claims ", fact, ", found none"));
  }

  const Claims claims_;
  Claims compared_;  // with the original
  const PassContext& context_;
  const bool communicate_;
  const int revision_before_;
  absl::optional<Program> original_, original_startup_;
};

}  // namespace

Setting ClaimedSetting(const Claims& claims, const PassContext& context) {
  Setting setting = context.setting;
  // Some of Paddle's modes have a default number of devices; the verifier reads it from the
  // program.
  if (context.dialect == Dialect::kWeft || context.cluster.devices().has_value()) {
    setting.nranks = context.cluster.nranks();
  }
  for (const auto& [param, attrs] : context.param_attrs) {
    if (attrs.group.has_value()) setting.groups[param] = attrs.group->ranks;
  }
  if (!claims.Communicate()) return setting;
  switch (claims.gradients) {
    case Claims::Gradients::kByLoss:
      setting.reduction = Setting::Reduction::kByLoss;
      break;
    case Claims::Gradients::kSummed:
      setting.reduction = Setting::Reduction::kSum;
      break;
    case Claims::Gradients::kUntouched:
    case Claims::Gradients::kAveraged:
      setting.reduction = Setting::Reduction::kMean;
      break;
  }
  setting.averaging = claims.averaging;
  setting.gradients_are_rounded = claims.rounds_gradients;
  return setting;
}

VerifyOptions ExpectationsOf(const Claims& claims, const PassContext& context,
                             const ConstProgramPair& original) {
  VerifyOptions options;
  options.setting = ClaimedSetting(claims, context);
  if (context.server.has_value()) options.server = &*context.server;
  if (claims.computation == Claims::Computation::kPreserved) options.original = original;
  return options;
}

PipelineVerifier ClaimVerifier(const Claims& claims, const PassContext& context, const Facts& facts,
                               const ProgramPair& before, const ProgramPair& changed) {
  // Shared, so that copies of the std::function do not copy the programs.
  const auto verifier = std::make_shared<Verifier>(claims, context, facts, before, changed);
  return [verifier](Stage stage, const ProgramPair& programs) {
    return verifier->Check(stage, programs);
  };
}

}  // namespace weft
