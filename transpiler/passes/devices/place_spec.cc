#include "transpiler/passes/devices/place_spec.h"

#include <limits>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "ops/schema/buffer_slices.h"
#include "ops/schema/op_schema.h"
#include "proto/all_ops.h"
#include "proto/op_role.h"
#include "transpiler/passes/support/name_pattern.h"
#include "transpiler/passes/support/op_queries.h"

namespace weft {
namespace {

constexpr absl::string_view kAccelerators[] = {"sim", "gpu"};

bool IsAccelerator(absl::string_view device) {
  return absl::c_linear_search(kAccelerators, device);
}

// Whether the variable is a parameter that matches, or the gradient of one.
bool IsOfParam(absl::string_view pattern, const Op& op, Symbol symbol) {
  const Program& program = op.program();
  absl::string_view name = program.name(symbol);
  absl::ConsumeSuffix(&name, kGradSuffix);
  if (!MatchesPattern(pattern, name)) return false;
  const VarId var = program.block(0).FindVar(name);
  return var.valid() && program.var(var).persistable();
}

// Whether a variable that the op writes matches. One that makes a buffer makes room for parts,
// which other ops write.
bool WritesMatch(absl::string_view pattern, const Op& op) {
  const auto matches = [&](Symbol name) {
    return MatchesPattern(pattern, op.program().name(name));
  };
  if (!HasTrait(op, Trait::kAlias)) return absl::c_any_of(op.output_args(), matches);
  const MadeBuffer buffer = MadeBufferOf(op);
  return buffer.name.valid() && matches(buffer.name);
}

}  // namespace

absl::StatusOr<PlaceSpec> PlaceSpec::Parse(absl::string_view text) {
  PlaceSpec spec;
  absl::string_view accelerator;
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ',', absl::SkipWhitespace());
  if (parts.empty() && !text.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "place '", absl::CEscape(text), "': expected rules, separated by commas, found none"));
  }
  for (absl::string_view part : parts) {
    part = absl::StripAsciiWhitespace(part);
    if (part == kOpDeviceAttr) continue;
    const auto error = [&](absl::string_view message) {
      return absl::InvalidArgumentError(
          absl::StrCat("place '", absl::CEscape(part), "': ", message));
    };
    const std::vector<std::string> sides = absl::StrSplit(part, absl::MaxSplits('=', 1));
    const std::vector<std::string> what = absl::StrSplit(sides[0], absl::MaxSplits(':', 1));
    if (sides.size() != 2 || what.size() != 2 || what[1].empty()) {
      return error("expected type:PATTERN=DEVICE, param:PATTERN=DEVICE or name:PATTERN=DEVICE");
    }
    Rule rule{std::string(part), By::kType, what[1], DeviceKind::kHost};
    if (what[0] == "param") {
      rule.by = By::kParam;
    } else if (what[0] == "name") {
      rule.by = By::kName;
    } else if (what[0] != "type") {
      return error(absl::StrCat("expected type, param or name, found '", what[0], "'"));
    }
    if (IsAccelerator(sides[1])) {
      if (!accelerator.empty() && accelerator != sides[1]) {
        return error(absl::StrCat("expected one kind of accelerator, found ", accelerator, " and ",
                                  sides[1]));
      }
      accelerator = sides[1] == kAccelerators[0] ? kAccelerators[0] : kAccelerators[1];
      rule.device = DeviceKind::kAccelerator;
    } else if (sides[1] != kHostDeviceName) {
      return error(absl::StrCat("expected device cpu, sim or gpu, found '", sides[1], "'"));
    }
    spec.rules_.push_back(std::move(rule));
  }
  if (!accelerator.empty()) spec.accelerator_ = std::string(accelerator);
  const auto on_accelerator = [](const Rule& rule) {
    return rule.device == DeviceKind::kAccelerator;
  };
  if (!spec.rules_.empty() && absl::c_all_of(spec.rules_, on_accelerator)) {
    spec.rest_ = DeviceKind::kHost;
  }
  return spec;
}

bool PlaceSpec::Matches(const Rule& rule, const Op& op) {
  const auto is_of_param = [&](Symbol name) { return IsOfParam(rule.pattern, op, name); };
  switch (rule.by) {
    case By::kType:
      return MatchesPattern(rule.pattern, op.type());
    case By::kName:
      return WritesMatch(rule.pattern, op);
    case By::kParam: {
      const bool names_only = HasTrait(op, Trait::kCollective) ||
                              HasTrait(op, Trait::kStreamSync) || HasTrait(op, Trait::kAlias);
      if (!names_only) return absl::c_any_of(op.args(), is_of_param);
      return !op.args().empty() && absl::c_all_of(op.args(), is_of_param);
    }
  }
  return false;
}

absl::optional<DeviceKind> PlaceSpec::Find(const Op& op) const {
  const auto rule = absl::c_find_if(rules_, [&](const Rule& r) { return Matches(r, op); });
  if (rule == rules_.end()) return absl::nullopt;
  return rule->device;
}

absl::StatusOr<DeviceKind> PlaceSpec::Default(const Op& op) const {
  const std::string device = op.StringAttr(kOpDeviceAttr).value_or("");
  if (device == kHostDeviceName) return DeviceKind::kHost;
  if (device.empty()) return rest_;
  // "gpu:0" is what Paddle's pipelines write.
  const absl::string_view kind = absl::string_view(device).substr(0, device.find(':'));
  if (!IsAccelerator(kind)) {
    return absl::InvalidArgumentError(absl::StrCat(op.DebugName(), " attribute ", kOpDeviceAttr,
                                                   ": expected cpu, sim or gpu, found '",
                                                   absl::CEscape(device), "'"));
  }
  return DeviceKind::kAccelerator;
}

std::vector<std::string> PlaceSpec::UpdatedOnHost(const Program& program) const {
  std::vector<std::string> params;
  std::vector<bool> is_made_on_host(program.symbols().size(), false);
  for (const Op& op : BlockOps(program, 0)) {
    const DeviceKind device = Find(op).value_or(Default(op).value_or(DeviceKind::kAccelerator));
    const bool on_host = device == DeviceKind::kHost;
    if (on_host && HasTrait(op, Trait::kOptimizer) &&
        absl::c_none_of(op.Input("Grad"),
                        [&](Symbol grad) { return is_made_on_host[grad.value()]; })) {
      for (Symbol param : op.Input("Param")) params.emplace_back(program.name(param));
    }
    for (Symbol output : op.output_args()) is_made_on_host[output.value()] = on_host;
  }
  return params;
}

std::vector<PlaceSpec::UnusedRule> PlaceSpec::Unused(const Program& program) const {
  constexpr size_t kNone = std::numeric_limits<size_t>::max();
  std::vector<bool> is_used(rules_.size(), false);
  struct Taken {
    OpId op;  // the first that the rule matches
    size_t by = kNone;
  };
  std::vector<Taken> taken(rules_.size());
  for (const Op& op : AllOps(program)) {
    size_t first = kNone;
    for (size_t r = 0; r < rules_.size(); ++r) {
      if ((is_used[r] && first != kNone) || !Matches(rules_[r], op)) continue;
      if (first == kNone) {
        first = r;
        is_used[r] = true;
      } else if (taken[r].by == kNone) {
        taken[r] = {op.id(), first};
      }
    }
  }
  std::vector<UnusedRule> unused;
  for (size_t r = 0; r < rules_.size(); ++r) {
    if (is_used[r]) continue;
    if (taken[r].by == kNone) {
      unused.push_back({rules_[r].text, "found none that matches"});
      continue;
    }
    unused.push_back(
        {rules_[r].text,
         absl::StrCat("found that earlier rules take all that match: '", rules_[taken[r].by].text,
                      "' takes ", program.op(taken[r].op).DebugName(),
                      "; rules are tried in order: remove it, or put it first")});
  }
  return unused;
}

}  // namespace weft
