#include "transpiler/passes/devices/device_copies.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/op_schema.h"
#include "proto/op_role.h"
#include "transpiler/passes/support/op_builder.h"
#include "transpiler/passes/support/op_edits.h"

namespace weft {
namespace {

int Compute(DeviceKind device) { return static_cast<int>(ComputeStreamOf(device)); }

// Of a copy or a wait: not that of the loss, by which losses are found.
int RoleFor(const Op& op) { return op.role() & ~kRoleLoss; }

// Whether other accesses to the memory must be before or after. coalesce_tensor, which only names
// slices, gives them their memory.
bool Changes(const DeviceAccess& access) { return access.writes || !access.reads; }

}  // namespace

DeviceCopies::DeviceCopies(const Program& program, const DeviceAccesses& accesses,
                           absl::Span<const DeviceStep> steps, const std::string& accelerator,
                           Staging staging, UniqueNames* names)
    : program_(program),
      accesses_(accesses),
      steps_(steps),
      values_(program, accesses, steps, staging),
      accelerator_(absl::AsciiStrToUpper(accelerator)),
      names_(*names),
      before_(steps.size() + 1) {
  FindRings();
  Write();
}

void DeviceCopies::FindRings() {
  for (const DeviceStep& step : steps_) {
    const Op op = program_.op(step.op);
    if (FindCollectiveOp(op) == nullptr) continue;
    if (!op.BoolAttr("use_calc_stream").value_or(false)) {
      rings_.push_back(static_cast<int>(op.IntAttr("ring_id").value_or(0)));
    }
  }
  absl::c_sort(rings_);
  rings_.erase(std::unique(rings_.begin(), rings_.end()), rings_.end());
  const size_t num_streams = kFirstRing + rings_.size();
  last_.assign(num_streams, 0);
  last_work_.assign(num_streams, 0);
  synchronized_.assign(num_streams, 0);
  times_.resize(num_streams);
  step_times_.assign(steps_.size(), 0);
  known_.assign(num_streams, std::vector<int64_t>(num_streams, 0));
}

DeviceCopies::Stream DeviceCopies::StreamOfRing(const Op& op) const {
  const int ring_id = static_cast<int>(op.IntAttr("ring_id").value_or(0));
  const auto it = absl::c_lower_bound(rings_, ring_id);
  if (it == rings_.end() || *it != ring_id) return -1;
  return kFirstRing + static_cast<Stream>(it - rings_.begin());
}

DeviceCopies::Stream DeviceCopies::StreamOf(const DeviceStep& step) const {
  const Op op = program_.op(step.op);
  const bool on_ring =
      FindCollectiveOp(op) != nullptr && !op.BoolAttr("use_calc_stream").value_or(false);
  return on_ring ? StreamOfRing(op) : Compute(step.device);
}

std::string DeviceCopies::StreamName(Stream stream) const {
  if (stream >= kFirstRing) return absl::StrCat("ring ", rings_[stream - kFirstRing]);
  return std::string(DeviceStreamName(static_cast<DeviceStream::Kind>(stream)));
}

void DeviceCopies::Write() {
  MakeMirroredBuffers(0, 0);
  for (size_t i = 0; i <= steps_.size(); ++i) {
    for (const DeviceCopy& copy : values_.CopiesBefore(i)) WriteCopy(copy, i);
    if (i == steps_.size()) return;
    const DeviceStep& step = steps_[i];
    if (FindStreamSyncOp(program_.op(step.op).type()).has_value()) {
      Synchronize(step);
      continue;
    }
    const Stream stream = StreamOf(step);
    const std::vector<DeviceAccess>& accesses = accesses_.Of(step.op);
    std::vector<Need> needs;
    for (const DeviceAccess& access : accesses) {
      NameOn(step.device, access.var);
      AddNeeds(step.device, access.var, access.reads, Changes(access), &needs);
    }
    WaitFor(stream, std::move(needs), i);
    Issue(stream);
    step_times_[i] = last_work_[stream] = time_;
    for (const DeviceAccess& access : accesses) {
      Touch(stream, step.device, access.var, access.reads, Changes(access));
    }
  }
}

void DeviceCopies::WriteCopy(const DeviceCopy& copy, size_t i) {
  const Stream stream = static_cast<Stream>(CopyStreamFrom(copy.from));
  const DeviceKind to = OtherDevice(copy.from);
  const std::string x = NameOn(copy.from, copy.var), out = NameOn(to, copy.var);
  if (copy.ends_turn) WaitForAll(Compute(copy.from), stream, x, i);
  std::vector<Need> needs;
  AddNeeds(copy.from, copy.var, /*reads=*/true, /*writes=*/false, &needs);
  AddNeeds(to, copy.var, /*reads=*/false, /*writes=*/true, &needs);
  WaitFor(stream, std::move(needs), i);
  NewOp op{std::string(CopyOpType(copy.from)), {{"X", {x}}}, {{"Out", {out}}}, {}};
  op.role = RoleFor(program_.op(copy.reader));
  ++num_copies_;
  Issue(stream);
  last_work_[stream] = time_;
  before_[i].push_back({BuildOp(op), time_});
  Touch(stream, copy.from, copy.var, /*reads=*/true, /*writes=*/false);
  Touch(stream, to, copy.var, /*reads=*/false, /*writes=*/true);
  if (!copy.ends_turn || copy.turn + 1 == values_.num_turns()) return;
  const std::string made = MakeMirroredBuffers(copy.turn + 1, i);
  WaitForAll(stream, Compute(to), made.empty() ? out : made, i);
}

std::string DeviceCopies::MakeMirroredBuffers(int turn, size_t i) {
  const Stream host = Compute(DeviceKind::kHost);
  std::string made;
  for (; num_made_ < values_.mirrored_buffers().size(); ++num_made_) {
    const MirroredBuffer& buffer = values_.mirrored_buffers()[num_made_];
    if (buffer.turn > turn) break;
    pb::OpDesc op = program_.op(buffer.made_by).ToProto();
    for (auto* slots : {op.mutable_inputs(), op.mutable_outputs()}) {
      for (pb::OpDesc::Var& slot : *slots) {
        for (std::string& name : *slot.mutable_arguments()) {
          name = NameOn(DeviceKind::kHost, program_.block(0).FindVar(program_.FindSymbol(name)));
        }
      }
    }
    SetOnHost(&op);
    Issue(host);
    before_[i].push_back({std::move(op), time_});
    Touch(host, DeviceKind::kHost, buffer.var, /*reads=*/false, /*writes=*/true);
    made = NameOn(DeviceKind::kHost, buffer.var);
  }
  return made;
}

void DeviceCopies::WaitForAll(Stream waiting, Stream awaited, const std::string& variable,
                              size_t i) {
  WaitFor(waiting, {{awaited, last_[awaited], variable}}, i);
}

void DeviceCopies::Issue(Stream stream) {
  last_[stream] = ++time_;
  times_[stream].push_back(time_);
  issued_.push_back({stream, known_[stream], {}});
}

int64_t DeviceCopies::LastUpTo(int64_t time, Stream stream) const {
  const std::vector<int64_t>& times = times_[stream];
  const auto after = absl::c_upper_bound(times, time);
  return after == times.begin() ? 0 : *(after - 1);
}

std::vector<pb::OpDesc> DeviceCopies::Before(size_t i) const {
  std::vector<pb::OpDesc> ops;
  const auto add_waits = [&](int64_t time) {
    if (time == 0) return;
    const std::vector<pb::OpDesc>& waits = issued_[time - 1].waits;
    ops.insert(ops.end(), waits.begin(), waits.end());
  };
  if (i > 0) add_waits(step_times_[i - 1]);
  for (const Inserted& inserted : before_[i]) {
    ops.push_back(inserted.op);
    add_waits(inserted.time);
  }
  return ops;
}

void DeviceCopies::AddNeeds(DeviceKind device, VarId var, bool reads, bool writes,
                            std::vector<Need>* needs) {
  if (!reads && !writes) return;
  const std::string name = NameOn(device, var);
  const auto add = [&](VarId of) {
    const Memory& memory = MemoryOf(device, of);
    if (memory.written > 0) needs->push_back({memory.writer, memory.written, name});
    if (!writes) return;
    for (const auto& [stream, time] : memory.read) needs->push_back({stream, time, name});
  };
  add(var);
  for (VarId other : accesses_.SharedWith(var)) add(other);
}

// The latest first: it may imply the others.
void DeviceCopies::WaitFor(Stream waiting, std::vector<Need> needs, size_t i) {
  absl::c_stable_sort(needs, [](const Need& a, const Need& b) { return a.time > b.time; });
  for (const Need& need : needs) {
    if (need.awaited == waiting || need.time <= known_[waiting][need.awaited]) continue;
    const NewOp op =
        InPlaceOp(std::string(StreamSyncOpType(StreamSync::kStreamWaitsForStream)), {need.variable},
                  {{"stream", StreamName(waiting)}, {"awaited", StreamName(need.awaited)}},
                  i < steps_.size() ? RoleFor(program_.op(steps_[i].op)) : kRoleOptimize);
    // No op of the waiting stream comes after `early`. A synchronization of the program that does
    // would order nothing after a wait there.
    const int64_t early = std::max(need.time, last_[waiting]);
    if (last_work_[need.awaited] <= early || synchronized_[waiting] >= early) {
      before_[i].push_back({BuildOp(op), 0});
      Join(waiting, need.awaited);
      continue;
    }
    issued_[early - 1].waits.push_back(BuildOp(op));
    const int64_t done = LastUpTo(early, need.awaited);
    std::vector<int64_t>& known = known_[waiting];
    for (size_t s = 0; s < known.size(); ++s) {
      known[s] = std::max(known[s], issued_[done - 1].known[s]);
    }
    known[need.awaited] = std::max(known[need.awaited], done);
  }
}

void DeviceCopies::Synchronize(const DeviceStep& step) {
  const Op op = program_.op(step.op);
  const Stream compute = Compute(step.device), ring = StreamOfRing(op);
  const auto join = [&](Stream waiting, Stream awaited) {
    Join(waiting, awaited);
    if (waiting >= 0) synchronized_[waiting] = time_;
  };
  const auto join_all = [&](Stream awaited) {
    for (Stream waiting = 0; waiting < static_cast<Stream>(known_.size()); ++waiting) {
      join(waiting, awaited);
    }
  };
  switch (*FindStreamSyncOp(op.type())) {
    case StreamSync::kRingWaitsForCompute:
      return join(ring, compute);
    case StreamSync::kComputeWaitsForRing:
      return join(compute, ring);
    case StreamSync::kAllWaitForCompute:
      return join_all(compute);
    case StreamSync::kAllWaitForRing:
      return join_all(ring);
    case StreamSync::kStreamWaitsForStream:
      return;  // the program would be on two devices already
  }
}

// Does nothing for a ring without a stream.
void DeviceCopies::Join(Stream waiting, Stream awaited) {
  if (waiting < 0 || awaited < 0 || waiting == awaited) return;
  std::vector<int64_t>& known = known_[waiting];
  for (size_t s = 0; s < known.size(); ++s) known[s] = std::max(known[s], known_[awaited][s]);
  known[awaited] = time_;
}

void DeviceCopies::Touch(Stream stream, DeviceKind device, VarId var, bool reads, bool writes) {
  Memory& memory = MemoryOf(device, var);
  if (reads) memory.read[stream] = time_;
  if (!writes) return;
  memory.written = time_;
  memory.writer = stream;
}

std::string DeviceCopies::NameOn(DeviceKind device, VarId var) {
  const Var variable = program_.var(var);
  if (values_.HomeOf(var) == device) return std::string(variable.name());
  const auto [it, is_new] = mirrors_[static_cast<int>(device)].emplace(var, "");
  if (!is_new) return it->second;
  const std::string suffix =
      device == DeviceKind::kHost ? absl::AsciiStrToUpper(kHostDeviceName) : accelerator_;
  it->second = names_.Of(absl::StrCat(variable.name(), "@", suffix));
  pb::VarDesc mirror = variable.ToProto();
  mirror.set_name(it->second);
  mirror.set_persistable(false);
  mirror.clear_is_parameter();
  mirror.clear_need_check_feed();
  new_vars_.push_back(std::move(mirror));
  return it->second;
}

}  // namespace weft
