#include "ops/analysis/core/communication.h"

#include <algorithm>
#include <limits>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "ops/schema/across_ranks.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/op_attrs.h"
#include "proto/all_ops.h"
#include "proto/setting.h"

namespace weft {
namespace {

bool NamesRing(const Op& op) {
  const std::vector<OpSignature::Attr>& attrs = op.signature().attrs;
  return std::any_of(attrs.begin(), attrs.end(), [&](const OpSignature::Attr& attr) {
    return op.program().name(attr.name) == "ring_id";
  });
}

}  // namespace

Communications::Communications(const ProgramFacts& facts)
    : traits_(facts.Get<OpTraits>()),
      assumptions_(AssumptionsOf(facts.program())),
      by_signature_(facts.program().num_signatures()) {
  for (const Op& op : AllOps(facts.program())) {
    absl::optional<Communication>& known = by_signature_[op.signature_id()];
    if (!known.has_value()) known = Classify(op);
  }
}

Communication Communications::Of(const Op& op) const {
  const uint32_t signature = op.signature_id();
  const bool is_known = signature < by_signature_.size() && by_signature_[signature].has_value();
  const Communication found = is_known ? *by_signature_[signature] : Classify(op);
  if (found == Communication::kUnknown && RingOf(op) < 0) return Communication::kNone;
  if (found != Communication::kMoments) return found;
  // Attributes decide. If they cannot be read (W104, W105), the op counts as one that communicates.
  const absl::StatusOr<OpAttrs> attrs = OpAttrs::Decode(op, *traits_.SchemaOf(op));
  const bool is_local = attrs.ok() && !ComputesAcrossRanks(op.type(), *attrs);
  return is_local ? Communication::kNone : Communication::kMoments;
}

Communication Communications::Classify(const Op& op) const {
  const absl::optional<MessageOp> message = FindMessageOp(op.type());
  if (message == MessageOp::kSend) return Communication::kSend;
  if (message == MessageOp::kReceive) return Communication::kReceive;
  if (op.type() == kBarrierType) return Communication::kBarrier;
  const OpSchema* schema = traits_.SchemaOf(op);
  if (schema == nullptr) {
    const bool is_assumed = FindAssumption(assumptions_, op.type()) != nullptr;
    return NamesRing(op) && !is_assumed ? Communication::kUnknown : Communication::kNone;
  }
  if (schema->Has(Trait::kCollective)) return Communication::kCollective;
  return ComputesAcrossRanks(op.type(), OpAttrs::Make(*schema)) ? Communication::kMoments
                                                                : Communication::kNone;
}

bool Communicates(const ProgramFacts& facts) {
  const Communications& communications = facts.Get<Communications>();
  return absl::c_any_of(AllOps(facts.program()), [&](const Op& op) {
    const Communication communication = communications.Of(op);
    return communication != Communication::kNone && communication != Communication::kMoments;
  });
}

absl::StatusOr<std::vector<int>> GroupRanksOf(const Op& op) {
  std::vector<int> ranks;
  if (!op.HasAttr(kGroupRanksAttr)) return ranks;
  const absl::optional<std::vector<int64_t>> values = op.IntsAttr(kGroupRanksAttr);
  const auto error = [&](absl::string_view found) {
    return absl::InvalidArgumentError(
        absl::StrCat(op.DebugName(), " attribute ", kGroupRanksAttr,
                     ": expected distinct ranks in ascending order, found ", found));
  };
  if (!values.has_value()) return error("another type than INTS");
  if (values->empty()) return error("none");
  for (int64_t rank : *values) {
    const bool fits = rank >= 0 && rank <= std::numeric_limits<int>::max();
    if (!fits || (!ranks.empty() && rank <= ranks.back())) {
      return error(absl::StrJoin(*values, ", "));
    }
    ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

std::string GroupText(const std::vector<int>& ranks) {
  if (ranks.empty()) return "all ranks";
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(ranks, ", "));
}

}  // namespace weft
