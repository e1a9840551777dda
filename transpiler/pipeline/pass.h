// What a pass is.
#ifndef WEFT_TRANSPILER_PIPELINE_PASS_H_
#define WEFT_TRANSPILER_PIPELINE_PASS_H_

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
#include "transpiler/pipeline/participants.h"

namespace weft {

// How a rewrite is spelled. kPaddle: op for op as Paddle's own transpiler writes it. kWeft: the
// same rewrite with Paddle's defects mended.
enum class Dialect { kWeft, kPaddle };

// What a pass did, or decided not to do, with one thing. Shown by `transpile --explain`.
struct Note {
  std::string pass;
  std::string subject;  // a variable, ring or op
  std::string what;     // "reduced", "not reduced", "scaled", "broadcast", ...
  std::string why;
  std::vector<std::pair<std::string, std::string>> details;  // "ring": "0", "after": "op 17 (mul)"
};

// What all passes of a pipeline share.
struct PassContext {
  Dialect dialect = Dialect::kWeft;
  Participants participants;
  // Parameters that each rank holds a part of: their gradients are not reduced.
  std::set<std::string> distributed_params;
  // Where notes go; null: nobody wants them, and passes do not spend time on them.
  std::vector<Note>* notes = nullptr;
  // Where the paddle dialect says what is wrong with the result, which it writes all the same;
  // null: nobody wants to know.
  std::vector<std::string>* warnings = nullptr;

  // For what makes a rewrite wrong: an error in the weft dialect, a warning in the paddle dialect.
  absl::Status RefuseOrWarn(absl::string_view pass, const absl::Status& problem) {
    if (problem.ok() || dialect == Dialect::kWeft) return problem;
    if (warnings != nullptr)
      warnings->push_back(absl::StrCat("pass ", pass, ": ", problem.message()));
    return absl::OkStatus();
  }
};

// Facts about a pair of programs, as far as passes establish or rely on them. Those of Weft's own
// passes are in facts.h; a pass of your own may add others.
struct Contract {
  std::vector<std::string> provides;   // holds after the pass
  std::vector<std::string> requires_;  // must hold before it
  std::vector<std::string> conflicts;  // must not hold before it
};

// A rewrite. Const and stateless: one pass may run on many programs at the same time. The result
// depends on the programs, the context and the options only. A second run changes nothing, or is
// refused by the contract.
class Pass {
 public:
  virtual ~Pass() = default;
  virtual absl::string_view name() const = 0;  // kebab-case
  virtual const Contract& contract() const = 0;
  // True where a program changed. On an error the programs may not be used further.
  virtual absl::StatusOr<bool> Run(PassContext& context, ProgramPair& programs) const = 0;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PIPELINE_PASS_H_
