#include "ops/analysis/stream_survey.h"

#include <algorithm>
#include <set>

#include "absl/types/optional.h"
#include "ops/analysis/communication.h"
#include "ops/analysis/op_traits.h"
#include "ops/schema/op_schema.h"

namespace weft {

class StreamSurvey::Visitor {
 public:
  Visitor(const Program& program, StreamSurvey* survey)
      : program_(program),
        survey_(*survey),
        traits_(program),
        communications_(program),
        signatures_(program.num_signatures()) {}

  void VisitAll() {
    for (int b = 0; b < program_.num_blocks(); ++b) {
      for (OpId id : program_.block(b).ops()) Visit(program_.op(id));
    }
    survey_.ring_ids_.assign(rings_.begin(), rings_.end());
    for (std::vector<SpecialOp>& ops : survey_.special_) {
      for (SpecialOp& op : ops) {
        if (op.kind == Kind::kRingOp) op.index = survey_.StreamOfRing(op.index);
      }
    }
  }

 private:
  using Kind = SpecialOp::Kind;

  struct SignatureInfo {
    bool is_classified = false;
    absl::optional<Kind> kind;  // none: no SpecialOp
    bool is_registered = true;
    StreamSync sync = StreamSync::kAllWaitForCompute;
  };
  struct RingAttrs {
    int ring_id = 0;
    bool on_compute = false;
  };

  void Visit(const Op& op) {
    SignatureInfo& signature = signatures_[op.signature_id()];
    if (!signature.is_classified) signature = Classify(op);
    if (!signature.is_registered) VisitUnregistered(op);
    if (!signature.kind.has_value()) return;
    int index = 0;
    if (*signature.kind == Kind::kRingOp) {
      const RingAttrs ring = Decode(op);
      if (ring.on_compute) return;
      rings_.insert(ring.ring_id);
      index = ring.ring_id;  // VisitAll replaces it by the stream
    } else if (*signature.kind == Kind::kSync) {
      index = static_cast<int>(survey_.syncs_.size());
      survey_.syncs_.push_back({op.id(), signature.sync, Decode(op).ring_id});
    }
    if (*signature.kind == Kind::kRingOp || *signature.kind == Kind::kFuse) Watch(op);
    survey_.special_[op.block()].push_back({*signature.kind, op.position(), index});
  }

  void VisitUnregistered(const Op& op) {
    const Communication communication = communications_.Of(op);
    if (communication == Communication::kNone) return;
    const bool on_compute = Decode(op).on_compute;
    OpId& first = on_compute ? survey_.unknown_on_compute_ : survey_.unknown_communication_;
    const bool is_known = on_compute && communication != Communication::kUnknown;
    if (!first.valid() && !is_known) first = op.id();
  }

  SignatureInfo Classify(const Op& op) {
    SignatureInfo signature;
    bool holds_blocks = false;
    const std::vector<OpSignature::Attr>& attrs = op.signature().attrs;
    for (size_t i = 0; i < attrs.size(); ++i) {
      if (attrs[i].type == pb::BLOCK || attrs[i].type == pb::BLOCKS) holds_blocks = true;
    }
    const OpSchema* schema = traits_.SchemaOf(op);
    const auto has = [&](Trait trait) { return schema != nullptr && schema->Has(trait); };
    const absl::optional<StreamSync> sync = FindStreamSyncOp(op.type());
    signature.is_classified = true;
    if (has(Trait::kStreamSync) && sync.has_value()) {
      signature.kind = Kind::kSync;
      signature.sync = *sync;
    } else if (has(Trait::kRingSetup)) {
      signature.kind = Kind::kRingSetup;
    } else if (has(Trait::kBranch)) {
      signature.kind = Kind::kBranch;
    } else if (holds_blocks) {
      signature.kind = Kind::kHoldsBlocks;
    } else if (has(Trait::kCollective)) {
      signature.kind = Kind::kRingOp;
    } else if (has(Trait::kAlias)) {
      signature.kind = Kind::kFuse;
    }
    signature.is_registered = schema != nullptr;
    return signature;
  }

  static RingAttrs Decode(const Op& op) {
    RingAttrs ring;
    ring.ring_id = static_cast<int>(op.IntAttr("ring_id").value_or(0));
    ring.on_compute = op.BoolAttr("use_calc_stream").value_or(false);
    return ring;
  }

  void Watch(const Op& op) {
    for (Symbol name : op.args()) {
      survey_.is_watched_[name.value()] = program_.name(name) != kEmptyVarName;
    }
  }

  const Program& program_;
  StreamSurvey& survey_;
  OpTraits traits_;
  Communications communications_;
  std::vector<SignatureInfo> signatures_;  // by Op::signature_id
  std::set<int> rings_;                    // with a stream
};

StreamSurvey::StreamSurvey(const Program& program)
    : special_(program.num_blocks()), is_watched_(program.symbols().size(), 0) {
  Visitor(program, this).VisitAll();
}

int StreamSurvey::StreamOfRing(int ring_id) const {
  const auto it = std::lower_bound(ring_ids_.begin(), ring_ids_.end(), ring_id);
  if (it == ring_ids_.end() || *it != ring_id) return -1;
  return static_cast<int>(it - ring_ids_.begin()) + 1;
}

}  // namespace weft
