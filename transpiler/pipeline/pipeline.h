// A list of passes that run one after the other.
#ifndef WEFT_TRANSPILER_PIPELINE_PIPELINE_H_
#define WEFT_TRANSPILER_PIPELINE_PIPELINE_H_

#include <cstddef>
#include <functional>
#include <map>
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
using PipelineHook = std::function<absl::Status(absl::string_view pass, const ProgramPair&)>;

struct PipelineOptions {
  // Finds a program wrong, or not. What it finds after a pass is reported under the pass's name.
  PipelineHook verifier;
  // When the verifier runs: after the last pass, or after every pass.
  enum class Verify { kAtEnd, kAfterEachPass };
  Verify verify = Verify::kAtEnd;
  // Sees every state, for dumps. A program that it is shown has not been verified yet.
  PipelineHook observer;
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
  // From text: the passes and options come from the registry. InvalidArgument for text, names or
  // options that do not fit.
  static absl::StatusOr<Pipeline> FromText(absl::string_view text, const PassRegistry& registry);
  static absl::StatusOr<Pipeline> FromSpecs(const std::vector<Spec>& specs,
                                            const PassRegistry& registry);

  void Add(std::unique_ptr<Pass> pass) { passes_.push_back(std::move(pass)); }
  const std::vector<std::unique_ptr<Pass>>& passes() const { return passes_; }

  // Checks the contracts of the whole schedule, starting from `facts` that hold already, each with
  // its evidence (transpiler/pipeline/facts.h).
  // FailedPrecondition, naming the pass, the fact and who establishes it.
  absl::Status CheckContracts(const std::map<std::string, std::string>& facts) const;

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
