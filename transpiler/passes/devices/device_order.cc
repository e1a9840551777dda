#include "transpiler/passes/devices/device_order.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <queue>
#include <utility>

#include "absl/algorithm/container.h"

namespace weft {
namespace {

template <typename T>
using SmallestFirst = std::priority_queue<T, std::vector<T>, std::greater<T>>;

class Issuer {
 public:
  explicit Issuer(absl::Span<const PlacedOp> ops)
      : ops_(ops), num_missing_(ops.size()), awaits_(ops.size(), 0), followers_(ops.size()) {
    for (size_t i = 0; i < ops.size(); ++i) {
      num_missing_[i] = static_cast<int>(ops[i].after.size());
      for (int before : ops[i].after) followers_[before].push_back(static_cast<int>(i));
      if (num_missing_[i] == 0) AddReady(static_cast<int>(i));
    }
  }

  std::vector<int> EarlyStart() {
    while (issued_.size() < ops_.size()) {
      while (!host_.empty()) IssueHost();
      if (!free_.empty() || !waiting_.empty()) IssueAccelerator();
    }
    return issued_;
  }

  std::vector<int> FewSwitches(DeviceKind first) {
    bool on_host = first == DeviceKind::kHost;
    for (; issued_.size() < ops_.size(); on_host = !on_host) {
      while (on_host && !host_.empty()) IssueHost();
      while (!on_host && (!free_.empty() || !waiting_.empty())) {
        FreeAll();
        IssueAccelerator();
      }
    }
    return issued_;
  }

 private:
  void AddReady(int op) {
    if (ops_[op].device == DeviceKind::kHost) {
      host_.push(op);
    } else if (awaits_[op] <= awaited_) {
      free_.push(op);
    } else {
      waiting_.emplace(awaits_[op], op);
    }
  }

  void IssueHost() {
    const int op = host_.front();
    host_.pop();
    ++num_host_;
    Issue(op);
  }

  void IssueAccelerator() {
    if (free_.empty()) Await(waiting_.top().first);
    const int op = free_.top();
    free_.pop();
    Issue(op);
  }

  void FreeAll() { Await(num_host_); }

  // The accelerator waits for so many ops of the host.
  void Await(int num_host) {
    awaited_ = std::max(awaited_, num_host);
    for (; !waiting_.empty() && waiting_.top().first <= awaited_; waiting_.pop()) {
      free_.push(waiting_.top().second);
    }
  }

  void Issue(int op) {
    const bool on_host = ops_[op].device == DeviceKind::kHost;
    issued_.push_back(op);
    for (int follower : followers_[op]) {
      if (on_host) awaits_[follower] = num_host_;
      if (--num_missing_[follower] == 0) AddReady(follower);
    }
  }

  const absl::Span<const PlacedOp> ops_;
  std::vector<int> num_missing_;  // by op: ops before it that are not issued
  std::vector<int> awaits_;       // by op: so many ops of the host
  std::vector<std::vector<int>> followers_;
  std::queue<int> host_;     // ops that can run, in the order in which they became ready
  SmallestFirst<int> free_;  // ops of the accelerator that can run
  SmallestFirst<std::pair<int, int>> waiting_;  // those that would wait for the host, by awaits_
  int num_host_ = 0;                            // ops of the host that are issued
  int awaited_ = 0;                             // those for which the accelerator has waited
  std::vector<int> issued_;
};

}  // namespace

std::vector<int> OrderOps(absl::Span<const PlacedOp> ops, DeviceOrder order) {
  if (absl::c_all_of(ops, [&](const PlacedOp& op) { return op.device == ops[0].device; })) {
    std::vector<int> same(ops.size());
    absl::c_iota(same, 0);
    return same;
  }
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
