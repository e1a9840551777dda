#include "transpiler/verify/rules.h"

#include <cstdlib>
#include <iostream>

#include "transpiler/verify/across_ranks.h"
#include "transpiler/verify/communication.h"
#include "transpiler/verify/equivalence.h"
#include "transpiler/verify/races.h"
#include "transpiler/verify/structure.h"
#include "transpiler/verify/types.h"

namespace weft {

absl::string_view LayerName(Layer layer) {
  switch (layer) {
    case Layer::kStructure:
      return "structure";
    case Layer::kTypes:
      return "types";
    case Layer::kCommunication:
      return "communication";
    case Layer::kRaces:
      return "races";
    case Layer::kAcrossRanks:
      return "across ranks";
    case Layer::kEquivalence:
      return "equivalence";
  }
  return "unknown";
}

const std::vector<Rule>& Rules() {
  static const auto* rules = [] {
    auto* all = new std::vector<Rule>();
    for (absl::Span<const Rule> layer : {StructureRules(), TypeRules(), CommunicationRules(),
                                         RaceRules(), AcrossRanksRules(), EquivalenceRules()}) {
      all->insert(all->end(), layer.begin(), layer.end());
    }
    return all;
  }();
  return *rules;
}

const Rule& FindRule(absl::string_view id) {
  for (const Rule& rule : Rules()) {
    if (rule.id == id) return rule;
  }
  std::cerr << "no rule " << id << "\n";
  std::abort();
}

}  // namespace weft
