#include "ops/analysis/streams.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/analysis/access_history.h"
#include "ops/analysis/op_traits.h"
#include "ops/analysis/stream_clocks.h"
#include "ops/schema/op_schema.h"
#include "proto/op_role.h"

namespace weft {
namespace {

constexpr int kComputeStream = 0;

// An op that does more than access its arguments on the compute stream.
struct SpecialOp {
  enum class Kind : uint8_t { kRingOp, kSync, kRingSetup, kBranch, kLayOut, kHoldsBlocks };
  Kind kind;
  uint32_t place;  // in its block
  // kRingOp: the ring, then its stream. kSync: into StreamReport::syncs.
  int index = 0;
};

// --- What the program has ------------------------------------------------------------------------

// Finds the ops that are special, the rings that have streams, and which names matter.
class Survey {
 public:
  Survey(const Program& program, StreamReport* report)
      : program_(program),
        report_(*report),
        traits_(program),
        layouts_(program.num_layouts()),
        special_(program.num_blocks()),
        is_watched_(program.symbols().size(), false) {
    for (int b = 0; b < program_.num_blocks(); ++b) {
      uint32_t place = 0;
      for (OpId id : program_.block(b).ops()) Visit(b, place++, program_.op(id));
    }
    report_.ring_ids.assign(rings_.begin(), rings_.end());
    for (std::vector<SpecialOp>& ops : special_) {
      for (SpecialOp& op : ops) {
        if (op.kind == SpecialOp::Kind::kRingOp) op.index = StreamOfRing(op.index);
      }
    }
  }

  absl::Span<const SpecialOp> special(int block) const { return special_[block]; }
  // Whether a stream other than the compute stream may access a variable of that name. All others
  // cannot race.
  bool IsWatched(Symbol name) const { return is_watched_[name.value()] != 0; }
  // -1: none.
  int StreamOfRing(int ring_id) const {
    const auto& ids = report_.ring_ids;
    const auto it = std::lower_bound(ids.begin(), ids.end(), ring_id);
    return it == ids.end() || *it != ring_id ? -1 : static_cast<int>(it - ids.begin()) + 1;
  }
  // An attribute of type BOOLEAN; false where it is missing.
  static bool IsTrue(const Op& op, absl::string_view name) {
    const auto attr = op.FindAttr(name);
    return attr.has_value() && attr->type() == pb::BOOLEAN && attr->b();
  }

 private:
  enum class Class : uint8_t {
    kUnseen,
    kPlain,
    kCollective,
    kUnknownWithRing,
    kSync,
    kRingSetup,
    kBranch,
    kLayOut,
    kHoldsBlocks,
  };
  struct Layout {
    Class cls = Class::kUnseen;
    StreamSync sync = StreamSync::kAllWaitForCompute;
    int ring_attr = -1;     // into OpLayout::attrs; -1: none
    int compute_attr = -1;  // use_calc_stream
  };
  struct RingAttrs {
    int ring_id = 0;
    bool on_compute = false;
  };

  void Visit(int block, uint32_t place, const Op& op) {
    Layout& layout = layouts_[op.layout_id()];
    if (layout.cls == Class::kUnseen) layout = Classify(op);
    using Kind = SpecialOp::Kind;
    const auto add = [&](Kind kind, int index = 0) {
      special_[block].push_back({kind, place, index});
    };
    switch (layout.cls) {
      case Class::kUnseen:
      case Class::kPlain:
        return;
      case Class::kCollective: {
        const RingAttrs ring = Decode(op, layout);
        if (ring.on_compute) return;
        rings_.insert(ring.ring_id);
        Watch(op);
        return add(Kind::kRingOp, ring.ring_id);
      }
      case Class::kUnknownWithRing:
        if (report_.unknown_communication.valid() || Decode(op, layout).on_compute) return;
        report_.unknown_communication = op.id();
        return;
      case Class::kSync:
        add(Kind::kSync, static_cast<int>(report_.syncs.size()));
        report_.syncs.push_back(
            {op.id(), layout.sync, Decode(op, layout).ring_id, SyncEffect::kNeeded});
        return;
      case Class::kRingSetup:
        return add(Kind::kRingSetup);
      case Class::kBranch:
        return add(Kind::kBranch);
      case Class::kLayOut:
        Watch(op);
        return add(Kind::kLayOut);
      case Class::kHoldsBlocks:
        return add(Kind::kHoldsBlocks);
    }
  }

  Layout Classify(const Op& op) {
    Layout layout;
    bool holds_blocks = false;
    const std::vector<OpLayout::Attr>& attrs = op.layout().attrs;
    for (size_t i = 0; i < attrs.size(); ++i) {
      const absl::string_view name = program_.name(attrs[i].name);
      if (name == "ring_id") layout.ring_attr = static_cast<int>(i);
      if (name == "use_calc_stream") layout.compute_attr = static_cast<int>(i);
      if (attrs[i].type == pb::BLOCK || attrs[i].type == pb::BLOCKS) holds_blocks = true;
    }
    const OpSchema* schema = traits_.SchemaOf(op);
    const auto has = [&](Trait trait) { return schema != nullptr && schema->Has(trait); };
    const absl::optional<StreamSync> sync = FindStreamSyncOp(op.type());
    layout.cls = Class::kPlain;
    if (has(Trait::kStreamSync) && sync.has_value()) {
      layout.cls = Class::kSync;
      layout.sync = *sync;
    } else if (has(Trait::kRingSetup)) {
      layout.cls = Class::kRingSetup;
    } else if (has(Trait::kBranch)) {
      layout.cls = Class::kBranch;
    } else if (holds_blocks) {
      layout.cls = Class::kHoldsBlocks;
    } else if (has(Trait::kCollective)) {
      layout.cls = Class::kCollective;
    } else if (schema == nullptr && layout.ring_attr >= 0) {
      layout.cls = Class::kUnknownWithRing;
    } else if (has(Trait::kAlias)) {
      layout.cls = Class::kLayOut;
    }
    return layout;
  }

  RingAttrs Decode(const Op& op, const Layout& layout) {
    RingAttrs ring;
    if (layout.ring_attr < 0 && layout.compute_attr < 0) return ring;
    op.ForEachAttr([&](size_t i, absl::string_view bytes) {
      const int at = static_cast<int>(i);
      if (at != layout.ring_attr && at != layout.compute_attr) return;
      attr_.ParsePartialFromArray(bytes.data(), static_cast<int>(bytes.size()));
      if (at == layout.compute_attr) {
        ring.on_compute = attr_.type() == pb::BOOLEAN && attr_.b();
      } else {
        ring.ring_id = static_cast<int>(attr_.type() == pb::LONG ? attr_.l() : attr_.i());
      }
    });
    return ring;
  }

  void Watch(const Op& op) {
    for (Symbol name : op.args()) {
      is_watched_[name.value()] = program_.name(name) != kEmptyVarName;
    }
  }

  const Program& program_;
  StreamReport& report_;
  OpTraits traits_;
  std::vector<Layout> layouts_;                  // by Op::layout_id
  std::vector<std::vector<SpecialOp>> special_;  // by block
  std::set<int> rings_;                          // with a stream
  std::vector<char> is_watched_;                 // by Symbol
  pb::OpDesc::Attr attr_;                        // of the last Decode: its memory is used again
};

// --- Storage -------------------------------------------------------------------------------------

// A place in memory: a variable's own, or, as a list of those, a buffer.
class Storage {
 public:
  explicit Storage(const Program& program) : cell_of_var_(program.var_id_limit(), kNone) {}

  struct Cell {
    VarId var;
    int buffer = -1;  // that it is a slice of
    AccessHistory history;
  };
  struct Buffer {
    VarId var;
    std::vector<int> cells;
    OpId moved_by;  // has taken a slice away
    VarId moved;
    bool reported = false;
  };

  // nullptr where the variable is no buffer.
  Buffer* FindBuffer(VarId var) {
    const int index = cell_of_var_[var.value()];
    return index < kNone ? &buffers_[kNone - 1 - index] : nullptr;
  }
  // Of a variable that is no buffer.
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

  // Makes the members slices of the buffer. Calls `twice` with members that are there already.
  template <typename Twice>
  void LayOut(OpId op, VarId var, const std::vector<VarId>& members, const Twice& twice) {
    if (const Buffer* before = FindBuffer(var); before != nullptr) {
      if (!before->moved_by.valid() && IsLaidOut(*before, members)) return;
    }
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

 private:
  static constexpr int kNone = -1;

  bool IsLaidOut(const Buffer& buffer, const std::vector<VarId>& members) {
    return std::equal(members.begin(), members.end(), buffer.cells.begin(), buffer.cells.end(),
                      [&](VarId member, int cell) { return cells_[cell].var == member; });
  }

  // The variable goes to another place than the buffer that it is a slice of.
  void Leave(OpId op, VarId var) {
    const int index = cell_of_var_[var.value()];
    if (index < 0 || cells_[index].buffer < 0) return;
    Buffer& buffer = buffers_[cells_[index].buffer];
    buffer.moved_by = op;
    buffer.moved = var;
    cells_[index].buffer = -1;
  }

  // By VarId: a cell; kNone; or, counted down from kNone - 1, a buffer.
  std::vector<int> cell_of_var_;
  std::vector<Cell> cells_;
  std::vector<Buffer> buffers_;  // also those that have been replaced
};

// --- The walk ------------------------------------------------------------------------------------

class Walk {
 public:
  Walk(const Program& program, const Survey& survey, bool track, StreamReport* report)
      : program_(program),
        survey_(survey),
        report_(*report),
        clocks_(static_cast<int>(report->ring_ids.size()) + 1, track),
        storage_(program),
        op_at_(1),
        holder_(program.num_blocks()),
        is_followed_(report->syncs.size(), false),
        orders_(report->syncs.size(), false) {}

  void Run(bool track) {
    RunBlock(0, /*again=*/false);
    const uint32_t num_syncs = static_cast<uint32_t>(report_.syncs.size());
    const std::vector<bool> needed = clocks_.MarkedSources(num_syncs);
    if (track) RelyOnEverything();
    const std::vector<bool> afterwards = clocks_.MarkedSources(num_syncs);
    for (uint32_t i = 0; i < num_syncs; ++i) {
      SyncUse& sync = report_.syncs[i];
      if (!is_followed_[i] || report_.unknown_communication.valid()) continue;
      if (sync.sync != StreamSync::kAllWaitForCompute && survey_.StreamOfRing(sync.ring_id) < 0) {
        sync.effect = SyncEffect::kNoStream;
      } else if (!orders_[i]) {
        sync.effect = SyncEffect::kOrdersNothing;
      } else if (track && !needed[i]) {
        sync.effect = afterwards[i] ? SyncEffect::kNeededAfterwards : SyncEffect::kNotNeeded;
      }
    }
  }

 private:
  // `again`: not for the first time in a row, so that loops inside need not be repeated.
  void RunBlock(int index, bool again) {
    const Block block = program_.block(index);
    const absl::Span<const OpId> ops = block.ops();
    size_t next = 0;
    for (const SpecialOp& special : survey_.special(index)) {
      for (; next < special.place; ++next) RunPlain(block, program_.op(ops[next]), kComputeStream);
      RunSpecial(block, program_.op(ops[next++]), special, again);
    }
    for (; next < ops.size(); ++next) RunPlain(block, program_.op(ops[next]), kComputeStream);
  }

  void RunSpecial(const Block& block, const Op& op, const SpecialOp& special, bool again) {
    switch (special.kind) {
      case SpecialOp::Kind::kRingOp:
        return RunPlain(block, op, special.index);
      case SpecialOp::Kind::kSync:
        return Synchronize(report_.syncs[special.index], special.index);
      case SpecialOp::Kind::kRingSetup:
        clocks_.HostWait(kComputeStream, StreamClocks::kNoOp);
        return;
      case SpecialOp::Kind::kBranch:
        return RunBranch(block, op, again);
      case SpecialOp::Kind::kLayOut:
        return LayOut(block, op);
      case SpecialOp::Kind::kHoldsBlocks:
        return RunLoop(block, op, again);
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
    const int ring = survey_.StreamOfRing(sync.ring_id);
    const uint32_t source = static_cast<uint32_t>(index);
    bool orders = false;
    switch (sync.sync) {
      case StreamSync::kRingWaitsForCompute:
        orders = ring >= 0 && clocks_.Wait(ring, kComputeStream, source);
        break;
      case StreamSync::kComputeWaitsForRing:
        orders = ring >= 0 && clocks_.Wait(kComputeStream, ring, source);
        break;
      case StreamSync::kAllWaitForCompute:
        orders = clocks_.HostWait(kComputeStream, source);
        break;
      case StreamSync::kAllWaitForRing:
        orders = ring >= 0 && clocks_.HostWait(ring, source);
        break;
    }
    if (orders) orders_[index] = true;
  }

  // False: another op runs the block, too. The number of ways into a block may be exponential in
  // the size of the program.
  bool MayRun(const Op& op, int block) {
    if (holder_[block].valid() && holder_[block] != op.id()) {
      if (not_followed_.insert(op.id()).second) report_.not_followed.push_back(op.id());
      return false;
    }
    holder_[block] = op.id();
    return true;
  }

  static std::vector<int> DistinctBlocks(const Op& op) {
    std::vector<int> blocks = op.SubBlocks();
    std::sort(blocks.begin(), blocks.end());
    blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
    return blocks;
  }

  // What the op lists as Input and Out, the ops of its block name too.
  void RunBranch(const Block& block, const Op& op, bool again) {
    Begin(op, kComputeStream);
    for (Symbol name : op.Input("Cond")) {
      if (survey_.IsWatched(name)) Touch(block.Resolve(name), /*writes=*/false);
    }
    clocks_.HostWait(kComputeStream, StreamClocks::kNoOp);
    clocks_.EnterBranch();
    for (int inner : DistinctBlocks(op)) {
      if (MayRun(op, inner)) RunBlock(inner, again);
    }
    clocks_.LeaveBranch();
  }

  // The second time shows what clashes from one turn to the next. A loop in a loop is repeated in
  // the first turn of the outer one only: whether its turns clash does not depend on the outer one.
  void RunLoop(const Block& block, const Op& op, bool again) {
    RunPlain(block, op, kComputeStream);
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

  void LayOut(const Block& block, const Op& op) {
    const absl::Span<const Symbol> fused = op.Output("FusedOutput");
    if (fused.size() != 1 || op.Output("Output").empty()) {
      return RunPlain(block, op, kComputeStream);
    }
    Begin(op, kComputeStream);
    const bool copies = Survey::IsTrue(op, "copy_data");
    if (copies) {
      for (Symbol name : op.Input("Input")) Touch(block.Resolve(name), /*writes=*/false);
    }
    std::vector<VarId> members;
    for (Symbol name : op.Output("Output")) {
      const VarId var = block.Resolve(name);
      if (var.valid()) members.push_back(var);
    }
    const VarId buffer = block.Resolve(fused[0]);
    if (!buffer.valid()) return;
    storage_.LayOut(op.id(), buffer, members, [&](VarId member) {
      report_.shared_slices.push_back({op.id(), op.id(), buffer, member});
    });
    if (copies || Survey::IsTrue(op, "set_constant")) Touch(buffer, /*writes=*/true);
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
    Storage::Buffer* const buffer = storage_.FindBuffer(var);
    if (buffer == nullptr) return TouchCell(storage_.CellOf(var));
    if (buffer->moved_by.valid() && !std::exchange(buffer->reported, true)) {
      report_.shared_slices.push_back(
          {op_at_[now_.time], buffer->moved_by, buffer->var, buffer->moved});
    }
    for (int cell : buffer->cells) TouchCell(cell);
  }

  void TouchCell(int index) {
    Storage::Cell& cell = storage_.cell(index);
    for (AccessHistory::Entry& entry : cell.history.entries()) {
      if (!entry.access.writes && !now_.writes) continue;
      if (clocks_.IsBefore(entry.access, now_.stream)) {
        clocks_.Rely(entry.access, now_.stream);
      } else if (!entry.clashed) {
        entry.clashed = true;
        Report(entry.access, cell.var);
      }
    }
    if (now_.writes) {
      cell.history.AddWrite(now_, clocks_.branch_start());
    } else {
      cell.history.AddRead(now_);
    }
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
    if (loops_ > 0) {
      const auto key = std::make_tuple(race.kind, race.first, race.second, race.variable);
      if (!reported_.insert(key).second) return;
    }
    report_.races.push_back(race);
  }

  // The compute stream goes on behind the program.
  void RelyOnEverything() {
    clocks_.CatchUp(kComputeStream);
    for (Storage::Cell& cell : storage_.cells()) {
      for (const AccessHistory::Entry& entry : cell.history.entries()) {
        if (clocks_.IsBefore(entry.access, kComputeStream)) {
          clocks_.Rely(entry.access, kComputeStream);
        }
      }
    }
  }

  const Program& program_;
  const Survey& survey_;
  StreamReport& report_;
  StreamClocks clocks_;
  Storage storage_;
  StreamAccess now_;                        // of the op that is being issued
  std::vector<OpId> op_at_;                 // by time
  std::vector<OpId> holder_;                // by block: the op that runs it
  int loops_ = 0;                           // around the op that is being issued
  std::vector<bool> is_followed_, orders_;  // by sync
  absl::flat_hash_set<OpId> not_followed_;
  // Those in loops.
  absl::flat_hash_set<std::tuple<Race::Kind, OpId, OpId, VarId>> reported_;
};

}  // namespace

StreamReport AnalyzeStreams(const Program& program, const StreamOptions& options) {
  StreamReport report;
  const Survey survey(program, &report);
  const size_t num_streams = report.ring_ids.size() + 1;
  if (num_streams > kMaxStreams) {
    report.too_many_streams = true;
    return report;
  }
  const bool track = options.find_needless_syncs && num_streams <= kMaxStreamsToTrack;
  Walk(program, survey, track, &report).Run(track);
  return report;
}

std::string StreamName(const StreamReport& report, int stream) {
  if (stream == kComputeStream) return "the compute stream";
  return absl::StrCat("ring ", report.ring_ids[stream - 1]);
}

}  // namespace weft
