#include "ops/analysis/communication.h"

#include <algorithm>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ops/schema/across_ranks.h"
#include "ops/schema/op_attrs.h"

namespace weft {
namespace {

constexpr absl::string_view kSends[] = {"p_send", "partial_send", "send_v2"};
constexpr absl::string_view kReceives[] = {"p_recv", "partial_recv", "recv_v2"};

template <size_t n>
bool IsOneOf(absl::string_view type, const absl::string_view (&types)[n]) {
  return std::find(types, types + n, type) != types + n;
}

bool NamesRing(const Op& op) {
  const std::vector<OpSignature::Attr>& attrs = op.signature().attrs;
  return std::any_of(attrs.begin(), attrs.end(), [&](const OpSignature::Attr& attr) {
    return op.program().name(attr.name) == "ring_id";
  });
}

}  // namespace

Communication Communications::Of(const Op& op) {
  absl::optional<Communication>& known = by_signature_[op.signature_id()];
  if (!known.has_value()) known = Classify(op);
  if (*known == Communication::kUnknown && RingOf(op) < 0) return Communication::kNone;
  if (*known != Communication::kMoments) return *known;
  // Attributes decide. If they cannot be read (W104, W105), the op counts as one that communicates.
  const absl::StatusOr<OpAttrs> attrs = OpAttrs::Decode(op, *traits_.SchemaOf(op));
  const bool is_local = attrs.ok() && !ComputesAcrossRanks(op.type(), *attrs);
  return is_local ? Communication::kNone : Communication::kMoments;
}

Communication Communications::Classify(const Op& op) {
  const OpSchema* schema = traits_.SchemaOf(op);
  if (schema == nullptr) {
    if (IsOneOf(op.type(), kSends)) return Communication::kSend;
    if (IsOneOf(op.type(), kReceives)) return Communication::kReceive;
    return NamesRing(op) ? Communication::kUnknown : Communication::kNone;
  }
  if (schema->Has(Trait::kCollective)) return Communication::kCollective;
  return ComputesAcrossRanks(op.type(), OpAttrs::Make(*schema)) ? Communication::kMoments
                                                                : Communication::kNone;
}

bool Communicates(const Program& program) {
  Communications communications(program);
  for (int block = 0; block < program.num_blocks(); ++block) {
    for (OpId id : program.block(block).ops()) {
      const Communication communication = communications.Of(program.op(id));
      if (communication != Communication::kNone && communication != Communication::kMoments) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace weft
