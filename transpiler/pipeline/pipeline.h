// An ordered list of passes.
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

enum class Verification { kNever, kAtEnd, kAfterEachPass };

// The claims of the passes need not hold before the last pass has run.
// kComputationChanged: between the passes that change what is computed, which come first, and the
// others. What these make of the programs has to compute the same.
enum class Stage { kComputationChanged, kBetweenPasses, kAtEnd };

// Returns the first problem of the programs.
using PipelineVerifier = std::function<absl::Status(Stage stage, const ProgramPair&)>;

struct PipelineOptions {
  // Properties that hold before the first pass. DetectProperties
  // (transpiler/passes/support/properties.h) finds those of Weft's passes.
  Properties initial_properties;
  // Runs as `verification` says, even without passes; none disables it. Its error names the pass
  // after which it ran. With kAtEnd, it also runs at stage kComputationChanged.
  PipelineVerifier verifier;
  Verification verification = Verification::kAtEnd;
  // Called with every state before it is verified.
  PipelineObserver observer;
  // Called once with the result, after the observer and before the result is verified, if it is at
  // all. The programs do not change afterwards, so another thread can read them while they are
  // verified.
  std::function<void(const ProgramPair&)> on_result;
};

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
  // Takes passes and options from the registry. Text has the form "a{k=v},b". InvalidArgument for
  // malformed text, unknown passes and wrong options.
  static absl::StatusOr<Pipeline> FromText(absl::string_view text, const PassRegistry& registry);
  static absl::StatusOr<Pipeline> FromSpecs(const std::vector<Spec>& specs,
                                            const PassRegistry& registry);

  // `text`: the pass with its options, as FromText reads it; empty: its name.
  void Add(std::unique_ptr<Pass> pass, std::string text = "");
  void AddFirst(std::unique_ptr<Pass> pass);
  const std::vector<std::unique_ptr<Pass>>& passes() const { return passes_; }
  const std::vector<std::string>& texts() const { return texts_; }  // of the passes

  // Whether any contract needs or excludes a property. If not, the caller can skip
  // DetectProperties, which takes time and may refuse a program.
  bool AsksForProperties() const;

  // Whether any of the passes has it.
  bool HasTrait(PassTrait trait) const;

  // Checks the contracts of all passes in order, starting from `initial_properties`.
  // FailedPrecondition names the pass, the property and its evidence.
  absl::Status CheckContracts(const Properties& initial_properties) const;

  // What passes foresee of the programs, in order, which adds to the forecast of the context.
  Forecast Foresee(const ConstProgramPair& programs, const PassContext& context) const;

  // The number of passes after which no pass changes what is computed, if all of them change it or
  // leave a program for one device. 0 if a later one changes it, too: then no state of the programs
  // between passes computes what the result does.
  size_t NumChangingFirst(const PassContext& context) const;

  // The combined claims of the passes. InvalidArgument, naming both, if two contradict each other:
  // one averages gradients and the other sums them, or their averaging schedules differ.
  absl::StatusOr<Claims> ClaimsOf(const PassContext& context) const;

  // Checks the contracts, then runs the passes in order. Errors name the pass; after an error, the
  // programs must not be used. Internal error if a pass reports wrongly whether it changed them.
  absl::StatusOr<std::vector<PassReport>> Run(const PassContext& context, ProgramPair& programs,
                                              const PipelineOptions& options = {}) const;

 private:
  std::vector<std::unique_ptr<Pass>> passes_;
  std::vector<std::string> texts_;
};

// Increases with every change of either program.
int RevisionOf(const ProgramPair& programs);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PIPELINE_PIPELINE_H_
