// The interface of a pass.
#ifndef WEFT_TRANSPILER_PIPELINE_PASS_H_
#define WEFT_TRANSPILER_PIPELINE_PASS_H_

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/analysis/values/sum_losses.h"
#include "proto/program.h"
#include "proto/program_pair.h"
#include "proto/rewriter.h"
#include "proto/setting.h"
#include "transpiler/buckets/step_times.h"
#include "transpiler/pipeline/claims.h"
#include "transpiler/pipeline/cluster.h"
#include "transpiler/pipeline/param_attrs.h"
#include "transpiler/pipeline/target.h"

namespace weft {

// kPaddle: passes write, op for op, what Paddle's transpiler writes. kWeft: they write the same
// rewrite without Paddle's defects.
enum class Dialect { kWeft, kPaddle };

// What a pass did or did not do to one subject, and why. `transpile --explain` writes remarks.
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
  Target target;
  Cluster cluster;
  // What is known of the run before passes claim anything: gradients of its distributed_params are
  // not reduced.
  Setting setting;
  // Of parameters that the user describes. setting.distributed_params has those that are not
  // replicated.
  ParamAttrsByName param_attrs;
  // The groups of ranks of the run, also those to which this rank does not belong.
  std::vector<RankGroup> groups_of_run;
  // The losses that are sums over the batch, or will be.
  SumLosses sum_losses;
  // How long ops and collectives take, for passes that go by it (Pass::times_read).
  StepTimes times;
  // From these: when gradients are complete.
  ReadyTimes gradient_ready;
  // Parameters that are updated on the host, from gradients of the accelerator, which passes find
  // before they run. No bucket has gradients of these and of others.
  std::set<std::string> updated_on_host;
  // Updates in half precision get fp32 master weights or state, which a pass finds before it runs.
  bool raises_precision = false;
  // The program of the parameter servers, which a pass makes; none: there are no servers.
  absl::optional<Program> server;
  // The ids from which on ops are new, in the main and in the startup program.
  size_t first_new_op = 0, first_new_startup_op = 0;
  // Receives remarks; null disables them.
  std::vector<Remark>* remarks = nullptr;
  // Receives known defects of what the paddle dialect writes; null disables them.
  std::vector<std::string>* warnings = nullptr;

  // Receives what makes ranks differ from one device although nothing is wrong, one line each that
  // begins with "warning: " or "note: "; null disables them.
  std::vector<std::string>* notes = nullptr;

  // Adds a remark if remarks are enabled. Check `remarks` first where many arguments are costly.
  void Explain(absl::string_view pass, std::string subject, std::string what, std::string why,
               std::vector<std::pair<std::string, std::string>> details = {}) {
    if (remarks == nullptr) return;
    remarks->push_back({std::string(pass), std::move(subject), std::move(what), std::move(why),
                        std::move(details)});
  }

  // What passes decide by, so that the programs of all ranks agree.
  std::vector<RankGroup> Groups() const {
    return groups_of_run.empty() ? GroupsOf(param_attrs) : groups_of_run;
  }

  void Note(std::string line) {
    if (notes != nullptr) notes->push_back(std::move(line));
  }

  // A problem that makes a rewrite wrong is an error in the weft dialect and a warning in the
  // paddle dialect.
  absl::Status RefuseOrWarn(absl::string_view pass, const absl::Status& problem) {
    if (problem.ok() || dialect == Dialect::kWeft) return problem;
    if (warnings != nullptr) {
      warnings->push_back(absl::StrCat("pass ", pass, ": ", problem.message()));
    }
    return absl::OkStatus();
  }
};

// The facts that hold for a pair of programs: name to evidence ("op 17 (c_allreduce_sum) takes
// fc_0.w_0@GRAD"). transpiler/passes/support/facts.h names the facts of Weft's passes; other passes
// may add more.
using Facts = std::map<std::string, std::string>;

// Orders passes by facts.
//
//   Contract().Needs(kRingsSetUp).Provides(kParametersEqual).ConflictsWith(kParametersEqual)
struct Contract {
  std::vector<std::string> needs;           // must hold before the pass
  std::vector<std::string> provides;        // hold after it
  std::vector<std::string> conflicts_with;  // must not hold before it

  Contract& Needs(std::string fact) { return Add(std::move(fact), &needs); }
  Contract& Provides(std::string fact) { return Add(std::move(fact), &provides); }
  Contract& ConflictsWith(std::string fact) { return Add(std::move(fact), &conflicts_with); }
  // The pass must not run twice.
  Contract& ProvidesOnce(const std::string& fact) { return Provides(fact).ConflictsWith(fact); }

 private:
  Contract& Add(std::string fact, std::vector<std::string>* facts) {
    facts->push_back(std::move(fact));
    return *this;
  }
};

// Which of PassContext::times a pass goes by.
struct TimesRead {
  bool of_ops = false;
  bool of_collectives = false;
};

// A rewrite. Const and stateless: one pass may run on many programs at the same time. The result
// depends only on the programs, the context and the options. A second run changes nothing, or the
// contract refuses it.
class Pass {
 public:
  virtual ~Pass() = default;
  virtual absl::string_view name() const = 0;  // kebab-case
  // Checked for the whole pipeline before anything runs.
  virtual Contract contract() const { return {}; }
  // What the pass does to gradients, replicas and the computation with its options. The verifier
  // checks the result against it.
  virtual Claims claims(const PassContext& context) const { return {}; }
  virtual TimesRead times_read() const { return {}; }
  // Sets what claims of this and of later passes depend on, from the programs before the first
  // pass.
  virtual void Prepare(const ConstProgramPair& programs, PassContext* context) const {}
  // Returns whether a program changed. After an error, the programs must not be used.
  virtual absl::StatusOr<bool> Run(PassContext& context, ProgramPair& programs) const = 0;
};

// Commits the edits of a pass. Returns whether there were any, as Pass::Run does.
inline absl::StatusOr<bool> CommitEdits(Rewriter* rewriter) {
  if (rewriter->empty()) return false;
  WEFT_RETURN_IF_ERROR(rewriter->Commit());
  return true;
}

}  // namespace weft

#endif  // WEFT_TRANSPILER_PIPELINE_PASS_H_
