#include "transpiler/verifier/value_options.h"

#include "ops/analysis/core/op_traits.h"
#include "ops/analysis/training/num_ranks.h"

namespace weft {
namespace {

// Whether one process drives all ranks and runs the startup program once for all of them: it sets
// up rings without an id from another process.
bool IsOneProcess(const Program& startup) {
  OpTraits traits(startup);
  bool sets_up = false;
  for (OpId id : startup.block(0).ops()) {
    const Op op = startup.op(id);
    if (!traits.Has(op, Trait::kRingSetup)) continue;
    if (!op.input_args().empty() || !op.output_args().empty()) return false;
    sets_up = true;
  }
  return sets_up;
}

}  // namespace

absl::optional<int> NumRanks(const Setting& setting, const ConstProgramPair& programs,
                             size_t num_programs) {
  return setting.nranks.has_value() ? setting.nranks
                                    : FindNumRanks(*programs.main, programs.startup, num_programs);
}

RankValuesOptions ValueOptions(const Setting& setting, const ConstProgramPair& programs,
                               StartupValues* start, const std::vector<int>& group) {
  RankValuesOptions values;
  values.setting = setting;
  values.group = group;
  if (programs.startup != nullptr && !IsOneProcess(*programs.startup)) {
    RankValuesOptions of_startup;
    of_startup.setting.nranks = setting.nranks;
    of_startup.group = group;
    *start = ReadStartupValues(*programs.startup, of_startup);
    values.start = start;
  }
  return values;
}

}  // namespace weft
