#include "transpiler/pipeline/pipeline.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/annotate.h"
#include "base/status_macros.h"

namespace weft {
namespace {

absl::StatusOr<PassReport> RunPass(const Pass& pass, const PassContext& context,
                                   ProgramPair& programs) {
  const int revision = RevisionOf(programs);
  const auto start = std::chrono::steady_clock::now();
  const absl::StatusOr<bool> changed = pass.Run(context, programs);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  WEFT_RETURN_IF_ERROR(Annotate(absl::StrCat("pass ", pass.name()), changed.status()));
  if (*changed != (RevisionOf(programs) != revision)) {
    return absl::InternalError(absl::StrCat("pass ", pass.name(),
                                            *changed
                                                ? " reports a change, but changed nothing"
                                                : " reports no change, but changed a program"));
  }
  PassReport report;
  report.pass = std::string(pass.name());
  report.changed = *changed;
  report.main_ops = programs.main->num_ops();
  report.startup_ops = programs.startup != nullptr ? programs.startup->num_ops() : 0;
  report.seconds = elapsed.count();
  return report;
}

absl::Status VerifyAt(Stage stage, const ProgramPair& programs, const PipelineOptions& options) {
  const bool is_due =
      options.verification == Verification::kAfterEachPass ||
      (options.verification == Verification::kAtEnd && stage != Stage::kBetweenPasses);
  return options.verifier && is_due ? options.verifier(stage, programs) : absl::OkStatus();
}

absl::Status ShowAndVerify(const ProgramPair& result, const PipelineOptions& options) {
  if (options.on_result) options.on_result(result);
  return VerifyAt(Stage::kAtEnd, result, options);
}

std::string Describe(Claims::Gradients gradients) {
  constexpr const char* kTexts[] = {"of each rank", "averaged over the ranks",
                                    "summed over the ranks",
                                    "summed or averaged over the ranks, by loss"};
  return absl::StrCat("gradients ", kTexts[static_cast<int>(gradients)]);
}

std::string Describe(const AveragingSchedule& schedule) {
  return absl::StrCat("parameters averaged ", ToString(schedule));
}

absl::Status Contradiction(const Pass& a, absl::string_view a_claims, const Pass& b,
                           absl::string_view b_claims) {
  return absl::InvalidArgumentError(absl::StrCat("pass ", a.name(), " claims ", a_claims, ", pass ",
                                                 b.name(), " claims ", b_claims));
}

}  // namespace

int RevisionOf(const ProgramPair& programs) {
  return programs.main->revision() +
         (programs.startup != nullptr ? programs.startup->revision() : 0);
}

absl::StatusOr<Pipeline> Pipeline::FromText(absl::string_view text, const PassRegistry& registry) {
  const absl::StatusOr<std::vector<Spec>> specs = ParseSpecs(text);
  WEFT_RETURN_IF_ERROR(Annotate("pipeline", specs.status()));
  return FromSpecs(*specs, registry);
}

absl::StatusOr<Pipeline> Pipeline::FromSpecs(const std::vector<Spec>& specs,
                                             const PassRegistry& registry) {
  Pipeline pipeline;
  for (const Spec& spec : specs) {
    WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Pass> pass, registry.Create(spec));
    pipeline.Add(std::move(pass), ToString({spec}));
  }
  return pipeline;
}

void Pipeline::Add(std::unique_ptr<Pass> pass, std::string text) {
  texts_.push_back(text.empty() ? std::string(pass->name()) : std::move(text));
  passes_.push_back(std::move(pass));
}

void Pipeline::AddFirst(std::unique_ptr<Pass> pass) {
  Add(std::move(pass));
  std::rotate(passes_.begin(), passes_.end() - 1, passes_.end());
  std::rotate(texts_.begin(), texts_.end() - 1, texts_.end());
}

bool Pipeline::HasTrait(PassTrait trait) const {
  return absl::c_any_of(passes_, [trait](const auto& pass) { return pass->HasTrait(trait); });
}

bool Pipeline::AsksForProperties() const {
  return absl::c_any_of(passes_, [](const auto& pass) {
    const Contract contract = pass->contract();
    return !contract.needs.empty() || !contract.conflicts_with.empty();
  });
}

absl::Status Pipeline::CheckContracts(const Properties& initial_properties) const {
  Properties holds = initial_properties;
  for (const std::unique_ptr<Pass>& pass : passes_) {
    const Contract contract = pass->contract();
    for (const std::string& property : contract.needs) {
      if (holds.count(property) > 0) continue;
      return absl::FailedPreconditionError(absl::StrCat("pass ", pass->name(), " needs ", property,
                                                        ", which no earlier pass provides"));
    }
    for (const std::string& property : contract.conflicts_with) {
      const auto it = holds.find(property);
      if (it == holds.end()) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          "pass ", pass->name(), " cannot run: ", property, " already holds: ", it->second,
          initial_properties.count(property) == 0
              ? ""
              : "; of a program that is rewritten already, transpile the original"));
    }
    for (const std::string& property : contract.provides) {
      holds.emplace(property, absl::StrCat("pass ", pass->name(), " provides it"));
    }
  }
  return absl::OkStatus();
}

Forecast Pipeline::Foresee(const ConstProgramPair& programs, const PassContext& context) const {
  Forecast forecast = context.target.forecast;
  forecast.first_new_op = programs.main->op_id_limit();
  if (programs.startup != nullptr) {
    forecast.first_new_startup_op = programs.startup->op_id_limit();
  }
  for (const std::unique_ptr<Pass>& pass : passes_) pass->Foresee(programs, context, &forecast);
  return forecast;
}

size_t Pipeline::NumChangingFirst(const PassContext& context) const {
  size_t num_changing = 0;
  bool has_others = false;
  for (size_t i = 0; i < passes_.size(); ++i) {
    const Claims claims = passes_[i]->claims(context);
    if (claims.computation == Claims::Computation::kChanged) {
      if (has_others) return 0;
      num_changing = i + 1;
    } else if (!claims.is_for_one_device) {
      has_others = true;
    }
  }
  return num_changing;
}

absl::StatusOr<Claims> Pipeline::ClaimsOf(const PassContext& context) const {
  Claims all;
  const Pass* of_gradients = nullptr;
  const Pass* of_averaging = nullptr;
  for (const std::unique_ptr<Pass>& pass : passes_) {
    const Claims claims = pass->claims(context);
    if (claims.gradients != Claims::Gradients::kUntouched) {
      if (of_gradients != nullptr && claims.gradients != all.gradients) {
        return Contradiction(*of_gradients, Describe(all.gradients), *pass,
                             Describe(claims.gradients));
      }
      all.gradients = claims.gradients;
      of_gradients = pass.get();
    }
    if (claims.averaging.has_value()) {
      if (of_averaging != nullptr && !(*claims.averaging == *all.averaging)) {
        return Contradiction(*of_averaging, Describe(*all.averaging), *pass,
                             Describe(*claims.averaging));
      }
      all.averaging = claims.averaging;
      of_averaging = pass.get();
    }
    if (claims.computation == Claims::Computation::kChanged) all.computation = claims.computation;
    all.rounds_gradients = all.rounds_gradients || claims.rounds_gradients;
  }
  return all;
}

absl::StatusOr<std::vector<PassReport>> Pipeline::Run(const PassContext& context,
                                                      ProgramPair& programs,
                                                      const PipelineOptions& options) const {
  WEFT_RETURN_IF_ERROR(CheckContracts(options.initial_properties));
  if (options.observer) WEFT_RETURN_IF_ERROR(options.observer("input", programs));
  if (passes_.empty()) WEFT_RETURN_IF_ERROR(ShowAndVerify(programs, options));

  std::vector<PassReport> reports;
  const size_t num_changing = NumChangingFirst(context);
  for (const std::unique_ptr<Pass>& pass : passes_) {
    if (!reports.empty() && reports.size() == num_changing) {
      WEFT_RETURN_IF_ERROR(Annotate(absl::StrCat("before pass ", pass->name()),
                                    VerifyAt(Stage::kComputationChanged, programs, options)));
    }
    WEFT_ASSIGN_OR_RETURN(PassReport report, RunPass(*pass, context, programs));
    reports.push_back(std::move(report));
    if (options.observer) WEFT_RETURN_IF_ERROR(options.observer(pass->name(), programs));
    const absl::Status verified = pass == passes_.back()
                                      ? ShowAndVerify(programs, options)
                                      : VerifyAt(Stage::kBetweenPasses, programs, options);
    WEFT_RETURN_IF_ERROR(Annotate(absl::StrCat("after pass ", pass->name()), verified));
  }
  return reports;
}

}  // namespace weft
