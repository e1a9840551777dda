#include "ops/analysis/streams/stream_survey.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/types/optional.h"
#include "ops/analysis/core/communication.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/analysis/devices/device_placement.h"
#include "ops/schema/buffer_slices.h"
#include "ops/schema/op_schema.h"
#include "proto/all_ops.h"

namespace weft {
namespace {

constexpr int kNumDeviceStreams = 3;
constexpr DeviceStream kCompute{DeviceStream::Kind::kAccelerator, -1};

}  // namespace

class StreamSurvey::Visitor {
 public:
  Visitor(const ProgramFacts& facts, StreamSurvey* survey)
      : program_(facts.program()),
        survey_(*survey),
        traits_(facts.Get<OpTraits>()),
        communications_(facts.Get<Communications>()),
        placement_(facts.Get<DevicePlacement>()),
        signatures_(program_.num_signatures()) {
    if (placement_.on_two_devices()) survey->num_device_streams_ = kNumDeviceStreams;
  }

  void VisitAll() {
    for (const Op& op : AllOps(program_)) Visit(op);
    survey_.ring_ids_.assign(rings_.begin(), rings_.end());
    for (const Use& use : uses_) {
      survey_.special_[use.block][use.index].index = survey_.StreamOf(use.stream);
    }
    for (Sync& sync : survey_.syncs_) FindStreams(&sync);
  }

 private:
  using Kind = SpecialOp::Kind;

  struct SignatureInfo {
    bool is_classified = false;
    absl::optional<Kind> kind;  // none: no SpecialOp
    bool is_registered = true;
    bool is_collective = false;  // or a message: runs on the stream of its ring
    bool is_copy = false;        // between two memories
    StreamSync sync = StreamSync::kAllWaitForCompute;
  };
  struct RingAttrs {
    int ring_id = 0;
    bool on_compute = false;
  };
  // A special op and its stream, which has a number when all rings are known.
  struct Use {
    int block;
    size_t index;  // into special_
    DeviceStream stream;
  };

  void Visit(const Op& op) {
    SignatureInfo& signature = signatures_[op.signature_id()];
    if (!signature.is_classified) signature = Classify(op);
    if (!signature.is_registered) VisitUnregistered(op);
    if (signature.kind == Kind::kSync) {
      const int index = static_cast<int>(survey_.syncs_.size());
      survey_.syncs_.push_back({op.id(), signature.sync, Decode(op).ring_id});
      return AddSpecial(op, Kind::kSync, index);
    }
    if (signature.kind == Kind::kRingSetup) return AddSpecial(op, Kind::kRingSetup, 0);
    const DeviceStream stream = StreamFor(op, signature);
    const bool is_plain = signature.kind.value_or(Kind::kStreamOp) == Kind::kStreamOp;
    if (is_plain && stream == kCompute) return;
    const bool shares = signature.kind == Kind::kFuse || signature.kind == Kind::kShare;
    if (!(stream == kCompute) || shares) Watch(op);
    uses_.push_back({op.block(), survey_.special_[op.block()].size(), stream});
    AddSpecial(op, signature.kind.value_or(Kind::kStreamOp), 0);
  }

  void AddSpecial(const Op& op, Kind kind, int index) {
    survey_.special_[op.block()].push_back({kind, op.position(), index});
  }

  // The stream of an op that is no synchronization.
  DeviceStream StreamFor(const Op& op, const SignatureInfo& signature) {
    if (signature.is_collective) {
      const RingAttrs ring = Decode(op);
      if (!ring.on_compute) {
        rings_.insert(ring.ring_id);
        return {DeviceStream::Kind::kRing, ring.ring_id};
      }
    }
    const DeviceKind device = placement_.DeviceOf(op.id());
    if (placement_.on_two_devices() && signature.is_copy) return {CopyStreamFrom(device), -1};
    return {ComputeStreamOf(device), -1};
  }

  void FindStreams(Sync* sync) const {
    const int ring = survey_.StreamOfRing(sync->ring_id);
    const int compute = survey_.StreamOf({ComputeStreamOf(placement_.DeviceOf(sync->op)), -1});
    switch (sync->sync) {
      case StreamSync::kRingWaitsForCompute:
        sync->waiting = ring;
        sync->awaited = compute;
        return;
      case StreamSync::kComputeWaitsForRing:
        sync->waiting = compute;
        sync->awaited = ring;
        return;
      case StreamSync::kAllWaitForCompute:
        sync->awaited = compute;
        return;
      case StreamSync::kAllWaitForRing:
        sync->awaited = ring;
        return;
      case StreamSync::kStreamWaitsForStream:
        sync->waiting = NamedStream(sync->op, "stream");
        sync->awaited = NamedStream(sync->op, "awaited");
        return;
    }
  }

  int NamedStream(OpId op, absl::string_view attr) const {
    const std::string name = program_.op(op).StringAttr(attr).value_or("");
    const absl::optional<DeviceStream> stream = FindDeviceStream(name);
    return stream.has_value() ? survey_.StreamOf(*stream) : -1;
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
    } else if (has(Trait::kCollective) ||
               (schema != nullptr && FindMessageOp(op.type()).has_value())) {
      signature.is_collective = true;
    } else if (has(Trait::kAlias)) {
      signature.kind = Kind::kFuse;
    } else if (!SharedMemoryOf(op, schema).empty()) {
      signature.kind = Kind::kShare;
    }
    signature.is_registered = schema != nullptr;
    signature.is_copy = CopiesFrom(op.type()).has_value();
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
  const OpTraits& traits_;
  const Communications& communications_;
  const DevicePlacement& placement_;
  std::vector<Use> uses_;
  std::vector<SignatureInfo> signatures_;  // by Op::signature_id
  std::set<int> rings_;                    // with a stream
};

StreamSurvey::StreamSurvey(const ProgramFacts& facts)
    : special_(facts.program().num_blocks()), is_watched_(facts.program().symbols().size(), 0) {
  Visitor(facts, this).VisitAll();
}

int StreamSurvey::StreamOfRing(int ring_id) const {
  const auto it = std::lower_bound(ring_ids_.begin(), ring_ids_.end(), ring_id);
  if (it == ring_ids_.end() || *it != ring_id) return -1;
  return static_cast<int>(it - ring_ids_.begin()) + 1;
}

int StreamSurvey::StreamOf(DeviceStream stream) const {
  using Kind = DeviceStream::Kind;
  if (stream.kind == Kind::kAccelerator) return 0;
  if (stream.kind == Kind::kRing) return StreamOfRing(stream.ring_id);
  if (num_device_streams_ == 0) return -1;
  const int first = static_cast<int>(ring_ids_.size()) + 1;
  return first + static_cast<int>(stream.kind) - static_cast<int>(Kind::kHost);
}

}  // namespace weft
