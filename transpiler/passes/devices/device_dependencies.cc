#include "transpiler/passes/devices/device_dependencies.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/feed_ops.h"
#include "ops/schema/op_schema.h"

namespace weft {
namespace {

// The order of an op among others that do more than access their arguments counts.
bool IsOrdered(const OpSchema* schema) {
  return schema == nullptr || schema->Has(Trait::kSideEffect) || schema->Has(Trait::kCollective) ||
         schema->Has(Trait::kStreamSync) || schema->Has(Trait::kRingSetup);
}

// Everything after it waits for a stream.
bool IsBarrier(const Op& op) {
  const absl::optional<StreamSync> sync = FindStreamSyncOp(op.type());
  return sync == StreamSync::kAllWaitForCompute || sync == StreamSync::kAllWaitForRing;
}

// What else comes before an op, by op: those that complete a fused buffer all of whose slices the
// host reads, before the host reads one, so that the buffer can be copied at once.
std::vector<std::vector<int>> FindWriters(const Program& program, const OpDevices& devices,
                                          const DeviceAccesses& accesses) {
  struct OfBuffer {
    std::vector<int> writers;
    bool is_written_by_host = false;
    absl::flat_hash_set<VarId> read;  // on the host
    std::vector<int> readers;
  };
  const absl::Span<const OpId> ops = program.block(0).ops();
  absl::flat_hash_map<VarId, OfBuffer> buffers;
  for (size_t i = 0; i < ops.size(); ++i) {
    const bool on_host = devices[ops[i].value()] == DeviceKind::kHost;
    for (const DeviceAccess& access : accesses.Of(ops[i])) {
      for (VarId slice : accesses.PartsOf(access.var)) {
        if (accesses.BuffersOf(slice).size() != 1) continue;
        OfBuffer& buffer = buffers[accesses.BuffersOf(slice)[0]];
        const auto index = static_cast<int>(i);
        const bool is_known = !buffer.writers.empty() && buffer.writers.back() == index;
        if (access.writes && !is_known) buffer.writers.push_back(index);
        if (access.writes && on_host) buffer.is_written_by_host = true;
        if (!access.reads || !on_host) continue;
        buffer.read.insert(slice);
        buffer.readers.push_back(index);
      }
    }
  }
  std::vector<std::vector<int>> before(ops.size());
  for (const auto& [var, buffer] : buffers) {
    const bool joins = !buffer.is_written_by_host && !buffer.readers.empty() &&
                       !buffer.writers.empty() && buffer.readers.front() > buffer.writers.back() &&
                       buffer.read.size() == accesses.FindBuffer(var)->slices.size();
    if (!joins) continue;
    const int last = buffer.writers.back();
    before[last].insert(before[last].end(), buffer.writers.begin(), buffer.writers.end());
    for (int reader : buffer.readers) before[reader].push_back(last);
  }
  return before;
}

// Whether the ops of the accelerator before and after it stay there: what it does, or waits for, is
// not in its arguments alone.
bool DividesAccelerator(const Op& op, OpTraits* traits) {
  return traits->Has(op, Trait::kStreamSync) || IsFeed(op.type()) || IsFetch(op.type()) ||
         !op.SubBlocks().empty();
}

}  // namespace

std::vector<PlacedOp> FindDependencies(const Program& program, const OpDevices& devices,
                                       const DeviceAccesses& accesses,
                                       const SharedAtStart& shared_at_start) {
  struct Uses {
    int writer = -1;
    std::vector<int> readers;  // since
  };
  std::vector<Uses> uses(program.var_id_limit());
  OpTraits traits(program);
  const std::vector<std::vector<int>> writers = FindWriters(program, devices, accesses);
  std::vector<PlacedOp> ops;
  int last_ordered = -1, last_barrier = -1;
  int last_division = -1;       // of the accelerator's ops
  std::vector<int> since_then;  // those of the accelerator
  for (OpId id : program.block(0).ops()) {
    const Op op = program.op(id);
    const int index = static_cast<int>(ops.size());
    PlacedOp placed{devices[id.value()], {}};
    const auto after = [&](int before) {
      if (before >= 0 && before != index) placed.after.push_back(before);
    };
    const auto follow = [&](VarId var, bool writes) {
      Uses& use = uses[var.value()];
      after(use.writer);
      if (writes) absl::c_for_each(use.readers, after);
    };
    for (const DeviceAccess& access : accesses.Of(id)) {
      follow(access.var, access.writes);
      for (VarId other : accesses.SharedWith(access.var)) follow(other, access.writes);
      const auto shared = shared_at_start.find(access.var);
      if (shared == shared_at_start.end()) continue;
      for (VarId other : shared->second) follow(other, access.writes);
    }
    absl::c_for_each(writers[index], after);
    after(last_barrier);
    if (placed.device == DeviceKind::kAccelerator) {
      after(last_division);
      if (DividesAccelerator(op, &traits)) {
        absl::c_for_each(since_then, after);
        since_then.clear();
        last_division = index;
      } else {
        since_then.push_back(index);
      }
    }
    if (IsOrdered(traits.SchemaOf(op))) after(std::exchange(last_ordered, index));
    if (IsBarrier(op)) last_barrier = index;
    for (const DeviceAccess& access : accesses.Of(id)) {
      Uses& use = uses[access.var.value()];
      if (access.writes) use = {index, {}};
      if (!access.writes) use.readers.push_back(index);
    }
    absl::c_sort(placed.after);
    placed.after.erase(std::unique(placed.after.begin(), placed.after.end()), placed.after.end());
    ops.push_back(std::move(placed));
  }
  return ops;
}

}  // namespace weft
