#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/analysis/core/communication.h"
#include "ops/analysis/devices/op_times.h"
#include "ops/analysis/streams/stream_survey.h"
#include "ops/schema/device_ops.h"
#include "ops/schema/tensor_type.h"
#include "tools/view/lanes.h"
#include "tools/view/op_bytes.h"
#include "tools/view/op_numbers.h"

namespace weft {
namespace {

constexpr int kCompute = 0;

// Nobody waits so long, and numbers up to here are exact in a page: shapes that a file claims may
// take longer.
constexpr int64_t kMaxTime = int64_t{1} << 52;  // nanoseconds

class Predictor {
 public:
  Predictor(const Program& program, const PredictOptions& options)
      : program_(program),
        options_(options),
        survey_(program),
        communications_(program),
        bytes_(program, options.batch),
        op_seconds_(options.times.op_seconds.empty() ? EstimateOpTimes(program, {options.batch})
                                                     : options.times.op_seconds) {}

  Lanes Predict() {
    lanes_.lanes.push_back({0, "compute"});
    for (int ring : survey_.ring_ids()) lanes_.lanes.push_back({0, absl::StrCat("ring ", ring)});
    AddLanesOfTwoDevices();
    ready_.resize(lanes_.lanes.size(), 0);
    auto special = survey_.special(0).begin();
    for (OpId id : program_.block(0).ops()) {
      const Op op = program_.op(id);
      const bool is_special =
          special != survey_.special(0).end() && special->position == op.position();
      if (is_special) {
        AddSpecial(op, *special++);
      } else {
        Run(op, kCompute);
      }
    }
    const int64_t end = *std::max_element(ready_.begin(), ready_.end());
    if (!lanes_.spans.empty()) lanes_.steps.push_back({0, 0, 0, end});
    std::stable_sort(lanes_.spans.begin(), lanes_.spans.end(),
                     [](const LaneSpan& a, const LaneSpan& b) { return a.lane < b.lane; });
    lanes_.totals = TotalsOf(lanes_);
    return std::move(lanes_);
  }

 private:
  void AddLanesOfTwoDevices() {
    using Kind = DeviceStream::Kind;
    lanes_.lanes.resize(survey_.num_streams());
    for (const Kind kind : {Kind::kHost, Kind::kToHost, Kind::kFromHost}) {
      const int stream = survey_.StreamOf({kind});
      if (stream > 0) lanes_.lanes[stream] = {0, std::string(DeviceStreamName(kind))};
    }
  }

  void AddSpecial(const Op& op, const StreamSurvey::SpecialOp& special) {
    using Kind = StreamSurvey::SpecialOp::Kind;
    switch (special.kind) {
      case Kind::kSync:
        return Synchronize(survey_.syncs()[special.index]);
      case Kind::kStreamOp:
      case Kind::kFuse:
      case Kind::kShare:
        return Run(op, special.index);
      case Kind::kRingSetup:
      case Kind::kBranch:
      case Kind::kHoldsBlocks:
        // The host waits, and issues nothing meanwhile.
        host_ = std::max(host_, ready_[special.index]);
        return Run(op, special.index);
    }
  }

  void Run(const Op& op, int lane) {
    const bool communicates = OnlyCommunicates(communications_.Of(op));
    const int64_t bytes = communicates ? bytes_.OfCommunication(op) : 0;
    const double seconds =
        communicates ? options_.times.collective.Seconds(bytes) : op_seconds_[op.position()];
    bytes_.Remember(op);
    const int64_t begin = std::max(ready_[lane], host_);
    const double duration = std::min(std::round(seconds * 1e9), static_cast<double>(kMaxTime));
    ready_[lane] = std::min(begin + static_cast<int64_t>(duration), kMaxTime);
    lanes_.spans.push_back({lane, op.position(), begin, ready_[lane], bytes, communicates});
  }

  void Synchronize(const StreamSurvey::Sync& sync) {
    const bool all_wait =
        sync.sync == StreamSync::kAllWaitForCompute || sync.sync == StreamSync::kAllWaitForRing;
    return all_wait ? LetAllWaitFor(sync.awaited) : Wait(sync.awaited, sync.waiting);
  }

  void LetAllWaitFor(int from) {
    for (size_t lane = 0; lane < ready_.size(); ++lane) Wait(from, static_cast<int>(lane));
  }

  void Wait(int from, int lane) {
    if (from < 0 || lane < 0 || from == lane) return;
    const int64_t begin = ready_[lane];
    ready_[lane] = std::max(begin, ready_[from]);
    lanes_.waits.push_back({lane, begin, ready_[lane], from, ready_[from]});
  }

  const Program& program_;
  const PredictOptions& options_;
  const StreamSurvey survey_;
  Communications communications_;
  OpBytes bytes_;
  const std::vector<double> op_seconds_;
  std::vector<int64_t> ready_;  // by lane: when it is idle
  int64_t host_ = 0;            // when the host issues the next op
  Lanes lanes_;
};

}  // namespace

Lanes PredictLanes(const Program& program, const PredictOptions& options) {
  return Predictor(program, options).Predict();
}

}  // namespace weft
