#include "ops/analysis/core/liveness.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/numeric/int128.h"
#include "absl/types/optional.h"
#include "ops/analysis/core/storage.h"
#include "ops/schema/tensor_type.h"
#include "proto/all_ops.h"

namespace weft {
namespace {

// Sums of 64-bit sizes.
using Bytes = absl::int128;

int64_t Clamp(Bytes bytes) {
  return static_cast<int64_t>(std::min<Bytes>(bytes, std::numeric_limits<int64_t>::max()));
}

// From position `first` to `last` of the root block; empty at first.
struct Interval {
  int first = std::numeric_limits<int>::max();
  int last = -1;

  bool empty() const { return last < 0; }
  // Whether this interval grows.
  bool Add(const Interval& other) {
    const Interval before = *this;
    first = std::min(first, other.first);
    last = std::max(last, other.last);
    return first != before.first || last != before.last;
  }
};

// By block, the positions of the first and the last op of the root block that runs it, at any
// depth.
std::vector<Interval> BlockIntervals(const Program& program) {
  std::vector<Interval> intervals(program.num_blocks());
  std::vector<std::pair<int, int>> inner;  // a block, not the root, and a block that it runs
  for (const Op& op : AllOps(program)) {
    const int position = static_cast<int>(op.position());
    for (int sub_block : op.SubBlocks()) {
      if (op.block() == 0) intervals[sub_block].Add({position, position});
      if (op.block() != 0) inner.push_back({op.block(), sub_block});
    }
  }
  // Blocks do not run each other: the number of rounds is at most their depth.
  for (bool grows = true; grows;) {
    grows = false;
    for (const auto& [block, sub_block] : inner) {
      grows = intervals[sub_block].Add(intervals[block]) || grows;
    }
  }
  return intervals;
}

// None if the program does not declare it.
absl::optional<int64_t> SizeOfVar(const Var& var, int64_t batch) {
  absl::optional<TensorType> type = DeclaredType(var);
  if (!type.has_value()) return absl::nullopt;
  if (!type->dims.empty() && type->dims[0] == -1) type->dims[0] = batch;
  const int64_t elements = NumElements(type->dims);
  if (elements < 0) return absl::nullopt;
  return Clamp(Bytes(elements) * static_cast<int64_t>(SizeOf(type->dtype)));
}

bool HoldsData(const Var& var) {
  return var.type() == pb::VarType::LOD_TENSOR || var.type() == pb::VarType::SELECTED_ROWS ||
         var.type() == pb::VarType::LOD_TENSOR_ARRAY;
}

class Estimator {
 public:
  Estimator(const Program& program, int64_t batch)
      : program_(program),
        batch_(batch),
        lives_(program.var_id_limit()),
        is_fused_(program.var_id_limit(), false) {}

  PeakMemory Estimate() {
    FindLives();
    JoinFused();
    AddVariables();
    return FindPeak();
  }

 private:
  void FindLives() {
    const std::vector<Interval> blocks = BlockIntervals(program_);
    for (VarId id : program_.block(0).vars()) {
      if (program_.var(id).need_check_feed()) lives_[id.value()].Add({0, 0});
    }
    for (const Op& op : AllOps(program_)) {
      const int position = static_cast<int>(op.position());
      const Interval at = op.block() == 0 ? Interval{position, position} : blocks[op.block()];
      ForEachVar(op.block(), op.args(), [&](VarId var) { lives_[var.value()].Add(at); });
    }
  }

  template <typename Visitor>
  void ForEachVar(int block, absl::Span<const Symbol> names, Visitor visit) const {
    for (Symbol name : names) {
      const VarId var = program_.block(block).Resolve(name);
      if (var.valid()) visit(var);
    }
  }

  void JoinFused() {
    const Storage storage(program_);
    for (const Storage::Buffer& buffer : storage.buffers()) {
      if (!buffer.name.valid()) continue;
      const Op op = program_.op(buffer.made_by);
      Interval all;
      ForEachVar(op.block(), op.args(), [&](VarId var) { all.Add(lives_[var.value()]); });
      ForEachVar(op.block(), op.args(), [&](VarId var) { lives_[var.value()] = all; });
      if (buffer.var.valid()) is_fused_[buffer.var.value()] = true;
    }
  }

  void AddVariables() {
    changes_.resize(program_.block(0).ops().size() + 1, 0);
    for (const Var& var : AllVars(program_)) AddVariable(var);
  }

  void AddVariable(const Var& var) {
    const VarId id = var.id();
    const Interval& life = lives_[id.value()];
    if (!HoldsData(var) || is_fused_[id.value()] || (life.empty() && !var.persistable())) return;
    const absl::optional<int64_t> bytes = SizeOfVar(var, batch_);
    if (!bytes.has_value()) {
      ++num_unknown_;
    } else if (var.persistable()) {
      persistable_ += *bytes;
    } else {
      changes_[life.first] += *bytes;
      changes_[life.last + 1] -= *bytes;
    }
  }

  PeakMemory FindPeak() const {
    PeakMemory peak;
    Bytes most = -1, now = 0;
    int position = 0;
    for (OpId id : program_.block(0).ops()) {
      now += changes_[position++];
      if (now <= most) continue;
      most = now;
      peak.op = id;
    }
    peak.bytes = Clamp(persistable_ + std::max<Bytes>(most, 0));
    peak.persistable_bytes = Clamp(persistable_);
    peak.num_unknown = num_unknown_;
    return peak;
  }

  const Program& program_;
  const int64_t batch_;
  std::vector<Interval> lives_;  // by VarId
  std::vector<bool> is_fused_;   // by VarId
  std::vector<Bytes> changes_;   // at each op of the root block, and after the last
  Bytes persistable_ = 0;
  int64_t num_unknown_ = 0;
};

}  // namespace

PeakMemory EstimatePeakMemory(const Program& program, int64_t batch) {
  return Estimator(program, batch).Estimate();
}

}  // namespace weft
