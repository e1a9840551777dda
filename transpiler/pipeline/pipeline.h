// A list of passes that run one after the other.
#ifndef WEFT_TRANSPILER_PIPELINE_PIPELINE_H_
#define WEFT_TRANSPILER_PIPELINE_PIPELINE_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/spec_text.h"
#include "transpiler/pipeline/pass.h"
#include "transpiler/pipeline/registry.h"

namespace weft {

// Called with the programs before the first pass (pass name "input") and after each pass.
using PipelineObserver = std::function<absl::Status(absl::string_view pass, const ProgramPair&)>;

// When programs are verified.
enum class Verification { kNever, kAtEnd, kAfterEachPass };

// Where in the pipeline they are: what passes claim need not hold before the last one has run.
enum class Stage { kBetweenPasses, kAtEnd };

// Returns what is wrong with the programs.
using PipelineVerifier = std::function<absl::Status(Stage stage, const ProgramPair&)>;

struct PipelineOptions {
  // Facts that hold before the first pass, where contracts start from. DetectFacts
  // (transpiler/facts.h) finds those of Weft's own passes; add others of your own.
  Facts initial_facts;
  // Runs when `verification` says, also where there are no passes; none: nothing is verified. Its
  // error names the pass after which it was found.
  PipelineVerifier verifier;
  Verification verification = Verification::kAtEnd;
  // Sees every state, for dumps, before it is verified.
  PipelineObserver observer;
};

// What happened.
struct PassReport {
  std::string pass;
  bool changed = false;
  size_t main_ops = 0;     // after the pass
  size_t startup_ops = 0;  // 0 without a startup program
  double seconds = 0;      // of the pass alone
};

class Pipeline {
 public:
  Pipeline() = default;
  // From text ("a{k=v},b"): passes and options come from the registry. InvalidArgument for text,
  // names or options that do not fit.
  static absl::StatusOr<Pipeline> FromText(absl::string_view text, const PassRegistry& registry);
  static absl::StatusOr<Pipeline> FromSpecs(const std::vector<Spec>& specs,
                                            const PassRegistry& registry);

  void Add(std::unique_ptr<Pass> pass) { passes_.push_back(std::move(pass)); }
  const std::vector<std::unique_ptr<Pass>>& passes() const { return passes_; }

  // Whether any contract needs or excludes a fact. Where none does, initial facts need not be
  // detected, which takes time and may find a program wrong.
  bool AsksForFacts() const;

  // Checks the contracts of the whole schedule, starting from facts that hold already.
  // FailedPrecondition, naming the pass, the fact and who establishes it.
  absl::Status CheckContracts(const Facts& initial_facts) const;

  // What the passes claim together. InvalidArgument, naming both, where two contradict each other:
  // one averages gradients and the other sums them, or they average parameters at different times.
  absl::StatusOr<Claims> ClaimsOf(const PassContext& context) const;

  // Checks the contracts, then runs the passes in order. On an error, which names the pass, the
  // programs may not be used further. A pass that says it changed nothing but did, or the other way
  // round, is an Internal error.
  absl::StatusOr<std::vector<PassReport>> Run(PassContext& context, ProgramPair& programs,
                                              const PipelineOptions& options = {}) const;

 private:
  std::vector<std::unique_ptr<Pass>> passes_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PIPELINE_PIPELINE_H_
