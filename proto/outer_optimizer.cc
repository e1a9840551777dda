#include "proto/outer_optimizer.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/spec_text.h"

namespace weft {
namespace {

using Rule = OuterOptimizer::Rule;

struct KnownRule {
  const char* name;
  OuterOptimizer defaults;
};

constexpr KnownRule kRules[] = {
    {"averaging", {Rule::kAveraging, 1, 0}},
    {"sgd", {Rule::kSgd, 1, 0}},
    {"nesterov", {Rule::kNesterov, 0.7, 0.9}},
    {"slowmo", {Rule::kSlowMo, 1, 0.5}},
};

// The option of that name; null if the rule has none.
double* FindOption(const std::string& name, OuterOptimizer* outer) {
  if (name == "lr" && outer->HasState()) return &outer->lr;
  if (name == "momentum" && outer->HasMomentum()) return &outer->momentum;
  return nullptr;
}

bool IsInRange(const OuterOptimizer& outer) {
  return std::isfinite(outer.lr) && outer.lr > 0 &&
         (!outer.HasMomentum() || (outer.momentum > 0 && outer.momentum < 1));
}

// The shortest text that reads back exactly.
std::string NumberText(double number) {
  std::string text = absl::StrCat(number);
  double read = 0;
  if (!absl::SimpleAtod(text, &read) || read != number) text = absl::StrFormat("%.17g", number);
  return text;
}

}  // namespace

absl::StatusOr<OuterOptimizer> ParseOuterOptimizer(absl::string_view text) {
  const absl::Status expected = absl::InvalidArgumentError(
      absl::StrCat("outer: expected ", kOuterOptimizers, ", found '", absl::CEscape(text), "'"));
  const absl::StatusOr<std::vector<Spec>> specs = ParseSpecs(text);
  if (!specs.ok() || specs->size() != 1) return expected;
  for (const KnownRule& known : kRules) {
    if (known.name != specs->front().name) continue;
    OuterOptimizer outer = known.defaults;
    for (const auto& [name, value] : specs->front().options) {
      double* const option = FindOption(name, &outer);
      if (option == nullptr || !absl::SimpleAtod(value, option)) return expected;
    }
    if (!IsInRange(outer)) return expected;
    return outer;
  }
  return expected;
}

std::string ToString(const OuterOptimizer& outer) {
  std::string text;
  for (const KnownRule& known : kRules) {
    if (known.defaults.rule == outer.rule) text = known.name;
  }
  if (!outer.HasState()) return text;
  absl::StrAppend(&text, "{lr=", NumberText(outer.lr));
  if (outer.HasMomentum()) absl::StrAppend(&text, ",momentum=", NumberText(outer.momentum));
  return text + "}";
}

}  // namespace weft
