#include "transpiler/verifier/findings/rule.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>

namespace weft {
namespace {

constexpr Rule kRules[] = {
    {"W101", Layer::kStructure, Severity::kError, "undeclared variable"},
    {"W102", Layer::kStructure, Severity::kError, "required input missing"},
    {"W103", Layer::kStructure, Severity::kError, "several variables in a slot for one"},
    {"W104", Layer::kStructure, Severity::kError, "required attribute missing"},
    {"W105", Layer::kStructure, Severity::kError, "attribute of the wrong type"},
    {"W106", Layer::kStructure, Severity::kError, "variable read before it is written"},
    {"W107", Layer::kStructure, Severity::kWarning, "variable possibly read before it is written"},
    {"W108", Layer::kStructure, Severity::kError,
     "variable that the startup program does not keep"},
    {"W201", Layer::kTypes, Severity::kError,
     "inputs or attributes of an op do not fit each other"},
    {"W202", Layer::kTypes, Severity::kError,
     "declared element type differs from the computed one"},
    {"W203", Layer::kTypes, Severity::kError, "declared shape differs from the computed one"},
    {"W204", Layer::kTypes, Severity::kError, "dense variable holds SelectedRows, or the reverse"},
    {"W205", Layer::kTypes, Severity::kWarning,
     "scalar declared as a tensor of one element, or the reverse"},
    {"W206", Layer::kTypes, Severity::kError,
     "state that begins with another type than the main program declares"},
    {"W301", Layer::kCommunication, Severity::kError, "uninitialized ring"},
    {"W302", Layer::kCommunication, Severity::kError, "op written for another number of ranks"},
    {"W303", Layer::kCommunication, Severity::kError, "rank out of range"},
    {"W304", Layer::kCommunication, Severity::kError,
     "reduction of an element type that collectives cannot reduce"},
    {"W305", Layer::kCommunication, Severity::kError,
     "collective that changes the shape works in place"},
    {"W306", Layer::kCommunication, Severity::kError,
     "SelectedRows given to a collective for dense tensors"},
    {"W307", Layer::kCommunication, Severity::kError, "contradictory ring set-up"},
    {"W308", Layer::kCommunication, Severity::kError, "ops disagree on the ranks of a ring"},
    {"W310", Layer::kCommunication, Severity::kError,
     "parameter updated by a gradient that was never reduced"},
    {"W311", Layer::kCommunication, Severity::kError,
     "parameter updated by the gradient of some ranks only"},
    {"W312", Layer::kCommunication, Severity::kError,
     "gradient summed over the ranks, but never divided"},
    {"W313", Layer::kCommunication, Severity::kError,
     "gradient reduced or divided after a nonlinear op"},
    {"W314", Layer::kCommunication, Severity::kError,
     "gradient divided by the number of ranks too often"},
    {"W315", Layer::kCommunication, Severity::kError,
     "gradient adds scaled or reduced terms to terms that are not"},
    {"W316", Layer::kCommunication, Severity::kWarning, "redundant reduction of a gradient"},
    {"W317", Layer::kCommunication, Severity::kError, "parameters differ between ranks"},
    {"W319", Layer::kCommunication, Severity::kError,
     "residual of sparsified gradients that is not kept"},
    {"W320", Layer::kCommunication, Severity::kError,
     "sparsified gradients that are not sent, or become other gradients"},
    {"W401", Layer::kRaces, Severity::kError, "read races with an earlier write"},
    {"W402", Layer::kRaces, Severity::kError, "write races with an earlier read"},
    {"W403", Layer::kRaces, Severity::kError, "two streams write the same storage"},
    {"W404", Layer::kRaces, Severity::kError, "fused buffer used without one of its slices"},
    {"W405", Layer::kRaces, Severity::kNote, "redundant synchronization"},
    {"W406", Layer::kRaces, Severity::kNote, "synchronization of a ring without a stream"},
    {"W407", Layer::kRaces, Severity::kError, "races cannot be excluded"},
    {"W408", Layer::kRaces, Severity::kWarning, "unregistered op names a ring"},
    {"W409", Layer::kRaces, Severity::kError,
     "op uses a variable in the memory of the other device"},
    {"W410", Layer::kRaces, Severity::kError,
     "op on another device than the op that runs its block"},
    {"W411", Layer::kRaces, Severity::kError, "wait for a stream that does not exist"},
    {"W412", Layer::kRaces, Severity::kWarning,
     "accesses to a fused buffer that Paddle does not order"},
    {"W501", Layer::kAcrossRanks, Severity::kError, "ranks call different collectives on a ring"},
    {"W502", Layer::kAcrossRanks, Severity::kError,
     "inconsistent order of collectives across rings"},
    {"W503", Layer::kAcrossRanks, Severity::kError,
     "ranks disagree on the condition of a block with collectives"},
    {"W504", Layer::kAcrossRanks, Severity::kWarning, "collectives in a loop"},
    {"W505", Layer::kAcrossRanks, Severity::kError, "ranks exchange different variables"},
    {"W506", Layer::kAcrossRanks, Severity::kError,
     "ranks compute the condition of a block with collectives differently"},
    {"W507", Layer::kAcrossRanks, Severity::kError,
     "two startup programs join a ring as the same rank"},
    {"W508", Layer::kAcrossRanks, Severity::kError, "send or receive without a partner"},
    {"W509", Layer::kAcrossRanks, Severity::kError, "ranks disagree about a ring"},
    {"W510", Layer::kAcrossRanks, Severity::kError, "ranks hold different values"},
    {"W511", Layer::kAcrossRanks, Severity::kError,
     "parameter that workers push and no server holds, or the reverse"},
    {"W512", Layer::kAcrossRanks, Severity::kError,
     "parameter of a server pulled, used or pushed at the wrong place in a step"},
    {"W513", Layer::kAcrossRanks, Severity::kError, "gradient both reduced and pushed to a server"},
    {"W514", Layer::kAcrossRanks, Severity::kError,
     "server without exactly one optimizer for a parameter"},
    {"W515", Layer::kAcrossRanks, Severity::kError, "worker keeps what servers hold"},
    {"W516", Layer::kAcrossRanks, Severity::kError,
     "workers and servers disagree on what they exchange"},
    {"W517", Layer::kAcrossRanks, Severity::kError,
     "rows of the next step prefetched by ids that are not fed"},
    {"W518", Layer::kAcrossRanks, Severity::kError, "collectives that nothing orders"},
    {"W601", Layer::kEquivalence, Severity::kError, "parameter update differs from the original"},
    {"W602", Layer::kEquivalence, Severity::kError, "state differs from the original"},
    {"W603", Layer::kEquivalence, Severity::kError, "persistable variable of the original missing"},
    {"W604", Layer::kEquivalence, Severity::kError,
     "parameter updated by each rank's own batch, and never averaged"},
    {"W605", Layer::kEquivalence, Severity::kError,
     "parameters averaged in other steps than expected"},
    {"W606", Layer::kEquivalence, Severity::kError,
     "variable begins with another value than in the original"},
    {"W607", Layer::kEquivalence, Severity::kError,
     "cannot decide whether a variable equals the original's"},
    {"W608", Layer::kEquivalence, Severity::kError,
     "feed variable lost, or of another element type"},
    {"W609", Layer::kEquivalence, Severity::kWarning, "state reset where parameters are averaged"},
    {"W610", Layer::kEquivalence, Severity::kError, "fetched value differs from the original"},
    {"W611", Layer::kEquivalence, Severity::kError, "original of a wrong structure"},
    {"W701", Layer::kBatch, Severity::kWarning, "loss that is no mean and no sum over the batch"},
    {"W702", Layer::kBatch, Severity::kError, "gradients averaged although the losses are sums"},
    {"W703", Layer::kBatch, Severity::kWarning, "state that ranks leave with different values"},
    {"W704", Layer::kBatch, Severity::kNote, "statistics of a rank's batch"},
    {"W705", Layer::kBatch, Severity::kNote, "random draws"},
    {"W706", Layer::kBatch, Severity::kWarning, "condition on values of a rank's batch"},
    {"W707", Layer::kBatch, Severity::kNote, "state that holds a rank's part of a mean"},
    {"W708", Layer::kBatch, Severity::kWarning,
     "update by a gradient without a known relation to the reference gradient"},
    {"W709", Layer::kBatch, Severity::kNote, "parameters averaged instead of gradients"},
    {"W710", Layer::kBatch, Severity::kWarning, "parameters averaged although the losses are sums"},
    {"W711", Layer::kBatch, Severity::kNote, "fetched values that are a rank's part"},
    {"W712", Layer::kBatch, Severity::kWarning, "fetched value unrelated to what one device has"},
    {"W713", Layer::kBatch, Severity::kNote, "gradient of a loop taken at its name"},
    {"W714", Layer::kBatch, Severity::kNote, "gradients sent in part"},
    {"W715", Layer::kBatch, Severity::kNote, "servers do not wait for all workers"},
    {"W716", Layer::kBatch, Severity::kNote, "mean over the labels that are not ignored"},
};

}  // namespace

absl::string_view SeverityName(Severity severity) {
  constexpr const char* kNames[] = {"error", "warning", "note"};
  return kNames[static_cast<int>(severity)];
}

absl::string_view LayerName(Layer layer) {
  constexpr const char* kNames[] = {"structure",    "types",       "communication", "races",
                                    "across ranks", "equivalence", "batch"};
  return kNames[static_cast<int>(layer) - 1];
}

absl::Span<const Rule> Rules() { return kRules; }

const Rule& FindRule(absl::string_view id) {
  const auto rule =
      std::lower_bound(std::begin(kRules), std::end(kRules), id,
                       [](const Rule& rule, absl::string_view id) { return rule.id < id; });
  if (rule == std::end(kRules) || rule->id != id) {
    std::cerr << "no rule " << id << " in transpiler/verifier/findings/rule.cc\n";
    std::abort();
  }
  return *rule;
}

}  // namespace weft
