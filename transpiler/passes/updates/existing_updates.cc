#include "transpiler/passes/updates/existing_updates.h"

#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/analysis/core/updates.h"
#include "proto/all_ops.h"
#include "proto/op_role.h"

namespace weft {
namespace {

absl::StatusOr<Symbol> NamedGradient(const Op& op, Symbol param) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<ParamGrad> pairs, ParamGrads(op));
  for (const ParamGrad& pair : pairs) {
    if (pair.param == op.program().name(param)) return op.program().FindSymbol(pair.grad);
  }
  return Symbol();
}

void Append(absl::Span<const Symbol> symbols, std::vector<Symbol>* all) {
  all->insert(all->end(), symbols.begin(), symbols.end());
}

// An op, or a branch with all ops of its blocks.
struct Node {
  std::vector<OpId> ops;
  std::vector<Symbol> reads, writes;
  bool may_go = false;  // if nobody reads what it writes
  bool is_update = false;
  bool goes = false;
};

// Divides a program into nodes.
class ProgramNodes {
 public:
  ProgramNodes(const Program& program, const std::vector<OldUpdate>& updates)
      : program_(program),
        traits_(program),
        is_update_(program.op_id_limit(), false),
        is_added_(program.num_blocks(), false) {
    for (const OldUpdate& update : updates) is_update_[update.op.value()] = true;
    AddBlock(0);
  }

  std::vector<Node> Take() { return std::move(nodes_); }

 private:
  void AddBlock(int block) {
    if (is_added_[block]) return;
    is_added_[block] = true;
    for (OpId id : program_.block(block).ops()) AddOp(program_.op(id));
  }

  void AddOp(const Op& op) {
    Node node;
    node.ops.push_back(op.id());
    node.is_update = is_update_[op.id().value()];
    node.may_go = MayGo(op);
    const std::vector<int> sub_blocks = op.SubBlocks();
    if (!sub_blocks.empty()) {
      Node inner;
      inner.may_go = true;
      for (int block : sub_blocks) AddInner(block, &inner);
      node.may_go = node.may_go && inner.may_go;
      if (!node.may_go) return AddOwner(op, inner, std::move(node));
      for (int block : sub_blocks) is_added_[block] = true;
      node.ops.insert(node.ops.end(), inner.ops.begin(), inner.ops.end());
      node.reads = std::move(inner.reads);
      node.writes = std::move(inner.writes);
    }
    Append(op.input_args(), &node.reads);
    Append(op.output_args(), &node.writes);
    nodes_.push_back(std::move(node));
  }

  // The ops of its blocks are nodes of their own, and it also lists what these access.
  void AddOwner(const Op& op, const Node& inner, Node node) {
    std::set<Symbol> of_inner(inner.reads.begin(), inner.reads.end());
    of_inner.insert(inner.writes.begin(), inner.writes.end());
    for (Symbol symbol : op.input_args()) {
      if (of_inner.count(symbol) == 0) node.reads.push_back(symbol);
    }
    for (Symbol symbol : op.output_args()) {
      if (of_inner.count(symbol) == 0) node.writes.push_back(symbol);
    }
    nodes_.push_back(std::move(node));
    for (int block : op.SubBlocks()) AddBlock(block);
  }

  void AddInner(int block, Node* inner) {
    for (const Op& op : BlockOps(program_, block)) {
      inner->ops.push_back(op.id());
      inner->may_go = inner->may_go && MayGo(op) && !is_update_[op.id().value()];
      Append(op.input_args(), &inner->reads);
      Append(op.output_args(), &inner->writes);
      for (int sub_block : op.SubBlocks()) AddInner(sub_block, inner);
    }
  }

  bool MayGo(const Op& op) {
    const OpSchema* schema = traits_.SchemaOf(op);
    if (schema == nullptr || IsBackward(op)) return false;
    if ((op.role() & (kRoleOptimize | kRoleLrSched)) == 0) return false;
    if (schema->Has(Trait::kCollective) || schema->Has(Trait::kStreamSync)) return false;
    return !schema->Has(Trait::kSideEffect) || schema->Has(Trait::kBranch);
  }

  const Program& program_;
  OpTraits traits_;
  std::vector<bool> is_update_;  // by OpId
  std::vector<bool> is_added_;   // by block
  std::vector<Node> nodes_;
};

class LeftoverSweep {
 public:
  LeftoverSweep(const Program& program, std::vector<Node> nodes)
      : program_(program),
        nodes_(std::move(nodes)),
        writers_(program.symbols().size()),
        is_read_(program.symbols().size(), false) {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      for (Symbol symbol : nodes_[i].writes) writers_[symbol.value()].push_back(i);
    }
  }

  Leftovers Run(const std::vector<Symbol>& kept) {
    MarkWhatLeadsToUpdates();
    for (Symbol symbol : kept) Read(symbol);
    for (const Node& node : nodes_) {
      if (node.goes) continue;
      for (Symbol symbol : node.reads) Read(symbol);
    }
    KeepWhatIsRead();
    Leftovers leftovers;
    for (const Node& node : nodes_) {
      if (node.goes) leftovers.ops.insert(leftovers.ops.end(), node.ops.begin(), node.ops.end());
    }
    CollectVars(kept, &leftovers);
    return leftovers;
  }

 private:
  void MarkWhatLeadsToUpdates() {
    std::vector<size_t> pending;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      nodes_[i].goes = nodes_[i].is_update;
      if (nodes_[i].goes) pending.push_back(i);
    }
    std::vector<bool> is_followed(program_.symbols().size(), false);
    while (!pending.empty()) {
      const size_t at = pending.back();
      pending.pop_back();
      for (Symbol symbol : nodes_[at].reads) {
        if (is_followed[symbol.value()]) continue;
        is_followed[symbol.value()] = true;
        for (size_t writer : writers_[symbol.value()]) {
          if (nodes_[writer].goes || !nodes_[writer].may_go) continue;
          nodes_[writer].goes = true;
          pending.push_back(writer);
        }
      }
    }
  }

  void Read(Symbol symbol) {
    if (is_read_[symbol.value()] || program_.name(symbol) == kEmptyVarName) return;
    is_read_[symbol.value()] = true;
    pending_.push_back(symbol);
  }

  void KeepWhatIsRead() {
    while (!pending_.empty()) {
      const Symbol symbol = pending_.back();
      pending_.pop_back();
      for (size_t writer : writers_[symbol.value()]) {
        Node& node = nodes_[writer];
        if (!node.goes || node.is_update) continue;
        node.goes = false;
        for (Symbol read : node.reads) Read(read);
      }
    }
  }

  void CollectVars(const std::vector<Symbol>& kept, Leftovers* leftovers) const {
    std::vector<bool> goes(program_.symbols().size(), false);
    const auto mark = [&](bool of_nodes_that_go, bool value) {
      for (const Node& node : nodes_) {
        if (node.goes != of_nodes_that_go) continue;
        for (Symbol symbol : node.reads) goes[symbol.value()] = value;
        for (Symbol symbol : node.writes) goes[symbol.value()] = value;
      }
    };
    mark(true, true);
    mark(false, false);
    for (Symbol symbol : kept) goes[symbol.value()] = false;
    if (const Symbol empty = program_.FindSymbol(kEmptyVarName); empty.valid()) {
      goes[empty.value()] = false;
    }
    for (const Var& var : AllVars(program_)) {
      if (var.is_parameter() || var.need_check_feed()) goes[var.name_symbol().value()] = false;
    }
    for (const Var& var : AllVars(program_)) {
      if (goes[var.name_symbol().value()]) leftovers->vars.push_back(var.id());
    }
    for (const Node& node : nodes_) {
      const Op op = program_.op(node.ops[0]);
      const auto is_gone = [&](Symbol symbol) { return goes[symbol.value()]; };
      if (!node.goes && absl::c_any_of(op.args(), is_gone)) leftovers->owners.push_back(op.id());
    }
  }

  const Program& program_;
  std::vector<Node> nodes_;
  std::vector<std::vector<size_t>> writers_;  // by Symbol: nodes
  std::vector<bool> is_read_;                 // by Symbol: by what stays
  std::vector<Symbol> pending_;
};

}  // namespace

absl::StatusOr<std::vector<OldUpdate>> FindOldUpdates(
    const Program& program, const std::function<bool(const Op&)>& names_gradient) {
  std::vector<OldUpdate> updates;
  size_t i = 0;  // in slot Param
  for (const ParamUpdate& found : FindUpdates(program)) {
    const Op op = program.op(found.op);
    i = !updates.empty() && updates.back().op == found.op ? i + 1 : 0;
    OldUpdate update;
    update.op = found.op;
    update.param = found.param;
    if (names_gradient(op)) {
      WEFT_ASSIGN_OR_RETURN(update.grad, NamedGradient(op, found.param));
    } else if (const absl::Span<const Symbol> grads = op.Input("Grad"); i < grads.size()) {
      update.grad = grads[i];
    }
    if (!update.grad.valid()) {
      return absl::InvalidArgumentError(
          absl::StrCat(op.DebugName(), " updates ", program.name(found.param),
                       ": expected its gradient in slot Grad, found none"));
    }
    const absl::Span<const Symbol> skip = op.Input("SkipUpdate");
    if (!skip.empty() && program.name(skip[0]) != kEmptyVarName) update.skip = skip[0];
    updates.push_back(update);
  }
  return updates;
}

Leftovers FindLeftovers(const Program& program, const std::vector<OldUpdate>& updates,
                        const std::vector<Symbol>& kept) {
  return LeftoverSweep(program, ProgramNodes(program, updates).Take()).Run(kept);
}

}  // namespace weft
