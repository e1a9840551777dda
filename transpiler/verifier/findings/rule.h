// The rules of the verifier.
//
// transpiler/verifier/rules/<id>.prog holds the manual's text of a rule and a program that breaks
// it. docs/reference/verifier_rules.md is generated from these files.
#ifndef WEFT_TRANSPILER_VERIFIER_FINDINGS_RULE_H_
#define WEFT_TRANSPILER_VERIFIER_FINDINGS_RULE_H_

#include <cstdint>
#include <set>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/severity.h"

namespace weft {

// A kind of checks.
enum class Layer : uint8_t {
  kStructure = 1,
  kTypes = 2,
  kCommunication = 3,
  kRaces = 4,
  kAcrossRanks = 5,
  kEquivalence = 6,
  kBatch = 7,
};

absl::string_view LayerName(Layer layer);  // "structure"
inline std::set<Layer> AllLayers() {
  return {Layer::kStructure,   Layer::kTypes,       Layer::kCommunication, Layer::kRaces,
          Layer::kAcrossRanks, Layer::kEquivalence, Layer::kBatch};
}

// What a finding says, for code that acts on it: no code decides by a rule's id.
enum class FindingKind : uint8_t {
  kDefect,      // the program is not what it should be
  kDifference,  // ranks have other values than one device, or the proof rests on an assumption
  kReset,       // a difference: where parameters are averaged, a state begins anew
  kFactor,      // ops say that a gradient has a wrong factor; its value may say otherwise
  kLossScale,   // the losses say that gradients have a wrong factor
  kExpression,  // a value is another expression than the original computes
  kReordering,  // Paddle's executor may reorder accesses
  kPaddleOnly,  // Paddle's executor needs what the program lacks, that of Weft does not
  // How training begins: the executor of Weft sets up rings, draws alike on all ranks, and compares
  // what they begin with.
  kStart,
  kRace,           // accesses to one variable that no wait orders
  kUnwrittenRead,  // a variable has no value, unless it is fed
};

inline bool IsDifference(FindingKind kind) {
  return kind == FindingKind::kDifference || kind == FindingKind::kReset;
}

struct Rule {
  const char* id;  // "W101"
  Layer layer;
  Severity severity;
  const char* title;  // one line
  FindingKind kind = FindingKind::kDefect;
};

// All rules, sorted by id.
absl::Span<const Rule> Rules();
// CHECK-fails for an unknown rule. O(log rules).
const Rule& FindRule(absl::string_view id);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFIER_FINDINGS_RULE_H_
