#include "transpiler/pipeline/pipeline.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "transpiler/pipeline/facts.h"

namespace weft {
namespace {

// Looking at the program for facts costs time, and may find it wrong: not where no pass asks.
bool AsksForFacts(const std::vector<std::unique_ptr<Pass>>& passes) {
  return std::any_of(passes.begin(), passes.end(), [](const std::unique_ptr<Pass>& pass) {
    return !pass->contract().requires_.empty() || !pass->contract().conflicts.empty();
  });
}

int Revisions(const ProgramPair& programs) {
  return programs.main->revision() +
         (programs.startup != nullptr ? programs.startup->revision() : 0);
}

}  // namespace

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
    pipeline.Add(std::move(pass));
  }
  return pipeline;
}

absl::Status Pipeline::CheckContracts(const std::map<std::string, std::string>& facts) const {
  std::map<std::string, std::string> holds = facts;
  for (const std::unique_ptr<Pass>& pass : passes_) {
    const Contract& contract = pass->contract();
    for (const std::string& fact : contract.requires_) {
      if (holds.count(fact) > 0) continue;
      return absl::FailedPreconditionError(absl::StrCat("pass ", pass->name(), " requires ", fact,
                                                        ", which no earlier pass provides"));
    }
    for (const std::string& fact : contract.conflicts) {
      const auto it = holds.find(fact);
      if (it == holds.end()) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          "pass ", pass->name(), " cannot run: ", fact, " holds already: ", it->second));
    }
    for (const std::string& fact : contract.provides) {
      holds.emplace(fact, absl::StrCat("pass ", pass->name(), " provides it"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<PassReport>> Pipeline::Run(PassContext& context, ProgramPair& programs,
                                                      const PipelineOptions& options) const {
  if (AsksForFacts(passes_)) {
    WEFT_ASSIGN_OR_RETURN(const auto facts, DetectFacts(programs));
    WEFT_RETURN_IF_ERROR(CheckContracts(facts));
  }
  if (options.observer) WEFT_RETURN_IF_ERROR(options.observer("input", programs));

  std::vector<PassReport> reports;
  for (size_t i = 0; i < passes_.size(); ++i) {
    const Pass& pass = *passes_[i];
    const int revisions = Revisions(programs);
    const auto start = std::chrono::steady_clock::now();
    const absl::StatusOr<bool> changed = pass.Run(context, programs);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    WEFT_RETURN_IF_ERROR(Annotate(absl::StrCat("pass ", pass.name()), changed.status()));
    if (*changed != (Revisions(programs) != revisions)) {
      return absl::InternalError(
          absl::StrCat("pass ", pass.name(), " says that it ",
                       *changed ? "changed a program, but did not" : "changed nothing, but did"));
    }
    PassReport report;
    report.pass = std::string(pass.name());
    report.changed = *changed;
    report.main_ops = programs.main->num_ops();
    report.startup_ops = programs.startup != nullptr ? programs.startup->num_ops() : 0;
    report.seconds = elapsed.count();
    reports.push_back(std::move(report));
    if (options.observer) WEFT_RETURN_IF_ERROR(options.observer(pass.name(), programs));
    const bool verify =
        options.verify == PipelineOptions::Verify::kAfterEachPass || i + 1 == passes_.size();
    if (options.verifier && verify) {
      WEFT_RETURN_IF_ERROR(Annotate(absl::StrCat("after pass ", pass.name()),
                                    options.verifier(pass.name(), programs)));
    }
  }
  return reports;
}

}  // namespace weft
