#include "tests/stream_replay.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ops/schema/communication_ops.h"
#include "proto/op_role.h"

namespace weft::testing {

// --- Values --------------------------------------------------------------------------------------

ValueTable::ValueTable() { Named("nothing"); }

ValueId ValueTable::Named(const std::string& text) {
  const auto [it, is_new] = ids_.emplace(text, texts_.size());
  if (is_new) texts_.push_back(text);
  return it->second;
}

ValueId ValueTable::Number(double number) {
  const ValueId id = Named(absl::StrCat("number ", number));
  numbers_.emplace(id, number);
  return id;
}

absl::optional<double> ValueTable::NumberOf(ValueId value) const {
  const auto found = numbers_.find(value);
  if (found == numbers_.end()) return absl::nullopt;
  return found->second;
}

ValueId ValueTable::Linear(const std::vector<std::pair<ValueId, double>>& terms) {
  std::map<ValueId, double> sum;
  for (const auto& [value, factor] : terms) {
    if (NumberOf(value) == 0.0) continue;
    const auto found = sums_.find(value);
    if (found == sums_.end()) {
      sum[value] += factor;
      continue;
    }
    for (const auto& [inner, by] : found->second) sum[inner] += by * factor;
  }
  std::vector<std::pair<ValueId, double>> flat;
  for (const auto& [value, factor] : sum) {
    if (std::abs(factor) > 1e-9) flat.emplace_back(value, factor);
  }
  if (flat.empty()) return Number(0);
  if (flat.size() == 1 && std::abs(flat[0].second - 1) < 1e-9) return flat[0].first;
  const ValueId id = Named(absl::StrCat(
      "sum ", absl::StrJoin(flat, " ", [](std::string* out, const std::pair<ValueId, double>& t) {
        absl::StrAppend(out, static_cast<float>(t.second), "*", t.first);
      })));
  sums_.emplace(id, std::move(flat));
  return id;
}

std::pair<double, ValueId> ValueTable::Factored(ValueId value) const {
  const auto found = sums_.find(value);
  if (found == sums_.end() || found->second.size() != 1) return {1, value};
  return {found->second[0].second, found->second[0].first};
}

ValueId ValueTable::Concat(const std::vector<ValueId>& parts) {
  const int n = static_cast<int>(parts.size());
  bool is_whole = true;
  for (int i = 0; i < n && is_whole; ++i) {
    const auto found = parts_.find(parts[i]);
    is_whole = found != parts_.end() && found->second.i == i && found->second.n == n &&
               found->second.whole == parts_.at(parts[0]).whole;
  }
  if (is_whole && n > 0) return parts_.at(parts[0]).whole;
  const ValueId id = Named(absl::StrCat("concat ", absl::StrJoin(parts, " ")));
  concats_.emplace(id, parts);
  return id;
}

ValueId ValueTable::Part(ValueId whole, int i, int n) {
  const std::vector<ValueId>* parts = PartsOf(whole);
  if (parts != nullptr && static_cast<int>(parts->size()) == n) return (*parts)[i];
  const ValueId id = Named(absl::StrCat("part ", i, " of ", n, " of ", whole));
  parts_.emplace(id, Whole{whole, i, n});
  return id;
}

const std::vector<ValueId>* ValueTable::PartsOf(ValueId value) const {
  const auto found = concats_.find(value);
  return found == concats_.end() ? nullptr : &found->second;
}

// --- Programs ------------------------------------------------------------------------------------

namespace {

struct SlotArg {
  std::string slot;
  int number;  // in the slot
  std::string name;
};

// An op, as it is run.
struct ReplayOp {
  const pb::OpDesc* desc = nullptr;
  std::string type;
  std::string identity;  // type and attributes that matter
  std::vector<SlotArg> inputs, outputs;
  const CollectiveOp* collective = nullptr;
  absl::optional<StreamSync> sync;
  int ring = 0;
  bool on_compute = true;
  int sub_block = -1;
  bool is_random = false;
  std::string place;  // "op 17 (sgd)"
};

struct ReplayProgram {
  // The declaration in the block or the nearest block around it, and which block that is.
  std::pair<int, const pb::VarDesc*> Find(int block, const std::string& name) const {
    for (; block >= 0 && block < static_cast<int>(vars.size());
         block = desc->blocks(block).parent_idx()) {
      const auto found = vars[block].find(name);
      if (found != vars[block].end()) return {block, found->second};
    }
    return {0, nullptr};
  }

  const pb::ProgramDesc* desc = nullptr;
  std::vector<absl::flat_hash_map<std::string, const pb::VarDesc*>> vars;  // by block
  std::vector<std::vector<ReplayOp>> blocks;
  std::map<int, int> stream_of_ring;
  std::set<int> rings_set_up;
  bool is_one_process = false;
};

constexpr absl::string_view kNotSemantic[] = {"op_callstack", "op_device",   "op_namescope",
                                              "op_role",      "op_role_var", "nranks",
                                              "ring_id",      "name",        "with_quant_attr"};

bool IsSetUp(const std::string& type) { return absl::StartsWith(type, "c_comm_init"); }

bool IsRandom(const pb::OpDesc& op) {
  for (const char* type : {"uniform_random", "gaussian_random", "truncated_gaussian_random",
                           "randint", "randperm", "dropout", "bernoulli"}) {
    if (op.type() == type) return NumberOf(op, "seed") == 0;
  }
  return false;
}

std::vector<SlotArg> Args(const google::protobuf::RepeatedPtrField<pb::OpDesc::Var>& slots) {
  std::vector<SlotArg> args;
  for (const pb::OpDesc::Var& slot : slots) {
    for (int i = 0; i < slot.arguments_size(); ++i) {
      if (slot.arguments(i) == kEmptyVarName) continue;
      args.push_back({slot.parameter(), i, slot.arguments(i)});
    }
  }
  std::stable_sort(args.begin(), args.end(),
                   [](const SlotArg& a, const SlotArg& b) { return a.slot < b.slot; });
  return args;
}

ReplayOp Compile(const pb::OpDesc& desc, int number) {
  ReplayOp op;
  op.desc = &desc;
  op.type = desc.type();
  op.place = absl::StrCat("op ", number, " (", op.type, ")");
  op.inputs = Args(desc.inputs());
  op.outputs = Args(desc.outputs());
  op.collective = FindCollectiveOp(op.type);
  op.sync = FindStreamSyncOp(op.type);
  op.ring = static_cast<int>(NumberOf(desc, "ring_id"));
  op.sub_block = SubBlockOf(desc);
  op.is_random = IsRandom(desc);
  op.on_compute = op.collective == nullptr || NumberOf(desc, "use_calc_stream") != 0;
  if (op.collective != nullptr || op.sync.has_value()) return op;
  std::map<std::string, std::string> attrs;
  for (const pb::OpDesc::Attr& attr : desc.attrs()) {
    if (std::count(std::begin(kNotSemantic), std::end(kNotSemantic), attr.name()) > 0) continue;
    attrs[attr.name()] = attr.SerializeAsString();
  }
  op.identity = op.type;
  for (const auto& [name, bytes] : attrs) absl::StrAppend(&op.identity, "\n", bytes);
  return op;
}

ReplayProgram Compile(const pb::ProgramDesc& desc) {
  ReplayProgram program;
  program.desc = &desc;
  std::set<int> rings;
  bool sets_up_with_id = false;
  for (const pb::BlockDesc& block : desc.blocks()) {
    program.blocks.emplace_back();
    program.vars.emplace_back();
    for (const pb::VarDesc& var : block.vars()) program.vars.back().emplace(var.name(), &var);
    for (const pb::OpDesc& op : block.ops()) {
      program.blocks.back().push_back(Compile(op, static_cast<int>(program.blocks.back().size())));
      const ReplayOp& added = program.blocks.back().back();
      if (added.collective != nullptr && !added.on_compute) rings.insert(added.ring);
      if (!IsSetUp(added.type)) continue;
      program.rings_set_up.insert(added.ring);
      program.is_one_process = true;
      sets_up_with_id = sets_up_with_id || !added.inputs.empty();
    }
  }
  if (program.blocks.empty()) program.blocks.emplace_back();
  if (sets_up_with_id) program.is_one_process = false;
  for (int ring : rings) {
    program.stream_of_ring.emplace(ring, static_cast<int>(program.stream_of_ring.size()) + 1);
  }
  return program;
}

// --- The graph of a run --------------------------------------------------------------------------

using CellId = int;

// What one rank did in one run of a program, and what has to be done before what.
class RunGraph {
 public:
  struct Access {
    CellId cell;
    bool is_write;
  };

  void Issue(int stream, std::vector<Access> accesses, const std::string& place) {
    const int node = AddNode(stream);
    accesses_[node] = std::move(accesses);
    places_[node] = place;
  }
  // Whatever comes later on stream `to` waits for what is on `from`.
  void Wait(int from, int to) {
    const int of = LastOf(from);
    const int node = AddNode(to);
    if (of >= 0) before_[node].push_back(of);
  }
  // Whatever comes later waits for what is on `from`.
  void Block(int from) {
    const int of = LastOf(from);
    const int node = static_cast<int>(before_.size());
    Grow();
    if (host_ >= 0) before_[node].push_back(host_);
    if (of >= 0) before_[node].push_back(of);
    host_ = node;
  }

  // Two accesses that nothing orders; empty: there are none.
  std::string FindRace() const {
    struct Seen {
      int node;
      bool is_write;
    };
    std::map<CellId, std::vector<Seen>> of_cell;
    for (size_t node = 0; node < accesses_.size(); ++node) {
      for (const Access& access : accesses_[node]) {
        of_cell[access.cell].push_back({static_cast<int>(node), access.is_write});
      }
    }
    for (const auto& [cell, seen] : of_cell) {
      for (size_t j = 0; j < seen.size(); ++j) {
        for (size_t i = 0; i < j; ++i) {
          if (!seen[i].is_write && !seen[j].is_write) continue;
          if (stream_[seen[i].node] == stream_[seen[j].node]) continue;
          if (Leads(seen[i].node, seen[j].node)) continue;
          return absl::StrCat("nothing orders ", places_[seen[i].node], " and ",
                              places_[seen[j].node]);
        }
      }
    }
    return "";
  }

 private:
  void Grow() {
    before_.emplace_back();
    stream_.push_back(-1);
    accesses_.emplace_back();
    places_.emplace_back();
  }
  int LastOf(int stream) const {
    const auto found = last_.find(stream);
    return found == last_.end() ? -1 : found->second;
  }
  int AddNode(int stream) {
    const int node = static_cast<int>(before_.size());
    Grow();
    if (host_ >= 0) before_[node].push_back(host_);
    if (LastOf(stream) >= 0) before_[node].push_back(LastOf(stream));
    stream_[node] = stream;
    last_[stream] = node;
    return node;
  }
  // Depth first, backwards: numbers fall along the edges.
  bool Leads(int from, int to) const {
    std::vector<bool> seen(static_cast<size_t>(to) + 1, false);
    std::vector<int> todo = {to};
    while (!todo.empty()) {
      const int node = todo.back();
      todo.pop_back();
      if (node == from) return true;
      for (int before : before_[node]) {
        if (before < from || seen[before]) continue;
        seen[before] = true;
        todo.push_back(before);
      }
    }
    return false;
  }

  std::vector<std::vector<int>> before_;  // by node
  std::vector<int> stream_;               // by node; -1: of the host
  std::vector<std::vector<Access>> accesses_;
  std::vector<std::string> places_;
  std::map<int, int> last_;  // by stream
  int host_ = -1;
};

// --- One rank ------------------------------------------------------------------------------------

// Storage that outlives a step, or not.
struct Memory {
  std::vector<ValueId> cells;
  // By block and name: one cell, or the slices of a buffer.
  std::map<std::pair<int, std::string>, std::vector<CellId>> of_var;
};

constexpr int kComputeStream = 0;

class RankRun {
 public:
  RankRun(const ReplayProgram& program, const std::map<std::string, std::string>& types, int rank,
          int step, int seed, bool has_startup, const std::set<int>& rings, Memory* memory,
          ValueTable* table)
      : program_(program),
        types_(types),
        rank_(rank),
        step_(step),
        seed_(seed),
        has_startup_(has_startup),
        rings_(rings),
        memory_(*memory),
        table_(*table) {
    frames_.push_back({0, 0});
  }

  // Up to the next collective, which is not run yet; nullptr: the end, or failed.
  const ReplayOp* RunToCollective() {
    while (!frames_.empty() && unsupported_.empty()) {
      Frame& frame = frames_.back();
      if (frame.next == program_.blocks[frame.block].size()) {
        frames_.pop_back();
        continue;
      }
      const ReplayOp& op = program_.blocks[frame.block][frame.next++];
      block_ = frame.block;
      if (op.collective != nullptr) return &op;
      Run(op);
    }
    return nullptr;
  }

  // What ranks must agree on.
  std::string Signature(const ReplayOp& op) const {
    std::string text = absl::StrCat(CollectiveKindName(op.collective->kind), " ",
                                    ReductionName(op.collective->reduction), " on ring ", op.ring);
    if (!op.collective->root_attr.empty()) {
      absl::StrAppend(&text, " root ", weft::testing::NumberOf(*op.desc, op.collective->root_attr));
    }
    for (const SlotArg& arg : op.inputs) {
      if (arg.slot != "X") continue;
      const pb::VarDesc* var = Var(arg.name);
      if (var == nullptr) continue;
      absl::StrAppend(&text, " of ", TypeText(*var));
      const auto found = members_.find(Key(arg.name));
      if (found == members_.end()) continue;
      for (const std::string& member : found->second) absl::StrAppend(&text, " ", member);
    }
    return text;
  }

  // Variables of a slot, and their storage, as far as the collective takes part in it.
  std::vector<std::vector<CellId>> Cells(const ReplayOp& op, const std::string& slot, bool input) {
    std::vector<std::vector<CellId>> cells;
    for (const SlotArg& arg : input ? op.inputs : op.outputs) {
      if (arg.slot == slot) cells.push_back(CellsOf(arg.name));
    }
    return cells;
  }
  ValueId Value(CellId cell) const { return memory_.cells[cell]; }
  void SetValue(const ReplayOp& op, size_t out, CellId cell, ValueId value) {
    size_t i = 0;
    for (const SlotArg& arg : op.outputs) {
      if (arg.slot != "Out") continue;
      if (i++ == out) memory_.cells[cell] = Declared(arg.name, value);
    }
  }
  void IssueCollective(const ReplayOp& op) { Issue(op, StreamOf(op)); }

  const std::string& unsupported() const { return unsupported_; }
  const std::string& failure() const { return failure_; }
  int num_guesses() const { return num_guesses_; }
  std::string FindRace() const { return graph_.FindRace(); }

 private:
  struct Frame {
    int block;
    size_t next;
  };
  using VarKey = std::pair<int, std::string>;

  int StreamOf(const ReplayOp& op) const {
    return op.on_compute ? kComputeStream : program_.stream_of_ring.at(op.ring);
  }

  // The block that declares it.
  VarKey Key(const std::string& name) const { return {program_.Find(block_, name).first, name}; }
  const pb::VarDesc* Var(const std::string& name) const {
    return program_.Find(block_, name).second;
  }

  const std::vector<CellId>& CellsOf(const std::string& name) {
    const VarKey key = Key(name);
    const auto found = memory_.of_var.find(key);
    if (found != memory_.of_var.end()) return found->second;
    const pb::VarDesc* var = Var(name);
    const bool is_feed = var != nullptr && var->need_check_feed();
    const bool is_shared = !has_startup_ && var != nullptr && var->persistable();
    const std::string undefined =
        absl::StrCat("undefined ", name, " ", is_shared ? "of all" : absl::StrCat(rank_));
    memory_.cells.push_back(is_feed ? Feed(name) : table_.Named(undefined));
    return memory_.of_var[key] = {static_cast<CellId>(memory_.cells.size()) - 1};
  }

  ValueId Feed(const std::string& name) {
    return table_.Named(absl::StrCat("feed ", name, " rank ", rank_, " step ", step_));
  }

  // What a variable that is declared otherwise than in the reference holds, is not the same.
  ValueId Declared(const std::string& name, ValueId value) {
    const auto expected = types_.find(name);
    if (expected == types_.end()) return value;
    auto [it, is_new] = is_as_expected_.emplace(name, true);
    if (is_new) {
      const pb::VarDesc* var = Var(name);
      it->second = var == nullptr || TypeText(*var) == expected->second;
      if (!it->second) as_[name] = TypeText(*var);
    }
    if (it->second) return value;
    return table_.Named(absl::StrCat("as ", as_[name], " ", value));
  }

  ValueId Read(const std::string& name) {
    const std::vector<CellId>& cells = CellsOf(name);
    if (cells.size() == 1 && members_.count(Key(name)) == 0) return memory_.cells[cells[0]];
    std::vector<ValueId> values;
    for (CellId cell : cells) values.push_back(memory_.cells[cell]);
    return table_.Named(absl::StrCat("buffer ", absl::StrJoin(values, " ")));
  }

  void Write(const std::string& name, ValueId value) {
    const std::vector<CellId> cells = CellsOf(name);
    if (members_.count(Key(name)) == 0) {
      memory_.cells[cells[0]] = Declared(name, value);
      return;
    }
    for (size_t i = 0; i < cells.size(); ++i) {
      memory_.cells[cells[i]] =
          Declared(name, table_.Named(absl::StrCat("slice ", i, " of ", cells.size(), " ", value)));
    }
  }

  void Issue(const ReplayOp& op, int stream) {
    std::vector<RunGraph::Access> accesses;
    for (const SlotArg& arg : op.inputs) {
      for (CellId cell : CellsOf(arg.name)) accesses.push_back({cell, false});
    }
    for (const SlotArg& arg : op.outputs) {
      for (CellId cell : CellsOf(arg.name)) accesses.push_back({cell, true});
    }
    graph_.Issue(stream, std::move(accesses), op.place);
  }

  void Run(const ReplayOp& op) {
    if (op.sync.has_value()) return Synchronize(op);
    if (IsSetUp(op.type) || absl::StartsWith(op.type, "c_gen_"))
      return graph_.Block(kComputeStream);
    if (op.type == "coalesce_tensor") return Coalesce(op);
    if (op.type == "conditional_block") return Branch(op);
    if (op.sub_block >= 0) {
      unsupported_ = op.type;
      return;
    }
    Issue(op, kComputeStream);
    Compute(op);
  }

  void Synchronize(const ReplayOp& op) {
    if (*op.sync != StreamSync::kAllWaitForCompute && has_startup_ && rings_.count(op.ring) == 0) {
      failure_ = absl::StrCat("deadlock: ring ", op.ring, " is not set up");
      frames_.clear();
      return;
    }
    const auto found = program_.stream_of_ring.find(op.ring);
    const int ring = found == program_.stream_of_ring.end() ? -1 : found->second;
    if (*op.sync != StreamSync::kAllWaitForCompute && ring < 0) return;
    switch (*op.sync) {
      case StreamSync::kRingWaitsForCompute:
        return graph_.Wait(kComputeStream, ring);
      case StreamSync::kComputeWaitsForRing:
        return graph_.Wait(ring, kComputeStream);
      case StreamSync::kAllWaitForCompute:
        return graph_.Block(kComputeStream);
      case StreamSync::kAllWaitForRing:
        return graph_.Block(ring);
    }
  }

  void Branch(const ReplayOp& op) {
    graph_.Block(kComputeStream);
    bool runs = true;
    for (const SlotArg& arg : op.inputs) {
      if (arg.slot == "Cond" && weft::testing::NumberOf(*op.desc, "is_scalar_condition") != 0) {
        runs = runs && IsTrue(Read(arg.name));
      }
    }
    if (runs) frames_.push_back({op.sub_block, 0});
  }

  bool IsTrue(ValueId condition) {
    const absl::optional<double> number = table_.NumberOf(condition);
    if (number.has_value()) return *number != 0;
    ++num_guesses_;
    // By chance, but the same for the same value.
    return (((condition + 1) * 2654435761U) >> (7 + seed_) & 1) != 0;
  }

  void Coalesce(const ReplayOp& op) {
    const bool copies = weft::testing::NumberOf(*op.desc, "copy_data") != 0;
    const bool fills = weft::testing::NumberOf(*op.desc, "set_constant") != 0;
    std::vector<std::string> from, to;
    std::string buffer;
    for (const SlotArg& arg : op.inputs) {
      if (arg.slot == "Input") from.push_back(arg.name);
    }
    for (const SlotArg& arg : op.outputs) {
      if (arg.slot == "Output") to.push_back(arg.name);
      if (arg.slot == "FusedOutput") buffer = arg.name;
    }
    std::vector<RunGraph::Access> accesses;
    std::vector<ValueId> old(to.size(), 0);
    for (size_t i = 0; copies && i < std::min(from.size(), to.size()); ++i) {
      old[i] = Read(from[i]);
      for (CellId cell : CellsOf(from[i])) accesses.push_back({cell, false});
    }
    std::vector<CellId> slices;
    std::vector<std::string> types;
    for (size_t i = 0; i < to.size(); ++i) {
      const CellId cell = static_cast<CellId>(memory_.cells.size());
      ValueId value = table_.Named(absl::StrCat("undefined slice ", to[i], " ", rank_));
      if (copies) value = old[i];
      if (fills) value = table_.Number(weft::testing::NumberOf(*op.desc, "constant"));
      memory_.cells.push_back(value);
      slices.push_back(cell);
      memory_.of_var[Key(to[i])] = {cell};
      members_.erase(Key(to[i]));
      if (copies || fills) accesses.push_back({cell, true});
      const pb::VarDesc* var = Var(to[i]);
      types.push_back(var == nullptr ? "" : TypeText(*var));
    }
    if (!buffer.empty()) {
      memory_.of_var[Key(buffer)] = slices;
      members_[Key(buffer)] = types;
    }
    graph_.Issue(kComputeStream, std::move(accesses), op.place);
  }

  // --- What ops compute
  // ----------------------------------------------------------------------------

  const SlotArg* FindInput(const ReplayOp& op, absl::string_view slot) const {
    for (const SlotArg& arg : op.inputs) {
      if (arg.slot == slot) return &arg;
    }
    return nullptr;
  }

  void Compute(const ReplayOp& op) {
    if (op.type == "fetch" || op.type == "fetch_v2") return;
    if (op.type == "feed") {
      for (const SlotArg& out : op.outputs) Write(out.name, Feed(out.name));
      return;
    }
    if (op.outputs.empty()) return;
    if (ComputeSlices(op) || ComputeNumber(op) || ComputeSum(op) || ComputeParts(op)) return;
    ComputeFunction(op);
  }

  // A buffer, slice by slice.
  bool ComputeSlices(const ReplayOp& op) {
    if (op.type != "scale" || op.inputs.size() != 1 || op.outputs.size() != 1) return false;
    if (weft::testing::NumberOf(*op.desc, "bias") != 0) return false;
    const std::vector<CellId> from = CellsOf(op.inputs[0].name);
    const std::vector<CellId> to = CellsOf(op.outputs[0].name);
    if (from.size() != to.size()) return false;
    const double scale = ScaleOf(op);
    std::vector<ValueId> values;
    for (CellId cell : from) values.push_back(table_.Linear({{memory_.cells[cell], scale}}));
    for (size_t i = 0; i < to.size(); ++i) {
      memory_.cells[to[i]] = Declared(op.outputs[0].name, values[i]);
    }
    return true;
  }

  static double ScaleOf(const ReplayOp& op) {
    return FindAttr(*op.desc, "scale") == nullptr ? 1 : weft::testing::NumberOf(*op.desc, "scale");
  }

  bool ComputeSum(const ReplayOp& op) {
    std::vector<std::pair<ValueId, double>> terms;
    if (op.type == "sum" || op.type == "assign" || op.type == "memcpy" ||
        op.type == "elementwise_add" || op.type == "elementwise_sub") {
      for (const SlotArg& in : op.inputs) {
        terms.emplace_back(Read(in.name), op.type == "elementwise_sub" && in.slot == "Y" ? -1 : 1);
      }
    } else {
      return false;
    }
    Write(op.outputs[0].name, table_.Linear(terms));
    return true;
  }

  bool ComputeParts(const ReplayOp& op) {
    if (op.type != "split" || weft::testing::NumberOf(*op.desc, "axis") != 0) return false;
    const std::vector<ValueId>* parts = table_.PartsOf(Read(op.inputs[0].name));
    if (parts == nullptr || parts->size() != op.outputs.size()) return false;
    const std::vector<ValueId> values = *parts;
    for (size_t i = 0; i < values.size(); ++i) Write(op.outputs[i].name, values[i]);
    return true;
  }

  // Ops that decide when something runs.
  bool ComputeNumber(const ReplayOp& op) {
    if (op.outputs.size() != 1) return false;
    if (op.type == "fill_constant") {
      if (!op.inputs.empty()) return false;
      double number = weft::testing::NumberOf(*op.desc, "value");
      const pb::OpDesc::Attr* text = FindAttr(*op.desc, "str_value");
      if (text != nullptr && !text->s().empty() && !absl::SimpleAtod(text->s(), &number)) {
        return false;
      }
      Write(op.outputs[0].name, table_.Number(number));
      return true;
    }
    std::vector<double> in;
    for (const SlotArg& arg : op.inputs) {
      const absl::optional<double> number = table_.NumberOf(Read(arg.name));
      if (!number.has_value()) return false;
      in.push_back(*number);
    }
    double out = 0;
    if (in.size() == 1 && op.type == "increment") {
      out = in[0] + weft::testing::NumberOf(*op.desc, "step");
    } else if (in.size() == 1 && op.type == "logical_not") {
      out = in[0] == 0;
    } else if (in.size() == 2 && op.type == "elementwise_mod") {
      if (in[1] == 0) return false;
      out = in[0] - in[1] * std::floor(in[0] / in[1]);
    } else if (in.size() == 2 && op.type == "equal") {
      out = in[0] == in[1];
    } else if (in.size() == 2 && op.type == "greater_equal") {
      out = in[0] >= in[1];
    } else if (in.size() == 2 && op.type == "greater_than") {
      out = in[0] > in[1];
    } else if (in.size() == 2 && op.type == "less_than") {
      out = in[0] < in[1];
    } else if (in.size() == 2 && op.type == "less_equal") {
      out = in[0] <= in[1];
    } else if (in.size() == 2 && op.type == "logical_and") {
      out = in[0] != 0 && in[1] != 0;
    } else if (in.size() == 2 && op.type == "logical_or") {
      out = in[0] != 0 || in[1] != 0;
    } else {
      return false;
    }
    Write(op.outputs[0].name, table_.Number(out));
    return true;
  }

  void ComputeFunction(const ReplayOp& op) {
    // What comes out of a backward op has the factor of the gradients that go in.
    double common = 1;
    bool pulls = absl::EndsWith(op.type, "_grad"), is_first = true;
    for (const SlotArg& in : op.inputs) {
      if (!pulls || !absl::EndsWith(in.slot, kGradSuffix)) continue;
      const double factor = table_.Factored(Read(in.name)).first;
      pulls = is_first || factor == common;
      common = factor;
      is_first = false;
    }
    pulls = pulls && !is_first && common != 1;
    std::string text = op.identity;
    for (const SlotArg& in : op.inputs) {
      ValueId value = Read(in.name);
      if (pulls && absl::EndsWith(in.slot, kGradSuffix)) value = table_.Factored(value).second;
      absl::StrAppend(&text, "\n", in.slot, " ", in.number, " ", value);
    }
    if (op.is_random) {
      const std::string draw = absl::StrCat(op.outputs[0].name, " step ", step_);
      absl::StrAppend(&text, "\ndraw of ", draw, " number ", draws_[draw]++, " rank ", rank_);
    }
    const ValueId value = table_.Named(text);
    std::vector<std::pair<std::string, ValueId>> results;
    for (const SlotArg& out : op.outputs) {
      ValueId result = table_.Named(absl::StrCat(out.slot, " ", out.number, " of ", value));
      if (pulls) result = table_.Linear({{result, common}});
      results.emplace_back(out.name, result);
    }
    for (const auto& [name, result] : results) Write(name, result);
  }

  const ReplayProgram& program_;
  const std::map<std::string, std::string>& types_;
  const int rank_, step_, seed_;
  const bool has_startup_;
  const std::set<int>& rings_;
  Memory& memory_;
  ValueTable& table_;
  std::vector<Frame> frames_;
  int block_ = 0;
  RunGraph graph_;
  std::map<VarKey, std::vector<std::string>> members_;  // of buffers: types of their slices
  std::map<std::string, bool> is_as_expected_;
  std::map<std::string, std::string> as_;
  std::map<std::string, int> draws_;
  std::string unsupported_, failure_;
  int num_guesses_ = 0;
};

}  // namespace

// --- All ranks -----------------------------------------------------------------------------------

class ReplayRun {
 public:
  // Stops behind the first step that leaves something else than `expected`, which may be null.
  ReplayRun(StreamReplay* replay, absl::Span<const ProgramDescs* const> ranks, int seed,
            const ReplayResult* expected)
      : replay_(*replay), table_(replay->table_), seed_(seed), expected_(expected) {
    for (const ProgramDescs* programs : ranks) {
      // Ranks mostly run the same.
      if (!mains_.empty() && programs->main.blocks_size() > 0 && programs == last_) {
        mains_.push_back(mains_.back());
        startups_.push_back(startups_.back());
        continue;
      }
      last_ = programs;
      mains_.push_back(std::make_shared<ReplayProgram>(Compile(programs->main)));
      startups_.push_back(std::make_shared<ReplayProgram>(Compile(programs->startup)));
    }
    memory_.resize(ranks.size());
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      rings_.push_back(startups_[rank]->rings_set_up);
      rings_.back().insert(mains_[rank]->rings_set_up.begin(), mains_[rank]->rings_set_up.end());
    }
    has_startup_ = startups_[0]->desc->blocks_size() > 0;
  }

  ReplayResult Run() {
    if (!RunAll(startups_, /*step=*/0, /*is_startup=*/true)) return std::move(result_);
    ShareDraws();
    for (int step = 0; step < replay_.options_.steps; ++step) {
      for (size_t rank = 0; rank < memory_.size(); ++rank) ForgetStep(rank);
      if (!RunAll(mains_, step, /*is_startup=*/false)) return std::move(result_);
      result_.values.emplace_back();
      for (Memory& memory : memory_) {
        std::vector<ValueId>& values = result_.values.back().emplace_back();
        for (const std::string& name : replay_.watched_) {
          const auto found = memory.of_var.find({0, name});
          values.push_back(found == memory.of_var.end() ? 0 : memory.cells[found->second[0]]);
        }
      }
      if (expected_ != nullptr && expected_->values.size() > static_cast<size_t>(step) &&
          expected_->values[step] != result_.values.back()) {
        break;
      }
    }
    return std::move(result_);
  }

 private:
  using Programs = std::vector<std::shared_ptr<ReplayProgram>>;

  // What does not persist is gone.
  void ForgetStep(size_t rank) {
    Memory next;
    for (const pb::VarDesc& var : mains_[rank]->desc->blocks(0).vars()) {
      if (!var.persistable()) continue;
      const auto found = memory_[rank].of_var.find({0, var.name()});
      if (found == memory_[rank].of_var.end()) continue;
      std::vector<CellId>& cells = next.of_var[found->first];
      for (CellId cell : found->second) {
        cells.push_back(static_cast<CellId>(next.cells.size()));
        next.cells.push_back(memory_[rank].cells[cell]);
      }
    }
    memory_[rank] = std::move(next);
  }

  // Ranks draw alike, so it does not matter whose draw all of them have got.
  void ShareDraws() {
    for (const auto& [key, cells] : memory_[0].of_var) {
      if (cells.size() != 1) continue;
      const ValueId value = memory_[0].cells[cells[0]];
      bool is_same = true;
      for (const Memory& memory : memory_) {
        const auto found = memory.of_var.find(key);
        is_same = is_same && found != memory.of_var.end() && found->second.size() == 1 &&
                  memory.cells[found->second[0]] == value;
      }
      if (!is_same || !IsDraw(value)) continue;
      for (Memory& memory : memory_) {
        memory.cells[memory.of_var.at(key)[0]] =
            table_.Named(absl::StrCat("the draw of ", key.second));
      }
    }
  }

  bool IsDraw(ValueId value) const {
    const std::string& text = table_.TextOf(value);
    const size_t of = text.rfind(" of ");
    uint32_t whole = 0;
    return of != std::string::npos && absl::SimpleAtoi(text.substr(of + 4), &whole) &&
           absl::StrContains(table_.TextOf(whole), "\ndraw of ");
  }

  bool RunAll(const Programs& programs, int step, bool is_startup) {
    const bool once = is_startup && programs[0]->is_one_process;
    std::vector<RankRun> runs;
    runs.reserve(programs.size());
    for (size_t rank = 0; rank < programs.size(); ++rank) {
      runs.emplace_back(*programs[rank], replay_.types_, once ? 0 : static_cast<int>(rank), step,
                        seed_, has_startup_, rings_[rank], &memory_[rank], &table_);
    }
    while (true) {
      std::vector<const ReplayOp*> calls;
      for (RankRun& run : runs) {
        calls.push_back(run.RunToCollective());
        if (!run.unsupported().empty()) {
          result_.unsupported = run.unsupported();
          return false;
        }
        if (!run.failure().empty()) return Fail(run.failure());
      }
      if (std::all_of(calls.begin(), calls.end(), [](const ReplayOp* op) { return !op; })) break;
      if (!Meet(programs, calls, &runs)) return false;
    }
    for (RankRun& run : runs) {
      replay_.num_guesses_ += run.num_guesses();
      const std::string race = run.FindRace();
      if (!race.empty()) return Fail(absl::StrCat("race: ", race));
    }
    return true;
  }

  bool Fail(std::string failure) {
    result_.failure = std::move(failure);
    return false;
  }

  bool Meet(const Programs& programs, const std::vector<const ReplayOp*>& calls,
            std::vector<RankRun>* runs) {
    for (size_t rank = 0; rank < calls.size(); ++rank) {
      if (calls[rank] == nullptr) {
        return Fail(
            absl::StrCat("deadlock: rank ", rank, " never makes the call that others wait in"));
      }
      if (has_startup_ && rings_[rank].count(calls[rank]->ring) == 0) {
        return Fail(absl::StrCat("deadlock: ring ", calls[rank]->ring, " is not set up"));
      }
      const std::string first = (*runs)[0].Signature(*calls[0]);
      const std::string own = (*runs)[rank].Signature(*calls[rank]);
      if (calls[rank]->ring != calls[0]->ring) {
        return Fail(absl::StrCat("deadlock: ranks wait in ", first, " and in ", own));
      }
      if (first != own) return Fail(absl::StrCat("mismatch: ", first, " and ", own));
    }
    return Exchange(calls, runs);
  }

  bool Exchange(const std::vector<const ReplayOp*>& calls, std::vector<RankRun>* runs) {
    const CollectiveOp& collective = *calls[0]->collective;
    const int n = static_cast<int>(calls.size());
    const int root = collective.root_attr.empty()
                         ? 0
                         : static_cast<int>(NumberOf(*calls[0]->desc, collective.root_attr));
    if (root < 0 || root >= n) return Fail(absl::StrCat("deadlock: root ", root, " is no rank"));
    std::vector<std::vector<std::vector<CellId>>> in, out;
    for (int rank = 0; rank < n; ++rank) {
      in.push_back((*runs)[rank].Cells(*calls[rank], "X", true));
      out.push_back((*runs)[rank].Cells(*calls[rank], "Out", false));
      (*runs)[rank].IssueCollective(*calls[rank]);
    }
    for (size_t arg = 0; arg < in[0].size(); ++arg) {
      for (int rank = 0; rank < n; ++rank) {
        if (arg >= in[rank].size() || arg >= out[rank].size() ||
            in[rank][arg].size() != in[0][arg].size() ||
            out[rank][arg].size() != in[0][arg].size()) {
          return Fail("mismatch: sizes of buffers");
        }
      }
      for (size_t slice = 0; slice < in[0][arg].size(); ++slice) {
        std::vector<ValueId> values;
        for (int rank = 0; rank < n; ++rank) {
          values.push_back((*runs)[rank].Value(in[rank][arg][slice]));
        }
        const std::vector<ValueId> results = Results(collective, values, root);
        for (int rank = 0; rank < n; ++rank) {
          (*runs)[rank].SetValue(*calls[rank], arg, out[rank][arg][slice], results[rank]);
        }
      }
    }
    return true;
  }

  std::vector<ValueId> Results(const CollectiveOp& collective, const std::vector<ValueId>& in,
                               int root) {
    const int n = static_cast<int>(in.size());
    switch (collective.kind) {
      case CollectiveKind::kAllReduce:
        return std::vector<ValueId>(n, Reduced(collective.reduction, in));
      case CollectiveKind::kReduce: {
        std::vector<ValueId> out = in;
        out[root] = Reduced(collective.reduction, in);
        return out;
      }
      case CollectiveKind::kReduceScatter: {
        std::vector<ValueId> out;
        const ValueId whole = Reduced(collective.reduction, in);
        for (int rank = 0; rank < n; ++rank) out.push_back(table_.Part(whole, rank, n));
        return out;
      }
      case CollectiveKind::kAllGather:
        return std::vector<ValueId>(n, table_.Concat(in));
      case CollectiveKind::kBroadcast:
        return std::vector<ValueId>(n, in[root]);
    }
    return in;
  }

  ValueId Reduced(Reduction reduction, std::vector<ValueId> in) {
    if (reduction == Reduction::kSum || reduction == Reduction::kAvg) {
      std::vector<std::pair<ValueId, double>> terms;
      const double factor = reduction == Reduction::kSum ? 1 : 1.0 / static_cast<double>(in.size());
      for (ValueId value : in) terms.emplace_back(value, factor);
      return table_.Linear(terms);
    }
    std::sort(in.begin(), in.end());
    const bool is_same = in.front() == in.back();
    if (is_same && reduction != Reduction::kProd) return in[0];
    return table_.Named(absl::StrCat(ReductionName(reduction), " ", absl::StrJoin(in, " ")));
  }

  StreamReplay& replay_;
  ValueTable& table_;
  const int seed_;
  const ReplayResult* const expected_;
  const ProgramDescs* last_ = nullptr;
  Programs mains_, startups_;
  std::vector<std::set<int>> rings_;  // by rank: those that are set up
  bool has_startup_ = false;
  std::vector<Memory> memory_;
  ReplayResult result_;
};

// --- Comparing -----------------------------------------------------------------------------------

namespace {

constexpr int kSeeds = 4;

void AddTypes(const pb::ProgramDesc& program, std::map<std::string, std::string>* types) {
  for (const pb::BlockDesc& block : program.blocks()) {
    for (const pb::VarDesc& var : block.vars()) types->emplace(var.name(), TypeText(var));
  }
}

}  // namespace

StreamReplay::StreamReplay(const ProgramDescs& reference, std::vector<std::string> watched,
                           const ReplayOptions& options)
    : options_(options), watched_(std::move(watched)) {
  AddTypes(reference.main, &types_);
  AddTypes(reference.startup, &types_);
  const std::vector<const ProgramDescs*> ranks(options.nranks, &reference);
  references_.push_back(Run(ranks, 0, nullptr));
  reference_ = references_[0];
  for (int seed = 1; num_guesses_ > 0 && seed < kSeeds; ++seed) {
    references_.push_back(Run(ranks, seed, nullptr));
  }
}

ReplayResult StreamReplay::Run(absl::Span<const ProgramDescs* const> ranks, int seed,
                               const ReplayResult* expected) {
  return ReplayRun(this, ranks, seed, expected).Run();
}

std::string StreamReplay::Difference(absl::Span<const ProgramDescs* const> ranks) {
  for (int seed = 0; seed < kSeeds; ++seed) {
    const int64_t guesses = num_guesses_;
    const ReplayResult& expected =
        seed < static_cast<int>(references_.size()) ? references_[seed] : references_[0];
    const ReplayResult result = Run(ranks, seed, &expected);
    if (!result.unsupported.empty()) return "";
    if (result.failure != expected.failure) return result.failure;
    for (size_t step = 0; step < result.values.size(); ++step) {
      for (size_t rank = 0; rank < result.values[step].size(); ++rank) {
        for (size_t i = 0; i < watched_.size(); ++i) {
          if (result.values[step][rank][i] == expected.values[step][rank][i]) continue;
          return absl::StrCat(watched_[i], " after step ", step, " on rank ", rank);
        }
      }
    }
    if (num_guesses_ == guesses) break;
  }
  return "";
}

}  // namespace weft::testing
