#include "proto/op_assumptions.h"

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"

namespace weft {
namespace {

constexpr char kNoCommunication[] = "no_communication";

constexpr std::pair<const char*, bool OpAssumption::*> kWords[] = {
    {"elementwise", &OpAssumption::is_elementwise},
    {"per_sample", &OpAssumption::is_per_sample},
    {"linear", &OpAssumption::is_linear},
};

}  // namespace

absl::StatusOr<OpAssumption> ParseOpAssumption(absl::string_view words) {
  OpAssumption assumption;
  for (absl::string_view word : absl::StrSplit(words, '|')) {
    word = absl::StripAsciiWhitespace(word);
    bool is_known = word == kNoCommunication;
    for (const auto& [name, field] : kWords) {
      if (word != name) continue;
      assumption.*field = is_known = true;
    }
    if (is_known) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "expected elementwise, per_sample, linear or no_communication, joined by |, found '", word,
        "'"));
  }
  return assumption;
}

std::string ToString(const OpAssumption& assumption) {
  std::vector<std::string> words;
  for (const auto& [name, field] : kWords) {
    if (assumption.*field) words.emplace_back(name);
  }
  return words.empty() ? kNoCommunication : absl::StrJoin(words, "|");
}

absl::StatusOr<OpAssumptions> ParseOpAssumptions(absl::string_view text) {
  OpAssumptions assumptions;
  if (text.empty()) return assumptions;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> sides =
        absl::StrSplit(part, absl::MaxSplits(':', 1));
    const std::string type(absl::StripAsciiWhitespace(sides.first));
    if (type.empty() || sides.second.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "expected 'OP_TYPE: elementwise|per_sample|linear|no_communication', found '", part,
          "'"));
    }
    const absl::StatusOr<OpAssumption> assumption = ParseOpAssumption(sides.second);
    if (!assumption.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(type, ": ", assumption.status().message()));
    }
    if (!assumptions.emplace(type, *assumption).second) {
      return absl::InvalidArgumentError(absl::StrCat(type, ": expected once, found twice"));
    }
  }
  return assumptions;
}

const OpAssumption* FindAssumption(const OpAssumptions& assumptions, absl::string_view type) {
  if (assumptions.empty()) return nullptr;
  auto found = assumptions.find(std::string(type));
  if (found == assumptions.end() && absl::ConsumeSuffix(&type, "_grad")) {
    found = assumptions.find(std::string(type));
  }
  return found == assumptions.end() ? nullptr : &found->second;
}

}  // namespace weft
