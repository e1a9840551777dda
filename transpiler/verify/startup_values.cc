#include "transpiler/verify/startup_values.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace weft {

StartupValues ReadStartupValues(const Program& startup, RankValuesOptions options) {
  options.start = nullptr;
  options.observer = nullptr;
  options.is_startup = true;
  const RankValues values = RankValues::Of(startup, options);
  StartupValues read;
  for (VarId var : startup.block(0).vars()) {
    if (values.IsWritten(var)) read.emplace(startup.var(var).name(), values.AtEnd(var));
  }
  return read;
}

void CheckStartupValues(const Program& original, const StartupValues& found,
                        const ComparedVariables& variables, ExpressionTable* table,
                        Reporter* reporter) {
  RankValuesOptions one;
  one.is_one_device = true;
  one.is_startup = true;
  one.table = table;
  const RankValues before = RankValues::Of(original, one);
  for (VarId var : original.block(0).vars()) {
    const absl::string_view name = original.var(var).name();
    if (!original.var(var).persistable() || !before.IsWritten(var)) continue;
    if (variables.IsSkipped(name)) continue;
    const auto value = found.find(name);
    const RankValue& expected = before.AtEnd(var);
    if (value == found.end()) {
      reporter->Add("W606", OpId(), name,
                    absl::StrCat("variable ", name, ": expected ", table->ToString(expected.expr),
                                 " when training begins, found nothing"));
      continue;
    }
    const bool has_factor = expected.is_zero || SameFactor(value->second.factor, expected.factor);
    if (value->second.expr == expected.expr && has_factor) continue;
    const ExpressionTable::Difference difference =
        table->FindDifference(expected.expr, value->second.expr);
    reporter->Add("W606", OpId(), name,
                  absl::StrCat("variable ", name, ": expected ", difference.a,
                               " when training begins, found ", difference.b));
  }
}

}  // namespace weft
