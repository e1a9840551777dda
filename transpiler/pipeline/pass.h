// What a pass is.
#ifndef WEFT_TRANSPILER_PIPELINE_PASS_H_
#define WEFT_TRANSPILER_PIPELINE_PASS_H_

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/program.h"
#include "proto/program_pair.h"
#include "transpiler/pipeline/claims.h"
#include "transpiler/pipeline/cluster.h"

namespace weft {

// How a rewrite is spelled. kPaddle: op for op as Paddle's own transpiler writes it. kWeft: the
// same rewrite with Paddle's defects mended.
enum class Dialect { kWeft, kPaddle };

// What a pass did, or decided not to do, with one thing, and why. `transpile --explain` writes
// them.
struct Remark {
  std::string pass;
  std::string subject;  // a variable, ring or op
  std::string what;     // "reduced", "not reduced", "scaled", "broadcast", ...
  std::string why;
  std::vector<std::pair<std::string, std::string>> details;  // "ring": "0", "after": "op 17 (mul)"
};

// Shared by all passes of a pipeline.
struct PassContext {
  Dialect dialect = Dialect::kWeft;
  Cluster cluster;
  // Parameters that each rank holds a part of: their gradients are not reduced.
  std::set<std::string> distributed_params;
  // Receives remarks; null disables them, and passes then spend no time on them.
  std::vector<Remark>* remarks = nullptr;
  // Receives what the paddle dialect knows to be wrong with the result, which it writes anyway;
  // null disables this.
  std::vector<std::string>* warnings = nullptr;

  // For what makes a rewrite wrong: an error in the weft dialect, a warning in the paddle dialect.
  absl::Status RefuseOrWarn(absl::string_view pass, const absl::Status& problem) {
    if (problem.ok() || dialect == Dialect::kWeft) return problem;
    if (warnings != nullptr)
      warnings->push_back(absl::StrCat("pass ", pass, ": ", problem.message()));
    return absl::OkStatus();
  }
};

// Facts that hold for a pair of programs, by name, each with its evidence ("op 17
// (c_allreduce_sum) takes fc_0.w_0@GRAD"). transpiler/facts.h names those of Weft's own passes; a
// pass of your own may add others.
using Facts = std::map<std::string, std::string>;

// The order in which passes may run, in terms of facts.
//
//   Contract().Needs(kRingsSetUp).Provides(kParametersEqual).ConflictsWith(kParametersEqual)
struct Contract {
  std::vector<std::string> needs;           // must hold before the pass
  std::vector<std::string> provides;        // hold after it
  std::vector<std::string> conflicts_with;  // must not hold before it

  Contract& Needs(std::string fact) {
    needs.push_back(std::move(fact));
    return *this;
  }
  Contract& Provides(std::string fact) {
    provides.push_back(std::move(fact));
    return *this;
  }
  Contract& ConflictsWith(std::string fact) {
    conflicts_with.push_back(std::move(fact));
    return *this;
  }
};

// A rewrite. Const and stateless: one pass may run on many programs at the same time. The result
// depends on the programs, the context and the options only. A second run changes nothing, or is
// refused by the contract.
class Pass {
 public:
  virtual ~Pass() = default;
  virtual absl::string_view name() const = 0;  // kebab-case
  // Checked for the whole pipeline before anything runs.
  virtual Contract contract() const { return {}; }
  // What the pass does to gradients, replicas and the computation, as its options say. The verifier
  // holds the result to it.
  virtual Claims claims(const PassContext& context) const { return {}; }
  // True where a program changed. On an error the programs may not be used further.
  virtual absl::StatusOr<bool> Run(PassContext& context, ProgramPair& programs) const = 0;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PIPELINE_PASS_H_
