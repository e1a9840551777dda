#include "transpiler/passes/device_order.h"

#include <cstddef>
#include <queue>

namespace weft {
namespace {

class Issuer {
 public:
  explicit Issuer(absl::Span<const PlacedOp> ops)
      : ops_(ops), num_missing_(ops.size()), followers_(ops.size()) {
    for (size_t i = 0; i < ops.size(); ++i) {
      num_missing_[i] = static_cast<int>(ops[i].after.size());
      for (int before : ops[i].after) followers_[before].push_back(static_cast<int>(i));
      const bool on_host = ops[i].device == DeviceKind::kHost;
      if (!on_host) chain_.push_back(static_cast<int>(i));
      if (on_host && num_missing_[i] == 0) ready_.push(static_cast<int>(i));
    }
  }

  std::vector<int> EarlyStart() {
    while (issued_.size() < ops_.size()) {
      while (CanIssueHost()) IssueHost();
      if (CanIssueAccelerator()) IssueAccelerator();
    }
    return issued_;
  }

  std::vector<int> FewSwitches(DeviceKind first) {
    if (first == DeviceKind::kHost) {
      while (CanIssueHost()) IssueHost();
    }
    while (issued_.size() < ops_.size()) {
      while (CanIssueAccelerator()) IssueAccelerator();
      while (CanIssueHost()) IssueHost();
    }
    return issued_;
  }

 private:
  bool CanIssueHost() const { return !ready_.empty(); }
  void IssueHost() {
    const int op = ready_.front();
    ready_.pop();
    Issue(op);
  }
  bool CanIssueAccelerator() const {
    return next_ < chain_.size() && num_missing_[chain_[next_]] == 0;
  }
  void IssueAccelerator() { Issue(chain_[next_++]); }

  void Issue(int op) {
    issued_.push_back(op);
    for (int follower : followers_[op]) {
      if (--num_missing_[follower] == 0 && ops_[follower].device == DeviceKind::kHost) {
        ready_.push(follower);
      }
    }
  }

  const absl::Span<const PlacedOp> ops_;
  std::vector<int> num_missing_;  // by op: ops before it that are not issued
  std::vector<std::vector<int>> followers_;
  std::vector<int> chain_;  // the ops of the accelerator
  size_t next_ = 0;         // into chain_
  std::queue<int> ready_;   // ops of the host, in the order in which they became ready
  std::vector<int> issued_;
};

}  // namespace

std::vector<int> OrderOps(absl::Span<const PlacedOp> ops, DeviceOrder order) {
  if (order == DeviceOrder::kEarlyStart) return Issuer(ops).EarlyStart();
  const std::vector<int> a = Issuer(ops).FewSwitches(DeviceKind::kAccelerator);
  const std::vector<int> b = Issuer(ops).FewSwitches(DeviceKind::kHost);
  return NumSegments(ops, b) < NumSegments(ops, a) ? b : a;
}

int NumSegments(absl::Span<const PlacedOp> ops, absl::Span<const int> order) {
  int segments = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i == 0 || ops[order[i]].device != ops[order[i - 1]].device) ++segments;
  }
  return segments;
}

}  // namespace weft
