#include "ops/analysis/core/fused_buffers.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ops/analysis/core/block_args.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/op_kinds.h"
#include "ops/schema/ordering_ops.h"

namespace weft {
namespace {

// Buffers by name and by part; a later one takes the place of an earlier one.
class BufferIndex {
 public:
  void AddName(Symbol name, size_t buffer) { by_name_[name] = buffer; }
  void AddPart(Symbol part, size_t buffer) { of_part_[part] = buffer; }
  absl::optional<size_t> Named(Symbol name) const { return Find(by_name_, name); }
  absl::optional<size_t> WithPart(Symbol part) const { return Find(of_part_, part); }
  bool empty() const { return by_name_.empty(); }

 private:
  static absl::optional<size_t> Find(const absl::flat_hash_map<Symbol, size_t>& map, Symbol name) {
    const auto found = map.find(name);
    return found == map.end() ? absl::nullopt : absl::make_optional(found->second);
  }

  absl::flat_hash_map<Symbol, size_t> by_name_, of_part_;
};

// Walks over the ops of a block and notes who accesses buffers and parts.
class BufferCollector {
 public:
  // The buffer made elsewhere that has the name, or of which it is a part; null: none.
  using FindOutside = std::function<const FusedBuffer*(Symbol)>;

  BufferCollector(const Storage& storage, const Program& program, int block, BlockArgs* args,
                  FindOutside find_outside)
      : storage_(storage),
        program_(program),
        ops_(program.block(block).ops()),
        args_(*args),
        find_outside_(std::move(find_outside)) {}

  std::vector<FusedBuffer> Run() {
    for (uint32_t i = 0; i < ops_.size(); ++i) {
      const Op op = program_.op(ops_[i]);
      const Storage::Buffer* const made = storage_.MadeBy(op.id());
      const Symbol name = made == nullptr ? Symbol() : made->name;
      if (find_outside_ || !index_.empty()) Visit(i, op, name);
      if (!name.valid()) continue;
      FusedBuffer buffer;
      buffer.name = name;
      buffer.parts.assign(made->parts.begin(), made->parts.end());
      buffer.made_at = i;
      Add(std::move(buffer));
    }
    FindAwaited();
    return std::move(buffers_);
  }

 private:
  void Add(FusedBuffer buffer) {
    index_.AddName(buffer.name, buffers_.size());
    for (Symbol part : buffer.parts) index_.AddPart(part, buffers_.size());
    buffers_.push_back(std::move(buffer));
  }

  // `remade`: the buffer that the op makes.
  void Visit(uint32_t position, const Op& op, Symbol remade) {
    reads_.clear();
    writes_.clear();
    args_.Append(op, &reads_, &writes_);
    if (find_outside_) {
      for (const auto* names : {&reads_, &writes_}) {
        for (Symbol name : *names) AddFromOutside(name);
      }
    }
    accesses_.clear();
    access_of_name_.clear();
    const bool touches_data = !OnlyOrders(op.type());
    const size_t num_inputs = NumNames(op.input_args());
    for (size_t k = 0; k < reads_.size(); ++k) {
      BufferAccess* access = AccessOf(reads_[k], position);
      if (access == nullptr) continue;
      access->reads = touches_data;
      access->names_input |= k < num_inputs;
    }
    const size_t num_outputs = NumNames(op.output_args());
    for (size_t k = 0; k < writes_.size(); ++k) {
      BufferAccess* access = AccessOf(writes_[k], position);
      if (access == nullptr) continue;
      access->writes = touches_data;
      access->names_output |= k < num_outputs;
    }
    for (const BufferAccess& access : accesses_) {
      const auto named = index_.Named(access.name), of = index_.WithPart(access.name);
      if (named.has_value() && access.name != remade) buffers_[*named].accesses.push_back(access);
      if (of.has_value() && buffers_[*of].name != remade) {
        buffers_[*of].part_accesses.push_back(access);
      }
    }
  }

  size_t NumNames(absl::Span<const Symbol> args) const {
    return absl::c_count_if(args,
                            [this](Symbol arg) { return program_.name(arg) != kEmptyVarName; });
  }

  // The access of the op to that name, once for an op; null if it is none of a buffer.
  BufferAccess* AccessOf(Symbol name, uint32_t position) {
    if (!index_.Named(name).has_value() && !index_.WithPart(name).has_value()) return nullptr;
    const auto [at, is_new] = access_of_name_.try_emplace(name, accesses_.size());
    if (is_new) {
      BufferAccess access;
      access.position = position;
      access.name = name;
      accesses_.push_back(access);
    }
    return &accesses_[at->second];
  }

  void AddFromOutside(Symbol name) {
    if (!asked_.insert(name).second || index_.Named(name).has_value() ||
        index_.WithPart(name).has_value()) {
      return;
    }
    const FusedBuffer* outside = find_outside_(name);
    if (outside == nullptr || find_outside_(outside->name) != outside) return;
    FusedBuffer buffer;
    buffer.name = outside->name;
    // Names mean what they do here: a block may declare a variable of that name, and another
    // buffer may have taken the part.
    for (Symbol part : outside->parts) {
      if (!index_.WithPart(part).has_value() && find_outside_(part) == outside) {
        buffer.parts.push_back(part);
      }
    }
    Add(std::move(buffer));
  }

  void FindAwaited() {
    // By position, the last of the ops that communicate one after the other.
    std::vector<uint32_t> last_of_run(ops_.size());
    for (size_t i = ops_.size(); i-- > 0;) {
      last_of_run[i] = i;
      if (i + 1 == ops_.size() || !CommunicatesInPaddle(program_.op(ops_[i]))) continue;
      if (CommunicatesInPaddle(program_.op(ops_[i + 1]))) last_of_run[i] = last_of_run[i + 1];
    }
    for (FusedBuffer& buffer : buffers_) {
      if (!buffer.made_at.has_value()) continue;
      const auto first = absl::c_find_if(
          buffer.accesses, [](const BufferAccess& access) { return access.names_input; });
      if (first == buffer.accesses.end()) continue;
      buffer.first_read = first->position;
      buffer.last_awaited = last_of_run[first->position];
    }
  }

  const Storage& storage_;
  const Program& program_;
  const absl::Span<const OpId> ops_;
  BlockArgs& args_;
  const FindOutside find_outside_;
  std::vector<FusedBuffer> buffers_;
  BufferIndex index_;
  absl::flat_hash_set<Symbol> asked_;  // for buffers outside
  // Of an op.
  std::vector<Symbol> reads_, writes_;
  std::vector<BufferAccess> accesses_;
  absl::flat_hash_map<Symbol, size_t> access_of_name_;
};

// What the executor lets each op of a block wait for, by positions.
class ExecutionOrder {
 public:
  ExecutionOrder(const Program& program, int block, absl::Span<const FusedBuffer> buffers)
      : program_(program), ops_(program.block(block).ops()) {
    AddEdgesOfNames();
    for (const FusedBuffer& buffer : buffers) AddEdgesOfBuffer(buffer);
    absl::c_sort(edges_);
  }

  // By position: whether the op is that one or, directly or not, waits for it.
  std::vector<bool> WaitingFor(uint32_t position) const {
    std::vector<bool> reached(ops_.size());
    reached[position] = true;
    for (const auto& [to, from] : edges_) {
      if (reached[from]) reached[to] = true;
    }
    return reached;
  }
  // Whether the op is that one or is waited for.
  std::vector<bool> AwaitedBy(uint32_t position) const {
    std::vector<bool> reached(ops_.size());
    reached[position] = true;
    for (auto edge = edges_.rbegin(); edge != edges_.rend(); ++edge) {
      if (reached[edge->first]) reached[edge->second] = true;
    }
    return reached;
  }

 private:
  void AddEdgesOfNames() {
    struct Access {
      absl::optional<uint32_t> writer;
      std::vector<uint32_t> readers;  // after the writer
    };
    absl::flat_hash_map<Symbol, Access> accesses;
    absl::optional<uint32_t> last_communication, last_sync;
    for (uint32_t i = 0; i < ops_.size(); ++i) {
      const Op op = program_.op(ops_[i]);
      for (Symbol name : op.input_args()) {
        if (program_.name(name) == kEmptyVarName) continue;
        Access& access = accesses[name];
        Add(access.writer, i);
        access.readers.push_back(i);
      }
      for (Symbol name : op.output_args()) {
        if (program_.name(name) == kEmptyVarName) continue;
        Access& access = accesses[name];
        Add(access.writer, i);
        for (uint32_t reader : access.readers) Add(reader, i);
        access.writer = i;
        access.readers.clear();
      }
      if (FindStreamSyncOp(op.type()) == StreamSync::kAllWaitForRing) {
        last_sync = i;
      } else {
        Add(last_sync, i);
      }
      if (!CommunicatesInPaddle(op)) continue;
      Add(last_communication, i);
      last_communication = i;
    }
  }

  void AddEdgesOfBuffer(const FusedBuffer& buffer) {
    if (!buffer.first_read.has_value()) return;
    for (const BufferAccess& access : buffer.part_accesses) {
      const uint32_t i = access.position;
      if (i < *buffer.first_read && access.names_output) Add(i, *buffer.first_read);
      if (i > *buffer.last_awaited && access.names_input) Add(buffer.last_awaited, i);
    }
  }

  void Add(absl::optional<uint32_t> from, uint32_t to) {
    if (from.has_value() && *from != to) edges_.emplace_back(to, *from);
  }

  const Program& program_;
  const absl::Span<const OpId> ops_;
  // From an op to an earlier one that it waits for. Sorted: what reaches an op is known when it is
  // passed, in both directions.
  std::vector<std::pair<uint32_t, uint32_t>> edges_;
};

// Finds accesses to the buffers of a block that are not ordered.
class BlockChecker {
 public:
  BlockChecker(const Program& program, int block, absl::Span<const FusedBuffer> buffers,
               std::vector<UnorderedAccesses>* found)
      : program_(program),
        block_(block),
        ops_(program.block(block).ops()),
        buffers_(buffers),
        found_(*found) {}

  void Run() {
    for (const FusedBuffer& buffer : buffers_) Check(buffer);
  }

 private:
  using Accesses = absl::Span<const BufferAccess>;

  // Whether both name it in their slots, one of them as an output.
  static bool NamesOrder(const BufferAccess& a, const BufferAccess& b) {
    return (a.names_output && (b.names_input || b.names_output)) ||
           (b.names_output && a.names_input);
  }

  // Ops on the buffer are ordered with the writes of it next to them by its name. So each is
  // compared with the accesses to parts from the write before it to the write after it; one that
  // does not name the buffer, with all.
  void Check(const FusedBuffer& buffer) {
    const Accesses accesses = buffer.accesses, parts = buffer.part_accesses;
    // By access, where accesses to parts after the next write of the buffer begin.
    std::vector<size_t> ends(accesses.size());
    size_t end = parts.size();
    for (size_t k = accesses.size(); k-- > 0;) {
      ends[k] = end;
      if (accesses[k].names_output) end = FirstBehind(parts, accesses[k].position);
    }
    size_t begin = 0;
    for (size_t k = 0; k < accesses.size(); ++k) {
      const bool is_named = accesses[k].names_input || accesses[k].names_output;
      const Accesses near = is_named ? parts.subspan(begin, ends[k] - begin) : parts;
      if (!CheckAccess(buffer, accesses[k], near)) return;
      if (accesses[k].names_output) begin = FirstBehind(parts, accesses[k].position);
    }
  }

  // The first access at the position or after it.
  static size_t FirstBehind(Accesses accesses, uint32_t position) {
    return absl::c_lower_bound(accesses, position, IsBefore) - accesses.begin();
  }

  // False if it has found a pair.
  bool CheckAccess(const FusedBuffer& buffer, const BufferAccess& access, Accesses parts) {
    const uint32_t at = access.position;
    absl::flat_hash_map<Symbol, const BufferAccess*> own;  // parts that the op accesses, too
    for (size_t k = FirstBehind(parts, at); k < parts.size() && parts[k].position == at; ++k) {
      own[parts[k].name] = &parts[k];
    }
    absl::optional<std::vector<bool>> awaited, waiting;
    for (const BufferAccess& part : parts) {
      if (part.position == at || (!part.writes && !access.writes)) continue;
      if (!(part.reads || part.writes) || !(access.reads || access.writes)) continue;
      if (const auto same = own.find(part.name);
          same != own.end() && NamesOrder(*same->second, part)) {
        continue;
      }
      const BufferAccess* named = FindAccess(buffer, part.position);
      if (named != nullptr && NamesOrder(*named, access)) continue;
      const bool is_before = part.position < at;
      if (is_before ? IsAwaited(buffer, part, access) : Waits(buffer, access, part)) continue;
      auto& reached = is_before ? awaited : waiting;
      if (!reached.has_value()) {
        reached = is_before ? Order().AwaitedBy(at) : Order().WaitingFor(at);
      }
      if ((*reached)[part.position]) continue;
      const OpId first = ops_[std::min(at, part.position)];
      const OpId second = ops_[std::max(at, part.position)];
      found_.push_back({buffer.name, part.name, first, second});
      return false;
    }
    return true;
  }

  static bool IsBefore(const BufferAccess& access, uint32_t position) {
    return access.position < position;
  }

  static const BufferAccess* FindAccess(const FusedBuffer& buffer, uint32_t position) {
    const size_t k = FirstBehind(buffer.accesses, position);
    const bool is_found = k < buffer.accesses.size() && buffer.accesses[k].position == position;
    return is_found ? &buffer.accesses[k] : nullptr;
  }

  // What the coalesce_tensor of the buffer says, in common forms.
  static bool IsAwaited(const FusedBuffer& buffer, const BufferAccess& part,
                        const BufferAccess& access) {
    return access.position == buffer.first_read && part.names_output;
  }
  static bool Waits(const FusedBuffer& buffer, const BufferAccess& access,
                    const BufferAccess& part) {
    return buffer.first_read.has_value() && access.position >= *buffer.first_read &&
           access.position <= *buffer.last_awaited && part.names_input &&
           part.position > *buffer.last_awaited;
  }

  const ExecutionOrder& Order() {
    if (!order_.has_value()) order_.emplace(program_, block_, buffers_);
    return *order_;
  }

  const Program& program_;
  const int block_;
  const absl::Span<const OpId> ops_;
  const absl::Span<const FusedBuffer> buffers_;
  std::vector<UnorderedAccesses>& found_;
  absl::optional<ExecutionOrder> order_;  // if names alone do not say enough
};

// Buffers that a block, the blocks around it, or the startup program make.
class BufferScopes {
 public:
  BufferScopes(const ProgramFacts& facts, const Program* startup)
      : program_(facts.program()),
        storage_(facts.Get<Storage>()),
        args_(program_),
        scopes_(program_.num_blocks()) {
    for (const Storage::Buffer& made : storage_.buffers()) {
      if (!made.name.valid()) continue;
      FusedBuffer buffer;
      buffer.name = made.name;
      buffer.parts.assign(made.parts.begin(), made.parts.end());
      scopes_[made.block].Add(std::move(buffer));
    }
    if (startup != nullptr) AddStartup(*startup);
  }

  // Of a block. Empty if it can access none.
  std::vector<FusedBuffer> Collect(int block) {
    const bool is_any_outside = IsAnyIn(program_.block(block).parent_idx());
    if (!is_any_outside && scopes_[block].buffers.empty()) return {};
    BufferCollector::FindOutside find_outside;
    if (is_any_outside) find_outside = [=](Symbol name) { return FindOutside(block, name); };
    return BufferCollector(storage_, program_, block, &args_, std::move(find_outside)).Run();
  }

 private:
  struct Scope {
    void Add(FusedBuffer buffer) {
      index.AddName(buffer.name, buffers.size());
      for (Symbol part : buffer.parts) index.AddPart(part, buffers.size());
      buffers.push_back(std::move(buffer));
    }
    const FusedBuffer* Find(Symbol name) const {
      const auto found = index.Named(name).has_value() ? index.Named(name) : index.WithPart(name);
      return found.has_value() ? &buffers[*found] : nullptr;
    }
    std::vector<FusedBuffer> buffers;
    BufferIndex index;
  };

  // Variables that do not persist are others in each program.
  void AddStartup(const Program& startup) {
    const auto find = [&](Symbol name) {
      if (!name.valid()) return Symbol();
      const VarId var = startup.block(0).FindVar(name);
      return var.valid() && startup.var(var).persistable() ? program_.FindSymbol(startup.name(name))
                                                           : Symbol();
    };
    const Storage storage(startup);
    for (const Storage::Buffer& made : storage.buffers()) {
      if (made.block != 0) break;
      FusedBuffer buffer;
      buffer.name = find(made.name);
      for (Symbol part : made.parts) {
        if (const Symbol name = find(part); name.valid()) buffer.parts.push_back(name);
      }
      if (buffer.name.valid()) startup_.Add(std::move(buffer));
    }
  }

  // In that block, in those around it, or in the startup program; -1: in that.
  bool IsAnyIn(int block) const {
    for (; block >= 0; block = program_.block(block).parent_idx()) {
      if (!scopes_[block].buffers.empty()) return true;
    }
    return !startup_.buffers.empty();
  }

  const FusedBuffer* FindOutside(int block, Symbol name) const {
    while (program_.block(block).parent_idx() >= 0) {
      if (program_.block(block).FindVar(name).valid()) return nullptr;
      block = program_.block(block).parent_idx();
      if (const FusedBuffer* found = scopes_[block].Find(name)) return found;
    }
    return startup_.Find(name);
  }

  const Program& program_;
  const Storage& storage_;
  BlockArgs args_;
  std::vector<Scope> scopes_;  // by block
  Scope startup_;
};

}  // namespace

bool CommunicatesInPaddle(const Op& op) {
  const absl::string_view type = op.type();
  return absl::StrContains(type, "c_") || IsSendOrReceive(type) || op.HasAttr("ring_id");
}

std::vector<FusedBuffer> FindFusedBuffers(const Program& program, const Storage& storage,
                                          int block) {
  const auto is_here = [&](const Storage::Buffer& made) {
    return made.name.valid() && made.block == block;
  };
  if (absl::c_none_of(storage.buffers(), is_here)) return {};
  BlockArgs args(program);
  return BufferCollector(storage, program, block, &args, nullptr).Run();
}

std::vector<UnorderedAccesses> FindUnorderedAccesses(const ProgramFacts& facts,
                                                     const Program* startup) {
  const Program& program = facts.program();
  std::vector<UnorderedAccesses> found;
  BufferScopes scopes(facts, startup);
  for (int block = 0; block < program.num_blocks(); ++block) {
    const std::vector<FusedBuffer> buffers = scopes.Collect(block);
    if (!buffers.empty()) BlockChecker(program, block, buffers, &found).Run();
  }
  return found;
}

}  // namespace weft
