// The rules of the verifier: what they demand, and why.
//
// A rule is written once, in the table of its layer (x_rules in x.cc), with a program that breaks
// it; docs/verifier.md lists all of them, and a test verifies every example.
#ifndef WEFT_TRANSPILER_VERIFY_RULES_H_
#define WEFT_TRANSPILER_VERIFY_RULES_H_

#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "transpiler/verify/finding.h"

namespace weft {

// In the order in which they run; their rules are numbered from 100, 200, ...
enum class Layer : uint8_t {
  kStructure = 1,
  kTypes = 2,
  kCommunication = 3,
  kRaces = 4,
  kAcrossRanks = 5,
  kEquivalence = 6,
};

absl::string_view LayerName(Layer layer);  // "structure"
inline std::set<Layer> AllLayers() {
  return {Layer::kStructure, Layer::kTypes,       Layer::kCommunication,
          Layer::kRaces,     Layer::kAcrossRanks, Layer::kEquivalence};
}

struct Rule {
  const char* id;  // "W101"; its first digit is the layer
  Severity severity;
  const char* title;  // one line: what must not be
  const char* why;    // what goes wrong where it is, and what to do: a sentence or two
  // Program text (proto/program_text.h) of a main program that breaks the rule, for 2 ranks. Where
  // it takes different programs to break it, this is that of rank 0, and `rank1` or `rank1_startup`
  // say what rank 1 runs.
  const char* example;
  // What it is compared with; null but for layer 6.
  const char* original = nullptr;
  // The startup program beside `example`; null: none.
  const char* startup = nullptr;
  // The startup program beside `original`; null: none.
  const char* original_startup = nullptr;
  // The main program of rank 1; null: `example`.
  const char* rank1 = nullptr;
  // The startup program of rank 1; null: `startup`.
  const char* rank1_startup = nullptr;

  // Whether the example is the programs of two ranks, rather than one for all.
  bool ranks_differ() const { return rank1 != nullptr || rank1_startup != nullptr; }
};

// All rules, by number. Layers add theirs.
const std::vector<Rule>& Rules();
// Dies for an id that is not in the table.
const Rule& FindRule(absl::string_view id);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFY_RULES_H_
