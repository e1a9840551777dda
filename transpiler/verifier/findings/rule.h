// The rules of the verifier.
//
// transpiler/verifier/rules/<id>.prog holds the manual's text of a rule and a program that breaks
// it. docs/verifier.md is generated from these files.
#ifndef WEFT_TRANSPILER_VERIFIER_FINDINGS_RULE_H_
#define WEFT_TRANSPILER_VERIFIER_FINDINGS_RULE_H_

#include <cstdint>
#include <set>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace weft {

enum class Severity : uint8_t {
  kError,    // the program is wrong, or cannot be proved right
  kWarning,  // the program may be right, but deviates from what it should be
  kNote,     // the program is right, but could be faster or rests on an assumption
};

absl::string_view SeverityName(Severity severity);  // "error"

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

struct Rule {
  const char* id;  // "W101"
  Layer layer;
  Severity severity;
  const char* title;  // one line
};

// All rules, sorted by id.
absl::Span<const Rule> Rules();
// CHECK-fails for an unknown rule. O(log rules).
const Rule& FindRule(absl::string_view id);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFIER_FINDINGS_RULE_H_
