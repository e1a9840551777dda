#include "ops/analysis/devices/device_times.h"

#include <algorithm>
#include <vector>

#include "absl/types/optional.h"
#include "ops/analysis/devices/device_placement.h"
#include "ops/analysis/streams/stream_survey.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/tensor_type.h"

namespace weft {
namespace {

// Of dense inputs as declared, unknown dimensions replaced.
int64_t InputBytes(const Op& op, int64_t batch) {
  int64_t bytes = 0;
  for (Symbol name : op.input_args()) {
    const VarId id = op.program().block(op.block()).Resolve(name);
    if (!id.valid()) continue;
    absl::optional<TensorType> type = DeclaredType(op.program().var(id));
    if (!type.has_value() || type->kind != TensorType::Kind::kDense) continue;
    for (int64_t& dim : type->dims) dim = dim < 0 ? batch : dim;
    bytes +=
        std::min(NumElements(type->dims), kMaxElements) * static_cast<int64_t>(SizeOf(type->dtype));
  }
  return bytes;
}

// When the work that streams were given is done.
class StreamTimes {
 public:
  explicit StreamTimes(int num_streams) : done_(num_streams, 0) {}

  void Run(int stream, double seconds) { done_[stream] += seconds; }
  void Wait(int waiting, int awaited) {
    if (waiting < 0 || awaited < 0) return;
    done_[waiting] = std::max(done_[waiting], done_[awaited]);
  }
  void WaitAll(int awaited) {
    for (size_t s = 0; s < done_.size(); ++s) Wait(static_cast<int>(s), awaited);
  }
  double End() const { return *std::max_element(done_.begin(), done_.end()); }

 private:
  std::vector<double> done_;  // by stream
};

}  // namespace

double EstimateStepSeconds(const ProgramFacts& facts, const DeviceSpeeds& speeds,
                           absl::FunctionRef<double(int64_t bytes)> collective_seconds) {
  const Program& program = facts.program();
  OpTimeOptions accelerator = speeds.host;
  accelerator.flops_per_second *= speeds.accelerator_speed;
  accelerator.bytes_per_second *= speeds.accelerator_speed;
  const std::vector<double> on_host = EstimateOpTimes(program, speeds.host);
  const std::vector<double> on_accelerator = EstimateOpTimes(program, accelerator);
  const StreamSurvey& survey = facts.Get<StreamSurvey>();
  const DevicePlacement& placement = facts.Get<DevicePlacement>();
  const absl::Span<const StreamSurvey::SpecialOp> special = survey.special(0);
  StreamTimes times(survey.num_streams());
  size_t next = 0;
  for (OpId id : program.block(0).ops()) {
    const Op op = program.op(id);
    using Kind = StreamSurvey::SpecialOp::Kind;
    const bool is_special = next < special.size() && special[next].position == op.position();
    const StreamSurvey::SpecialOp* const what = is_special ? &special[next++] : nullptr;
    if (what != nullptr && what->kind == Kind::kSync) {
      const StreamSurvey::Sync& sync = survey.syncs()[what->index];
      const bool all =
          sync.sync == StreamSync::kAllWaitForCompute || sync.sync == StreamSync::kAllWaitForRing;
      all ? times.WaitAll(sync.awaited) : times.Wait(sync.waiting, sync.awaited);
      continue;
    }
    if (what != nullptr && what->kind == Kind::kRingSetup) continue;
    const int stream = what != nullptr ? what->index : 0;
    if (CopiesFrom(op.type()).has_value() && placement.on_two_devices()) {
      times.Run(stream,
                speeds.copy_latency +
                    static_cast<double>(InputBytes(op, speeds.host.batch)) / speeds.copy_bandwidth);
    } else if (FindCollectiveOp(op) != nullptr) {
      times.Run(stream, collective_seconds(InputBytes(op, speeds.host.batch)));
    } else {
      const bool is_host = placement.DeviceOf(id) == DeviceKind::kHost;
      times.Run(stream, (is_host ? on_host : on_accelerator)[op.position()]);
    }
  }
  return times.End();
}

}  // namespace weft
