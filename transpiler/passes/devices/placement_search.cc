#include "transpiler/passes/devices/placement_search.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/analysis/core/storage.h"
#include "ops/analysis/devices/device_memory.h"
#include "ops/schema/algebra.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/feed_ops.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/server_ops.h"
#include "ops/schema/tensor_type.h"
#include "proto/all_ops.h"
#include "proto/op_role.h"
#include "transpiler/passes/devices/accumulations.h"
#include "transpiler/passes/support/device_accesses.h"
#include "transpiler/passes/support/op_queries.h"

namespace weft {
namespace {

using Kind = PlacementUnit::Kind;

// Placements that each kind of unit is divided into.
constexpr int kMaxSteps = 12;

// Ends of prefixes of n units, in so many steps at most.
std::vector<int> PrefixesOf(int n) {
  std::vector<int> ends;
  for (int step = 1; step <= kMaxSteps; ++step) {
    const int end = static_cast<int>((int64_t{n} * step + kMaxSteps - 1) / kMaxSteps);
    if (end > 0 && (ends.empty() || ends.back() < end)) ends.push_back(end);
  }
  return ends;
}

// The units of a program, in the order in which they go to the host.
class PlacementUnits {
 public:
  PlacementUnits(const PlacementRequest& request, const Program& program)
      : request_(request),
        program_(program),
        accesses_(program),
        traits_(program),
        has_gradient_(program.num_blocks(), false),
        num_users_(program.var_id_limit(), 0),
        is_taken_(program.op_id_limit(), false) {
    for (int block = 0; block < program.num_blocks(); ++block) {
      const int forward = ForwardOf(block);
      if (forward >= 0 && forward < program.num_blocks()) has_gradient_[forward] = true;
    }
    FindUsers();
    FindMentions();
    FindUpdates();
    FindTables();
    FindOthers();
  }

  const std::vector<PlacementUnit>& updates() const { return updates_; }
  // After so many updates: how many there are when those follow that read gradients of the same
  // bucket as the last one, which then goes to the host in one copy.
  int EndOfBucket(int updates) const {
    const Symbol bucket = buckets_[updates - 1];
    const int all = static_cast<int>(buckets_.size());
    while (bucket.valid() && updates < all && buckets_[updates] == bucket) ++updates;
    return updates;
  }
  const std::vector<PlacementUnit>& tables() const { return tables_; }
  const std::vector<PlacementUnit>& least_dense() const { return least_dense_; }
  const std::vector<PlacementUnit>& layers() const { return layers_; }

 private:
  // Whether the op may go to the host, alone.
  bool CanMove(const Op& op) const {
    const size_t id = op.id().value();
    if (request_.is_fixed[id] || request_.devices[id] == DeviceKind::kHost) return false;
    for (Trait trait : {Trait::kStreamSync, Trait::kRingSetup, Trait::kAlias, Trait::kCollective}) {
      if (traits_.Has(op, trait)) return false;
    }
    // The ops that access a fused buffer stay together, and those that access an array. What only
    // this op accesses goes with it, as the scope of a branch without a gradient.
    if (absl::c_any_of(accesses_.Of(op.id()), [&](const DeviceAccess& access) {
          return accesses_.FindBuffer(access.var) != nullptr ||
                 (!IsCopied(program_.var(access.var)) && num_users_[access.var.value()] > 1);
        })) {
      return false;
    }
    return !IsFeed(op.type()) && !IsFetch(op.type()) && !IsOfGradientBlock(op) &&
           WhyNotOnHost(op).empty();
  }

  // A branch and the branch that computes its gradient stay together.
  bool IsOfGradientBlock(const Op& op) const {
    return absl::c_any_of(op.SubBlocks(),
                          [&](int block) { return has_gradient_[block] || ForwardOf(block) >= 0; });
  }

  // The block whose gradient the block computes, or -1. Where Paddle merges gradients, the block of
  // the updates names itself.
  int ForwardOf(int block) const {
    const int forward = program_.block(block).forward_block_idx();
    return forward == block ? -1 : forward;
  }

  std::string Name(Symbol name) const { return std::string(program_.name(name)); }

  void FindUsers() {
    for (OpId id : program_.block(0).ops()) {
      for (const DeviceAccess& access : accesses_.Of(id)) ++num_users_[access.var.value()];
    }
  }

  void FindMentions() {
    const int none = std::numeric_limits<int>::max();
    first_use_.resize(program_.symbols().size(), none);
    last_write_.resize(program_.symbols().size(), -1);
    for (const Op& op : BlockOps(program_, 0)) {
      const int position = static_cast<int>(op.position());
      for (Symbol name : op.args()) {
        int& first = first_use_[name.value()];
        first = std::min(first, position);
      }
      if (traits_.Has(op, Trait::kStreamSync)) continue;
      for (Symbol name : op.output_args()) last_write_[name.value()] = position;
    }
  }

  void FindUpdates() {
    std::vector<std::pair<int, OpId>> found;  // when the gradient is complete
    CurrentBuffers buffers(accesses_.storage());
    for (const Op& op : BlockOps(program_, 0)) {
      buffers.Pass(op.id());
      if (!CanMove(op) || !UpdatesParameters(op)) continue;
      int ready = -1;
      for (Symbol grad : op.Input("Grad")) ready = std::max(ready, last_write_[grad.value()]);
      if (op.Input("Grad").empty()) ready = static_cast<int>(op.position());
      found.push_back({ready, op.id()});
    }
    absl::c_stable_sort(found, [](const auto& a, const auto& b) { return a.first < b.first; });
    absl::optional<Accumulations> accumulations;
    for (const auto& [ready, id] : found) {
      const Op op = program_.op(id);
      is_taken_[id.value()] = true;
      const auto params = op.Input("Param"), grads = op.Input("Grad");
      const auto* const bucket = grads.empty() ? nullptr : buffers.WithPart(0, grads[0]);
      buckets_.push_back(bucket == nullptr ? Symbol() : bucket->name);
      updates_.push_back({Kind::kUpdate, {id}, params.empty() ? op.DebugName() : Name(params[0])});
      if (op.SubBlocks().empty()) continue;
      if (!accumulations.has_value()) accumulations.emplace(program_);
      for (OpId accumulation : accumulations->Of(id)) {
        if (!CanMove(program_.op(accumulation))) continue;
        is_taken_[accumulation.value()] = true;
        updates_.back().ops.push_back(accumulation);
      }
    }
  }

  // Also in a branch.
  bool UpdatesParameters(const Op& op) const {
    if (traits_.Has(op, Trait::kOptimizer)) return true;
    return absl::c_any_of(op.SubBlocks(), [&](int block) {
      return absl::c_any_of(program_.block(block).ops(),
                            [&](OpId id) { return UpdatesParameters(program_.op(id)); });
    });
  }

  int64_t BytesOf(Symbol name) const {
    const auto type = DeclaredType(program_, name);
    if (!type.has_value()) return 0;
    return std::max<int64_t>(0, std::min(NumElements(type->dims), kMaxElements)) *
           static_cast<int64_t>(SizeOf(type->dtype));
  }

  // A table with the ops that look up its rows, and those that make and use its gradient.
  void FindTables() {
    std::vector<Symbol> found;
    for (const Op& op : BlockOps(program_, 0)) {
      if (op.type() != "lookup_table" && op.type() != "lookup_table_v2") continue;
      for (Symbol table : op.Input("W")) {
        if (!absl::c_linear_search(found, table)) found.push_back(table);
      }
    }
    absl::c_stable_sort(found, [&](Symbol a, Symbol b) { return BytesOf(a) > BytesOf(b); });
    for (Symbol table : found) {
      PlacementUnit unit{Kind::kTable, {}, Name(table)};
      if (AddUses(table, &unit.ops)) tables_.push_back(std::move(unit));
    }
  }

  // False: one of the ops cannot go to the host.
  bool AddUses(Symbol table, std::vector<OpId>* ops) {
    absl::flat_hash_set<Symbol> names = {table};
    for (const Op& op : BlockOps(program_, 0)) {
      if (traits_.Has(op, Trait::kStreamSync)) continue;
      if (absl::c_none_of(op.args(), [&](Symbol name) { return names.contains(name); })) continue;
      for (Symbol name : op.output_args()) {
        if (IsRows(program_, name)) names.insert(name);
      }
      const size_t id = op.id().value();
      if (request_.devices[id] == DeviceKind::kHost || is_taken_[id]) continue;
      const bool is_of_rows =
          traits_.Has(op, Trait::kCollective) && !request_.is_fixed[id] &&
          absl::c_all_of(op.args(), [&](Symbol name) { return IsRows(program_, name); });
      if (!CanMove(op) && !is_of_rows) return false;
      ops->push_back(op.id());
    }
    for (OpId id : *ops) is_taken_[id.value()] = true;
    return !ops->empty();
  }

  void FindOthers() {
    struct Other {
      OpId op;
      double density;
      int layer;  // the position of the first op that mentions an argument
    };
    std::vector<Other> others;
    for (const Op& op : BlockOps(program_, 0)) {
      if (is_taken_[op.id().value()] || !CanMove(op)) continue;
      int layer = static_cast<int>(op.position());
      if (!IsForward(op)) {
        for (Symbol name : op.args()) layer = std::min(layer, first_use_[name.value()]);
      }
      others.push_back({op.id(), DensityOf(op), layer});
    }
    absl::c_stable_sort(others, [](const Other& a, const Other& b) { return a.layer < b.layer; });
    // The densest op stays: without an op on the accelerator, there is nothing to place.
    const auto densest = absl::c_max_element(
        others, [](const Other& a, const Other& b) { return a.density < b.density; });
    if (densest != others.end()) others.erase(densest);
    const auto add = [&](Kind kind, std::vector<PlacementUnit>* units) {
      for (const Other& other : others) {
        units->push_back({kind, {other.op}, program_.op(other.op).DebugName()});
      }
    };
    add(Kind::kLayers, &layers_);
    absl::c_stable_sort(others,
                        [](const Other& a, const Other& b) { return a.density < b.density; });
    add(Kind::kLeastDense, &least_dense_);
  }

  static bool IsForward(const Op& op) {
    return !IsBackward(op) && (op.role() & kRoleOptimize) == 0;
  }

  // Floating-point operations for a byte of the arguments.
  double DensityOf(const Op& op) const {
    const double flops = FlopsOf(op, request_.speeds.host.batch);
    double bytes = 1;
    for (Symbol name : op.args()) bytes += static_cast<double>(BytesWithBatch(name));
    return flops / bytes;
  }

  int64_t BytesWithBatch(Symbol name) const {
    auto type = DeclaredType(program_, name);
    if (!type.has_value()) return 0;
    for (int64_t& dim : type->dims) dim = dim < 0 ? request_.speeds.host.batch : dim;
    return std::min(NumElements(type->dims), kMaxElements) *
           static_cast<int64_t>(SizeOf(type->dtype));
  }

  const PlacementRequest& request_;
  const Program& program_;
  const DeviceAccesses accesses_;
  const OpTraits traits_;
  std::vector<bool> has_gradient_;           // by block
  std::vector<int> num_users_;               // by VarId: ops of the root block that access it
  std::vector<bool> is_taken_;               // by OpId: of a unit
  std::vector<int> first_use_, last_write_;  // by Symbol: positions in the root block
  std::vector<PlacementUnit> updates_, tables_, least_dense_, layers_;
  std::vector<Symbol> buckets_;  // by update: of its gradient, or invalid
};

class PlacementSearch {
 public:
  PlacementSearch(const PlacementRequest& request, const ProgramPair& programs)
      : request_(request), programs_(programs), units_(request, *programs.main) {}

  absl::StatusOr<PlacementChoice> Run() {
    WEFT_RETURN_IF_ERROR(Try({}));
    if (candidates_.front().bytes <= request_.memory_bytes) return Choose();  // nothing is faster
    const int updates = static_cast<int>(units_.updates().size());
    const int tables = static_cast<int>(units_.tables().size());
    for (int end : PrefixesOf(updates)) {
      WEFT_RETURN_IF_ERROR(Try({end}));
      const int of_bucket = units_.EndOfBucket(end);
      if (of_bucket > end) WEFT_RETURN_IF_ERROR(Try({of_bucket}));
    }
    for (int end : PrefixesOf(tables)) {
      WEFT_RETURN_IF_ERROR(Try({0, end}));
      if (updates > 0) WEFT_RETURN_IF_ERROR(Try({updates, end}));
    }
    for (const bool by_layers : {false, true}) {
      for (int end : PrefixesOf(static_cast<int>(units_.layers().size()))) {
        WEFT_RETURN_IF_ERROR(Try({updates, tables, end, by_layers}));
      }
    }
    return Choose();
  }

 private:
  std::vector<PlacementUnit> Moved(const PlacementCandidate& of) const {
    std::vector<PlacementUnit> moved;
    const auto add = [&](const std::vector<PlacementUnit>& units, int count) {
      moved.insert(moved.end(), units.begin(), units.begin() + count);
    };
    add(units_.updates(), of.updates);
    add(units_.tables(), of.tables);
    add(of.by_layers ? units_.layers() : units_.least_dense(), of.ops);
    return moved;
  }

  void MoveToHost(const Op& op, OpDevices* devices) const {
    (*devices)[op.id().value()] = DeviceKind::kHost;
    for (int block : op.SubBlocks()) {
      for (OpId id : programs_.main->block(block).ops()) {
        MoveToHost(programs_.main->op(id), devices);
      }
    }
  }

  OpDevices Devices(const PlacementCandidate& of) const {
    OpDevices devices = request_.devices;
    for (const PlacementUnit& unit : Moved(of)) {
      for (OpId id : unit.ops) MoveToHost(programs_.main->op(id), &devices);
    }
    return devices;
  }

  absl::Status Try(PlacementCandidate candidate) {
    Program main = *programs_.main;
    ProgramPair pair{&main, programs_.startup};
    const OpDevices devices = Devices(candidate);
    if (absl::c_linear_search(devices, DeviceKind::kHost)) {
      WEFT_RETURN_IF_ERROR(PartitionProgram(devices, request_.partition, pair).status());
    }
    const DeviceMemories memories =
        EstimateDeviceMemory(main, request_.feeds, request_.speeds.host.batch);
    candidate.bytes = memories.Of(DeviceKind::kAccelerator).bytes();
    candidate.seconds = EstimateStepSeconds(main, request_.speeds, request_.collective_seconds);
    if (candidates_.empty()) num_unknown_ = memories.num_unknown;
    // Ops go to the host to save memory only.
    if (!candidates_.empty()) {
      candidate.seconds = std::max(candidate.seconds, candidates_.front().seconds);
    }
    candidates_.push_back(candidate);
    return absl::OkStatus();
  }

  absl::StatusOr<PlacementChoice> Choose() {
    const PlacementCandidate* best = nullptr;
    int64_t least = std::numeric_limits<int64_t>::max();
    for (const PlacementCandidate& candidate : candidates_) {
      least = std::min(least, candidate.bytes);
      if (candidate.bytes > request_.memory_bytes) continue;
      if (best == nullptr || candidate.seconds < best->seconds) best = &candidate;
    }
    if (best == nullptr) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "device memory: expected at least ", least, " bytes, which are sure to hold a step of ",
          request_.speeds.host.batch, " rows",
          num_unknown_ == 0 ? ""
                            : absl::StrCat(" without ", num_unknown_, " variables of unknown size"),
          "; found ", request_.memory_bytes));
    }
    PlacementChoice choice;
    choice.devices = Devices(*best);
    choice.moved = Moved(*best);
    choice.chosen = *best;
    choice.first = candidates_.front();
    choice.num_unknown = num_unknown_;
    choice.candidates = std::move(candidates_);
    return choice;
  }

  const PlacementRequest& request_;
  const ProgramPair& programs_;
  const PlacementUnits units_;
  std::vector<PlacementCandidate> candidates_;
  int64_t num_unknown_ = 0;
};

}  // namespace

std::string WhyNotOnHost(const Op& op) {
  const OpSchema* const schema = FindOpSchema(op.type());
  const absl::optional<ServerOp> server = FindServerOp(op.type());
  absl::string_view why;
  if (schema == nullptr) {
    why = "an unregistered op may access more than its arguments";
  } else if (server.has_value() && Communicates(*server)) {
    why =
        "ops of parameter servers share the messages of a worker, and run on one stream of "
        "the accelerator";
  } else if (schema->Has(Trait::kLoop)) {
    why = "the conditions of loops are computed on the accelerator";
  } else if (AlgebraOf(op, schema) == Algebra::kRandom) {
    why = "random numbers are drawn in the order of the program, on one device";
  }
  if (!why.empty()) {
    return absl::StrCat(op.DebugName(), ": expected an op that can run on the host: ", why);
  }
  for (int block : op.SubBlocks()) {
    for (OpId id : op.program().block(block).ops()) {
      std::string inner = WhyNotOnHost(op.program().op(id));
      if (!inner.empty()) return inner;
    }
  }
  return "";
}

absl::StatusOr<PlacementChoice> ChoosePlacement(const PlacementRequest& request,
                                                const ProgramPair& programs) {
  return PlacementSearch(request, programs).Run();
}

}  // namespace weft
