#include "ops/analysis/streams/streams.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/analysis/core/storage.h"
#include "ops/analysis/streams/access_history.h"
#include "ops/analysis/streams/name_order.h"
#include "ops/analysis/streams/stream_clocks.h"
#include "ops/analysis/streams/stream_survey.h"
#include "ops/schema/buffer_slices.h"
#include "ops/schema/device_ops.h"

namespace weft {
namespace {

constexpr int kComputeStream = 0;

using Special = StreamSurvey::SpecialOp;

// Limits the accesses to slices through their buffers: n ops could make n * n of them. Programs
// that fuse gradients make two or three for each op.
constexpr int64_t kSliceAccesses = 1 << 20;
constexpr int64_t kSliceAccessesPerOp = 100;

// Assigns variables to cells: every variable has a cell with the history of its accesses, and a
// buffer consists of the cells of its members, which may move to other buffers.
class Cells {
 public:
  explicit Cells(const Program& program) : cell_of_var_(program.var_id_limit(), kNone) {}

  struct Cell {
    VarId var;
    int buffer = -1;  // that it is a slice of
    AccessHistory history;
  };
  struct Buffer {
    VarId var;
    std::vector<int> cells;
    OpId moved_by;  // moved the slice `moved` to another buffer
    VarId moved;
    bool reported = false;
  };

  // nullptr if the variable is not a buffer.
  Buffer* FindBuffer(VarId var) {
    const int index = cell_of_var_[var.value()];
    return index < kNone ? &buffers_[kNone - 1 - index] : nullptr;
  }
  // Of a variable that is not a buffer.
  int CellOf(VarId var) {
    int& index = cell_of_var_[var.value()];
    if (index == kNone) {
      index = static_cast<int>(cells_.size());
      cells_.emplace_back();
      cells_.back().var = var;
    }
    return index;
  }
  Cell& cell(int index) { return cells_[index]; }
  std::vector<Cell>& cells() { return cells_; }

  // Makes the members slices of the buffer. Calls `twice` with repeated members.
  template <typename Twice>
  void AddBuffer(OpId op, VarId var, const std::vector<VarId>& members, const Twice& twice) {
    const Buffer* const before = FindBuffer(var);
    if (before != nullptr && !before->moved_by.valid() && HasMembers(*before, members)) return;
    const int index = static_cast<int>(buffers_.size());
    Buffer buffer;
    buffer.var = var;
    Leave(op, var);
    cell_of_var_[var.value()] = kNone - 1 - index;
    for (VarId member : members) {
      if (member == var) {
        twice(member);
        continue;
      }
      if (FindBuffer(member) != nullptr) cell_of_var_[member.value()] = kNone;
      Cell& slice = cell(CellOf(member));
      if (slice.buffer == index) {
        twice(member);
        continue;
      }
      Leave(op, member);
      slice.buffer = index;
      buffer.cells.push_back(CellOf(member));
    }
    buffers_.push_back(std::move(buffer));
  }

  // From now on, `out` is the memory of `in`, and also memory of its own: Paddle shares, and the
  // executor copies; an op that shares may be in a branch.
  void Share(OpId op, VarId in, VarId out) {
    Leave(op, out);
    const auto shared = shared_.find(in);
    if (shared != shared_.end()) in = shared->second;
    if (in != out) shared_[out] = in;
  }
  // Invalid: none.
  VarId SharedBy(VarId var) const {
    const auto shared = shared_.find(var);
    return shared == shared_.end() ? VarId() : shared->second;
  }

 private:
  static constexpr int kNone = -1;

  bool HasMembers(const Buffer& buffer, const std::vector<VarId>& members) {
    return std::equal(members.begin(), members.end(), buffer.cells.begin(), buffer.cells.end(),
                      [&](VarId member, int cell) { return cells_[cell].var == member; });
  }

  // The variable leaves the buffer that it is a slice of, if any.
  void Leave(OpId op, VarId var) {
    const int index = cell_of_var_[var.value()];
    if (index < 0 || cells_[index].buffer < 0) return;
    Buffer& buffer = buffers_[cells_[index].buffer];
    buffer.moved_by = op;
    buffer.moved = var;
    cells_[index].buffer = -1;
  }

  // By VarId: a cell; kNone; or kNone - 1 - i for buffer i.
  std::vector<int> cell_of_var_;
  std::vector<Cell> cells_;
  std::vector<Buffer> buffers_;               // also those that have been replaced
  absl::flat_hash_map<VarId, VarId> shared_;  // by variable: that whose memory it is, too
};

// Issues the ops as the host does.
class StreamWalk {
 public:
  StreamWalk(const ProgramFacts& facts, bool track, OpOrder order, StreamReport* report)
      : program_(facts.program()),
        survey_(facts.Get<StreamSurvey>()),
        report_(*report),
        clocks_(report->num_streams, track),
        storage_(facts.Get<Storage>()),
        memory_(program_),
        slice_accesses_left_(SliceAccesses(program_)),
        op_at_(1),
        holder_(program_.num_blocks()),
        is_followed_(report->syncs.size(), false),
        orders_(report->syncs.size(), false) {
    op_at_.reserve(program_.num_ops() + 1);
    if (order == OpOrder::kByNames && !survey_.has_two_devices()) names_.emplace(program_, survey_);
  }

  void Run(bool track, StepEnd end) {
    RunBlock(0, /*again=*/false);
    // Waits that only what follows relies on are needed, too.
    if (track || !AllIsAwaited()) Continue(end);
    const uint32_t num_syncs = static_cast<uint32_t>(report_.syncs.size());
    const std::vector<bool> needed = clocks_.MarkedSources(num_syncs);
    if (track) RelyOnEverything();
    clocks_.MarkPrecautions();
    const std::vector<bool> precaution = clocks_.MarkedSources(num_syncs);
    for (uint32_t i = 0; i < num_syncs; ++i) {
      SyncUse& sync = report_.syncs[i];
      if (!is_followed_[i] || report_.unknown_communication.valid() || report_.gave_up_at.valid() ||
          names_.has_value()) {
        continue;
      }
      if (sync.waiting < 0 || sync.awaited < 0) {
        sync.effect = SyncEffect::kNoStream;
      } else if (!orders_[i]) {
        sync.effect = SyncEffect::kOrdersNothing;
      } else if (track && !needed[i]) {
        sync.effect = precaution[i] ? SyncEffect::kPrecaution : SyncEffect::kNotNeeded;
      }
    }
  }

 private:
  // Whether what follows, once the compute stream is idle, comes after everything.
  bool AllIsAwaited() {
    for (int stream = 1; stream < report_.num_streams; ++stream) {
      if (!clocks_.KnowsAll(kComputeStream, stream)) return false;
    }
    return true;
  }

  void Continue(StepEnd end) {
    // Only Weft's executor runs programs on two devices.
    if (end == StepEnd::kAllIdle || survey_.has_two_devices()) return;
    clocks_.HostWait(kComputeStream, StreamClocks::kNoOp);
    step_end_ = static_cast<uint32_t>(op_at_.size()) - 1;
    if (end == StepEnd::kNextStep) {
      slice_accesses_left_ += SliceAccesses(program_);
      return RunBlock(0, /*again=*/true);
    }
    now_.time = clocks_.Issue(kComputeStream);
    now_.stream = kComputeStream;
    now_.in_branch = false;
    op_at_.push_back(OpId());
    for (const bool writes : {false, true}) {
      now_.writes = writes;
      for (size_t i = 0; i < memory_.cells().size(); ++i) TouchCell(static_cast<int>(i));
    }
  }

  static int64_t SliceAccesses(const Program& program) {
    return kSliceAccesses + kSliceAccessesPerOp * static_cast<int64_t>(program.num_ops());
  }

  // `again`: in the second iteration of a loop, or the next step, where inner loops need not be
  // repeated.
  void RunBlock(int index, bool again) {
    const Block block = program_.block(index);
    const absl::Span<const OpId> ops = block.ops();
    size_t next = 0;
    for (const Special& special : survey_.special(index)) {
      for (; next < special.position; ++next)
        RunPlain(block, program_.op(ops[next]), kComputeStream);
      RunSpecial(block, program_.op(ops[next++]), special, again);
    }
    for (; next < ops.size(); ++next) RunPlain(block, program_.op(ops[next]), kComputeStream);
  }

  void RunSpecial(const Block& block, const Op& op, const Special& special, bool again) {
    switch (special.kind) {
      case Special::Kind::kStreamOp:
        return RunPlain(block, op, special.index);
      case Special::Kind::kSync:
        return Synchronize(report_.syncs[special.index], special.index);
      case Special::Kind::kRingSetup:
        return clocks_.IncidentalHostWait(kComputeStream);
      case Special::Kind::kBranch:
        return RunBranch(block, op, special.index, again);
      case Special::Kind::kFuse:
        return FuseTensors(block, op, special.index);
      case Special::Kind::kShare:
        return ShareMemory(block, op, special.index);
      case Special::Kind::kHoldsBlocks:
        return RunLoop(block, op, special.index, again);
    }
  }

  void RunPlain(const Block& block, const Op& op, int stream) {
    Begin(op, stream);
    for (Symbol name : op.input_args()) {
      if (survey_.IsWatched(name)) Touch(block.Resolve(name), /*writes=*/false);
    }
    for (Symbol name : op.output_args()) {
      if (survey_.IsWatched(name)) Touch(block.Resolve(name), /*writes=*/true);
    }
  }

  void Synchronize(const SyncUse& sync, int index) {
    is_followed_[index] = true;
    const uint32_t source = static_cast<uint32_t>(index);
    if (sync.waiting < 0 || sync.awaited < 0) return;
    const bool all_wait =
        sync.sync == StreamSync::kAllWaitForCompute || sync.sync == StreamSync::kAllWaitForRing;
    const bool orders = all_wait ? clocks_.HostWait(sync.awaited, source)
                                 : clocks_.Wait(sync.waiting, sync.awaited, source);
    if (orders) orders_[index] = true;
  }

  // False if another op runs the block, too: the number of ways into a block may be exponential in
  // the size of the program.
  bool MayRun(const Op& op, int block) {
    if (holder_[block].valid() && holder_[block] != op.id()) {
      if (not_followed_.insert(op.id()).second) report_.not_followed.push_back(op.id());
      return false;
    }
    holder_[block] = op.id();
    return true;
  }

  static std::set<int> DistinctBlocks(const Op& op) {
    const std::vector<int> blocks = op.SubBlocks();
    return {blocks.begin(), blocks.end()};
  }

  // The ops of the block access the op's Input and Out.
  void RunBranch(const Block& block, const Op& op, int stream, bool again) {
    Begin(op, stream);
    for (Symbol name : op.Input("Cond")) {
      if (survey_.IsWatched(name)) Touch(block.Resolve(name), /*writes=*/false);
    }
    clocks_.IncidentalHostWait(stream);
    clocks_.EnterBranch();
    for (int inner : DistinctBlocks(op)) {
      if (MayRun(op, inner)) RunBlock(inner, again);
    }
    clocks_.LeaveBranch();
  }

  // The second iteration shows conflicts between iterations. An inner loop is repeated only in the
  // first iteration of the outer one: conflicts between its iterations do not depend on the outer.
  void RunLoop(const Block& block, const Op& op, int stream, bool again) {
    RunPlain(block, op, stream);
    clocks_.EnterBranch();
    ++loops_;
    for (int turn = again ? 1 : 0; turn < 2; ++turn) {
      for (int inner : DistinctBlocks(op)) {
        if (MayRun(op, inner)) RunBlock(inner, again || turn > 0);
      }
    }
    --loops_;
    clocks_.LeaveBranch();
  }

  void FuseTensors(const Block& block, const Op& op, int stream) {
    const Storage::Buffer& made = *storage_.MadeBy(op.id());
    if (!made.name.valid() || made.parts.empty()) return RunPlain(block, op, stream);
    Begin(op, stream);
    if (made.copies) {
      for (Symbol name : made.sources) Touch(block.Resolve(name), /*writes=*/false);
    }
    if (!made.var.valid()) return;
    memory_.AddBuffer(op.id(), made.var, made.part_vars, [&](VarId member) {
      if (step_end_ == 0) report_.shared_slices.push_back({op.id(), op.id(), made.var, member});
    });
    const bool writes = made.copies || made.constant.has_value();
    if (writes || survey_.has_two_devices()) Touch(made.var, /*writes=*/true);
  }

  void ShareMemory(const Block& block, const Op& op, int stream) {
    RunPlain(block, op, stream);
    for (const SharedMemory& pair : storage_.SharedBy(op.id())) {
      const VarId in = block.Resolve(pair.in), out = block.Resolve(pair.out);
      if (in.valid() && out.valid() && in != out) memory_.Share(op.id(), in, out);
    }
  }

  // --- Accesses ----------------------------------------------------------------------------------

  void Begin(const Op& op, int stream) {
    now_.time = clocks_.Issue(stream);
    now_.stream = static_cast<uint16_t>(stream);
    now_.in_branch = clocks_.in_branch();
    op_at_.push_back(op.id());
  }

  void Touch(VarId var, bool writes) {
    if (!var.valid()) return;
    now_.writes = writes;
    const size_t num_races = report_.races.size();
    TouchOwn(var);
    const VarId shared = memory_.SharedBy(var);
    if (!shared.valid()) return;
    is_reported_ = report_.races.size() > num_races;
    TouchOwn(shared);
    is_reported_ = false;
  }

  void TouchOwn(VarId var) {
    Cells::Buffer* const buffer = memory_.FindBuffer(var);
    if (buffer == nullptr) return TouchCell(memory_.CellOf(var));
    if (step_end_ == 0 && buffer->moved_by.valid() && !std::exchange(buffer->reported, true)) {
      report_.shared_slices.push_back(
          {op_at_[now_.time], buffer->moved_by, buffer->var, buffer->moved});
    }
    slice_accesses_left_ -= static_cast<int64_t>(buffer->cells.size());
    if (slice_accesses_left_ < 0) {
      if (!report_.gave_up_at.valid()) report_.gave_up_at = op_at_[now_.time];
      return;
    }
    for (int cell : buffer->cells) TouchCell(cell);
  }

  void TouchCell(int index) {
    Cells::Cell& cell = memory_.cell(index);
    if (step_end_ > 0 && !program_.var(cell.var).persistable()) return;
    for (AccessHistory::Entry& entry : cell.history.entries()) {
      if (!entry.access.writes && !now_.writes) continue;
      if (clocks_.IsBefore(entry.access, now_.stream)) {
        clocks_.Rely(entry.access, now_.stream);
      } else if (!entry.clashed && !NamesOrder(entry.access, cell)) {
        entry.clashed = true;
        // Conflicts within the next step are those within this one.
        const bool is_within_next = entry.access.time > step_end_ && step_end_ > 0;
        if (!is_within_next && !is_reported_) Report(entry.access, cell.var);
      }
    }
    cell.history.Add(now_, clocks_.branch_start());
  }

  // Also whether it is not for this analysis to say.
  bool NamesOrder(const StreamAccess& access, const Cells::Cell& cell) {
    if (!names_.has_value()) return false;
    const OpId first = op_at_[access.time], second = op_at_[now_.time];
    if (step_end_ > 0 && access.time <= step_end_) return names_->IsAwaited(first);
    if (names_->IsBefore(first, second)) return true;
    return cell.buffer >= 0 && Names(first, cell.var) != Names(second, cell.var);
  }

  bool Names(OpId op, VarId var) const {
    return absl::c_linear_search(program_.op(op).args(), program_.var(var).name_symbol());
  }

  void Report(const StreamAccess& first, VarId var) {
    Race race;
    race.kind = !now_.writes   ? Race::Kind::kReadAfterWrite
                : first.writes ? Race::Kind::kWriteAfterWrite
                               : Race::Kind::kWriteAfterRead;
    race.first = op_at_[first.time];
    race.second = op_at_[now_.time];
    race.first_stream = first.stream;
    race.second_stream = now_.stream;
    race.variable = var;
    race.is_after_end = step_end_ > 0;
    if (loops_ > 0) {
      const auto key = std::make_tuple(race.kind, race.first, race.second, race.variable);
      if (!reported_.insert(key).second) return;
    }
    report_.races.push_back(race);
  }

  // The compute stream continues after the program.
  void RelyOnEverything() {
    clocks_.CatchUp(kComputeStream);
    for (Cells::Cell& cell : memory_.cells()) {
      for (const AccessHistory::Entry& entry : cell.history.entries()) {
        if (clocks_.IsBefore(entry.access, kComputeStream)) {
          clocks_.Rely(entry.access, kComputeStream);
        }
      }
    }
  }

  const Program& program_;
  const StreamSurvey& survey_;
  StreamReport& report_;
  StreamClocks clocks_;
  const Storage& storage_;
  absl::optional<NameOrder> names_;  // none: it orders nothing
  Cells memory_;
  int64_t slice_accesses_left_;
  StreamAccess now_;                        // of the op that is being issued
  std::vector<OpId> op_at_;                 // by time
  std::vector<OpId> holder_;                // by block: the op that runs it
  uint32_t step_end_ = 0;                   // the time of the last op, once it is issued
  bool is_reported_ = false;                // a race of this access, under another name
  int loops_ = 0;                           // around the op that is being issued
  std::vector<bool> is_followed_, orders_;  // by sync
  absl::flat_hash_set<OpId> not_followed_;
  // Races in loops.
  absl::flat_hash_set<std::tuple<Race::Kind, OpId, OpId, VarId>> reported_;
};

}  // namespace

StreamReport AnalyzeStreams(const ProgramFacts& facts, const StreamOptions& options) {
  StreamReport report;
  const StreamSurvey& survey = facts.Get<StreamSurvey>();
  report.ring_ids = survey.ring_ids();
  report.unknown_communication = survey.unknown_communication();
  report.unknown_on_compute = survey.unknown_on_compute();
  for (const StreamSurvey::Sync& sync : survey.syncs()) {
    report.syncs.push_back(
        {sync.op, sync.sync, sync.ring_id, SyncEffect::kNeeded, sync.waiting, sync.awaited});
  }
  report.num_streams = survey.num_streams();
  const int num_streams = report.num_streams;
  if (num_streams > kMaxStreams) {
    report.too_many_streams = true;
    return report;
  }
  const bool track = options.find_redundant_syncs && num_streams <= kMaxStreamsToTrack;
  StreamWalk(facts, track, options.order, &report).Run(track, options.end);
  return report;
}

std::string StreamName(const StreamReport& report, int stream) {
  if (stream == kComputeStream) return "the compute stream";
  const int num_rings = static_cast<int>(report.ring_ids.size());
  if (stream > num_rings) {
    const int first = static_cast<int>(DeviceStream::Kind::kHost);
    const auto kind = static_cast<DeviceStream::Kind>(stream - num_rings - 1 + first);
    return absl::StrCat("stream ", DeviceStreamName(kind));
  }
  return absl::StrCat("ring ", report.ring_ids[stream - 1]);
}

}  // namespace weft
