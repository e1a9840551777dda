// The interface of a pass.
#ifndef WEFT_TRANSPILER_PIPELINE_PASS_H_
#define WEFT_TRANSPILER_PIPELINE_PASS_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "proto/program.h"
#include "proto/program_pair.h"
#include "proto/rewriter.h"
#include "proto/setting.h"
#include "transpiler/pipeline/claims.h"
#include "transpiler/pipeline/message.h"
#include "transpiler/pipeline/target.h"

namespace weft {

// What a pass did or did not do to one subject, and why. `transpile --remarks` writes remarks.
struct Remark {
  std::string pass;
  std::string subject;  // a variable, ring or op
  std::string what;     // "reduced", "not reduced", "scaled", "broadcast", ...
  std::string why;
  std::vector<std::pair<std::string, std::string>> details;  // "ring": "0", "after": "op 17 (mul)"
};

// Where passes report. They read nothing from it.
struct Sink {
  std::vector<Remark>* remarks = nullptr;     // null: nobody asks for remarks
  std::vector<Message>* messages = nullptr;   // null: nor for messages
  absl::optional<Program>* server = nullptr;  // null: nor for the program of servers
  Setting* shares = nullptr;                  // null: nor for what AddShares adds

  // Adds a remark if remarks are enabled. Check `remarks` first where many arguments are costly.
  void Explain(absl::string_view pass, std::string subject, std::string what, std::string why,
               std::vector<std::pair<std::string, std::string>> details = {}) const {
    if (remarks == nullptr) return;
    remarks->push_back({std::string(pass), std::move(subject), std::move(what), std::move(why),
                        std::move(details)});
  }

  void Note(std::string text) const {
    Say({Severity::kNote, Message::Topic::kResult, "", std::move(text)});
  }
  void Warn(std::string text) const {
    Say({Severity::kWarning, Message::Topic::kResult, "", std::move(text)});
  }
  // Once: what is the same is not repeated.
  void Say(Message message) const {
    if (messages == nullptr || absl::c_linear_search(*messages, message)) return;
    messages->push_back(std::move(message));
  }
  // The program that parameter servers run.
  void AddServer(Program program) const {
    if (server != nullptr) *server = std::move(program);
  }
};

// Shared by all passes of a pipeline.
struct PassContext {
  // What is known of the run before passes claim anything: gradients of its distributed_params are
  // not reduced.
  Setting setting;
  Target target;
  Sink sink;

  // A problem that makes a rewrite wrong is an error in the weft dialect and a warning in the
  // paddle dialect.
  absl::Status RefuseOrWarn(absl::string_view pass, const absl::Status& problem) const {
    if (problem.ok() || target.dialect == Dialect::kWeft) return problem;
    sink.Say({Severity::kWarning, Message::Topic::kPaddleDefect, "",
              absl::StrCat("pass ", pass, ": ", problem.message())});
    return absl::OkStatus();
  }
};

// The properties that a pair of programs has: name to evidence ("op 17 (c_allreduce_sum) takes
// fc_0.w_0@GRAD"). transpiler/passes/support/properties.h names those of Weft's passes; other
// passes may add more.
using Properties = std::map<std::string, std::string>;

// Orders passes by properties.
//
//   Contract().Needs(kRingsSetUp).Provides(kParametersEqual).ConflictsWith(kParametersEqual)
struct Contract {
  std::vector<std::string> needs;           // must hold before the pass
  std::vector<std::string> provides;        // hold after it
  std::vector<std::string> conflicts_with;  // must not hold before it

  Contract& Needs(std::string property) { return Add(std::move(property), &needs); }
  Contract& Provides(std::string property) { return Add(std::move(property), &provides); }
  Contract& ConflictsWith(std::string property) {
    return Add(std::move(property), &conflicts_with);
  }
  // The pass must not run twice.
  Contract& ProvidesOnce(const std::string& property) {
    return Provides(property).ConflictsWith(property);
  }

 private:
  Contract& Add(std::string property, std::vector<std::string>* properties) {
    properties->push_back(std::move(property));
    return *this;
  }
};

// What the caller of a pipeline decides by.
enum class PassTrait {
  kReadsOpTimes,          // Forecast::gradient_ready
  kReadsCollectiveTimes,  // Target::collective_time
  kReadsUpdateOptions,    // ParamAttrs::lr_ratio and weight_decay
  kMakesServer,           // moves parameters to servers (Sink::AddServer)
  kLeavesServed,          // leaves the gradients of parameters that servers hold as they are
  // Alone, on a program for one device, it changes the computation as it does in the pipeline. So
  // the result of a pipeline is compared with what such passes make of the original.
  kChangesAnyProgram,
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
  virtual bool HasTrait(PassTrait trait) const { return false; }
  // Adds what the pass will do that claims and earlier passes go by. `programs`: before the first
  // pass.
  virtual void Foresee(const ConstProgramPair& programs, const PassContext& context,
                       Forecast* forecast) const {}
  // Returns whether a program changed. After an error, the programs must not be used.
  virtual absl::StatusOr<bool> Run(const PassContext& context, ProgramPair& programs) const = 0;
};

// Commits the edits of a pass. Returns whether there were any, as Pass::Run does.
inline absl::StatusOr<bool> CommitEdits(Rewriter* rewriter) {
  if (rewriter->empty()) return false;
  WEFT_RETURN_IF_ERROR(rewriter->Commit());
  return true;
}

}  // namespace weft

#endif  // WEFT_TRANSPILER_PIPELINE_PASS_H_
