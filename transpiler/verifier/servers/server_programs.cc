#include "transpiler/verifier/servers/server_programs.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/analysis/core/server_keys.h"
#include "ops/analysis/training/data_variables.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/server_ops.h"
#include "ops/schema/tensor_type.h"
#include "proto/all_ops.h"
#include "transpiler/verifier/servers/key_values.h"

namespace weft {
namespace {

// Visits the ops between workers and servers of the root block, in order.
template <typename Visit>
void ForEachServerOp(const Program& program, const Visit& visit) {
  std::vector<absl::optional<absl::optional<ServerOp>>> by_signature(program.num_signatures());
  for (const Op& op : BlockOps(program, 0)) {
    absl::optional<absl::optional<ServerOp>>& type = by_signature[op.signature_id()];
    if (!type.has_value()) type = FindServerOp(op.type());
    if (type->has_value()) visit(op, **type);
  }
}

// What a worker does with a key.
struct Use {
  std::vector<OpId> prefetches, pulls, lookups, lookup_grads, pushes;
};

std::map<int64_t, Use> UsesOf(const Program& worker) {
  std::map<int64_t, Use> uses;
  ForEachServerOp(worker, [&](const Op& op, ServerOp type) {
    if (type == ServerOp::kPrefetch) {
      for (int64_t key : op.IntsAttr("keys").value_or(std::vector<int64_t>())) {
        uses[key].prefetches.push_back(op.id());
      }
    }
    if (!ServerKeyOf(op).has_value() || !IsOfWorker(type)) return;
    Use& use = uses[*ServerKeyOf(op)];
    if (type == ServerOp::kPull) use.pulls.push_back(op.id());
    if (type == ServerOp::kLookup) use.lookups.push_back(op.id());
    if (type == ServerOp::kLookupGrad) use.lookup_grads.push_back(op.id());
    if (type == ServerOp::kPush) use.pushes.push_back(op.id());
  });
  return uses;
}

absl::optional<TensorType> TypeOf(const Program& program, Symbol variable) {
  const VarId id = program.block(0).Resolve(variable);
  return id.valid() ? DeclaredType(program.var(id)) : absl::nullopt;
}

std::string TypeText(const absl::optional<TensorType>& type) {
  return type.has_value() ? ToString(*type) : "no tensor";
}

class ServerChecker {
 public:
  ServerChecker(const ProgramFacts& worker, const Program* server, Findings* findings)
      : facts_(worker),
        worker_(worker.program()),
        server_(server),
        uses_(UsesOf(worker_)),
        findings_(*findings) {
    if (server != nullptr) keys_ = FindServerKeys(*server);
  }

  void Check() {
    CheckRoles();
    if (findings_.HasErrors()) return;
    CheckBlocks();
    for (const auto& [key, use] : uses_) CheckUse(key, use);
    for (const auto& [key, of] : keys_.keys) CheckKey(key, of);
    if (findings_.HasErrors()) return;
    for (const auto& [key, use] : uses_) {
      CheckOrder(key, use);
      CheckTypes(key, use, keys_.keys.at(key));
    }
    CheckUsesOfPulled();
    CheckPrefetchedIds();
    CheckReductions();
    CheckHolders();
    if (findings_.HasErrors()) return;
    CheckKeyValues(worker_, *server_, keys_, IsAsynchronous(*server_), &findings_);
  }

 private:
  // Of an op of the workers' program.
  void Report(absl::string_view rule, const Op& op, absl::string_view variable,
              const std::string& message) {
    Reporter({0, false}, &findings_)
        .Add(rule, op.id(), variable, absl::StrCat(op.DebugName(), message));
  }

  // Of an op of the servers' program, which findings cannot name otherwise.
  void ReportOfServer(absl::string_view rule, const Op& op, absl::string_view variable,
                      const std::string& message) {
    Reporter({0, false}, &findings_)
        .Add(rule, OpId(), variable, absl::StrCat("server program: ", op.DebugName(), message));
  }

  // Each program has its own ops.
  void CheckRoles() {
    ForEachServerOp(worker_, [this](const Op& op, ServerOp type) {
      if (IsOfWorker(type)) return;
      Report("W511", op, "",
             ": expected a program of workers, found one of the servers; give it as option:server, "
             "and "
             "the program of the workers as the main program");
    });
    if (server_ == nullptr) return;
    absl::optional<bool> is_async;
    ForEachServerOp(*server_, [&](const Op& op, ServerOp type) {
      if (IsOfWorker(type)) {
        return ReportOfServer("W511", op, "",
                              ": expected a program of servers, found an op of workers");
      }
      const bool here = op.BoolAttr("is_async").value_or(false);
      if (here != is_async.value_or(here)) {
        ReportOfServer("W514", op, "",
                       absl::StrCat(" attribute is_async: expected ", *is_async ? "true" : "false",
                                    " as in the ops before it, found ", here ? "true" : "false"));
      }
      is_async = is_async.value_or(here);
      if (ServerKeyOf(op).value_or(0) >= 0) return;
      ReportOfServer("W514", op, "",
                     absl::StrCat(" attribute ", kServerKeyAttr, ": expected a key of 0 or more, ",
                                  "found ", *ServerKeyOf(op)));
    });
  }

  // Workers and servers meet in every step. What servers do not run would be part of the proof.
  void CheckBlocks() {
    for (const Op& op : InnerOps(worker_)) {
      if (!FindServerOp(op.type()).has_value()) continue;
      Report("W512", op, "", ": expected the op in the root block, which runs in every step");
    }
    for (const ServerKeys::Stray& stray : keys_.strays) {
      ReportOfServer("W519", server_->op(stray.op), "",
                     absl::StrCat(": expected ", stray.expected));
    }
  }

  void CheckUse(int64_t key, const Use& use) {
    for (const auto* ops : {&use.prefetches, &use.pulls, &use.lookups, &use.pushes}) {
      for (OpId id : *ops) {
        if (keys_.keys.count(key) > 0) continue;
        Report("W511", worker_.op(id), "",
               absl::StrCat(
                   ": expected a server of key ", key, ", found ",
                   server_ == nullptr ? "no program for servers" : "none in the servers' program"));
      }
    }
    if (use.pushes.size() == 1) return;
    const std::vector<OpId>& any = !use.pushes.empty()         ? use.pushes
                                   : !use.pulls.empty()        ? use.pulls
                                   : !use.lookups.empty()      ? use.lookups
                                   : !use.lookup_grads.empty() ? use.lookup_grads
                                                               : use.prefetches;
    Report("W512", worker_.op(any.back()), "",
           absl::StrCat(": expected one push of key ", key, " in a step, for which servers wait, ",
                        "found ", use.pushes.size()));
  }

  void CheckKey(int64_t key, const ServerKey& of) {
    const Op serves = server_->op(of.serve);
    if (uses_.count(key) == 0) {
      ReportOfServer("W511", serves, "",
                     absl::StrCat(": expected workers that push key ", key, ", found none"));
    }
    if (!of.receive.valid()) {
      return ReportOfServer("W514", serves, "",
                            absl::StrCat(": expected an op that receives key ", key));
    }
    for (OpId id : of.repeated) {
      ReportOfServer("W514", server_->op(id), "",
                     absl::StrCat(": expected one op that receives and one that serves key ", key));
    }
    const Op receives = server_->op(of.receive);
    if (serves.position() < receives.position()) {
      ReportOfServer("W514", serves, "",
                     absl::StrCat(": expected key ", key, " after ", receives.DebugName()));
    }
    CheckUpdate(key, of, receives, serves);
  }

  void CheckUpdate(int64_t key, const ServerKey& of, const Op& receives, const Op& serves) {
    const absl::string_view param =
        serves.Input("X").empty() ? "" : server_->name(serves.Input("X")[0]);
    const bool is_cut = serves.BoolAttr("by_rows").value_or(false);
    int num_updates = 0;
    for (OpId id : of.ops) {
      const Op op = server_->op(id);
      if (FindServerOp(op.type()).has_value()) continue;
      if (op.position() < receives.position() || serves.position() < op.position()) {
        ReportOfServer("W514", op, "",
                       absl::StrCat(": expected an op of key ", key, " between ",
                                    receives.DebugName(), " and ", serves.DebugName()));
      }
      const OpSchema* const schema = FindOpSchema(op.type());
      const bool updates = schema != nullptr && schema->Has(Trait::kOptimizer);
      if (updates) {
        for (Symbol updated : op.Input("Param")) num_updates += server_->name(updated) == param;
      }
      if (!is_cut || (schema != nullptr && schema->Has(Trait::kElementwise))) continue;
      ReportOfServer("W514", op, param,
                     absl::StrCat(": expected an elementwise ", updates ? "optimizer" : "op",
                                  ", as each server has some rows of ", param));
    }
    if (num_updates != 1) {
      ReportOfServer("W514", serves, param,
                     absl::StrCat(" input X (", param, "): expected one optimizer with key ", key,
                                  " that updates it, found ", num_updates));
    }
  }

  // In a step, a worker gets a parameter, uses it, and sends its gradient.
  void CheckOrder(int64_t key, const Use& use) {
    const Op push = worker_.op(use.pushes[0]);
    for (const auto* ops : {&use.pulls, &use.lookups}) {
      for (OpId id : *ops) {
        const Op op = worker_.op(id);
        if (op.position() < push.position()) continue;
        Report("W512", op, "",
               absl::StrCat(": expected key ", key, " before ", push.DebugName(),
                            ", as servers answer with the parameter of the step's start"));
      }
    }
    CheckPrefetches(key, use);
    if (use.pulls.empty()) return;
    const Op pull = worker_.op(use.pulls[0]);
    if (pull.Output("Out").empty()) return;
    const Symbol param = pull.Output("Out")[0];
    if (use.pulls.size() > 1) {
      Report("W512", worker_.op(use.pulls[1]), worker_.name(param),
             absl::StrCat(": expected one pull of key ", key, " in a step"));
    }
    pushes_of_pulled_.emplace(param, push.id());
  }

  // A pull takes what was asked for last: in this step, and once.
  void CheckPrefetches(int64_t key, const Use& use) {
    for (OpId id : use.prefetches) {
      const Op op = worker_.op(id);
      const bool is_first = id == use.prefetches.front();
      const bool is_pulled =
          !use.pulls.empty() && op.position() < worker_.op(use.pulls[0]).position();
      if (is_first && is_pulled) continue;
      Report("W512", op, "",
             absl::StrCat(": expected key ", key, " once, and before the op that pulls it"));
    }
  }

  // The worker has what it pulled until it pushes.
  void CheckUsesOfPulled() {
    for (OpId id : worker_.block(0).ops()) CheckUsesOfPulled(worker_.op(id), worker_.op(id));
  }

  // The variables of `op`, which `root` of the root block is or runs.
  void CheckUsesOfPulled(const Op& op, const Op& root) {
    std::set<Symbol> reported;
    for (Symbol variable : op.args()) {
      const auto push = pushes_of_pulled_.find(variable);
      if (push == pushes_of_pulled_.end()) continue;
      const Op pushes = worker_.op(push->second);
      if (root.position() <= pushes.position() || !reported.insert(variable).second) continue;
      const std::string name(worker_.name(variable));
      Report("W512", root, name,
             absl::StrCat(": uses ", name, " after ", pushes.DebugName(),
                          ", where one device has the updated parameter"));
    }
    for (int block : op.SubBlocks()) {
      for (OpId id : worker_.block(block).ops()) CheckUsesOfPulled(worker_.op(id), root);
    }
  }

  // A worker takes the ids of the next step from the batch.
  void CheckPrefetchedIds() {
    for (const auto& [key, use] : uses_) {
      for (OpId id : use.lookups) {
        const Op op = worker_.op(id);
        if (!op.BoolAttr(kPrefetchAttr).value_or(false) || op.Input("Ids").empty()) continue;
        const Symbol ids = op.Input("Ids")[0];
        if (facts_.Get(FindUnchangedData).contains(worker_.block(0).Resolve(ids))) continue;
        const std::string name(worker_.name(ids));
        Report("W517", op, name,
               absl::StrCat(" input Ids (", name, "): expected a variable that is fed and that no ",
                            "op writes, as attribute ", kPrefetchAttr, " is true"));
      }
    }
  }

  void CheckTypes(int64_t key, const Use& use, const ServerKey& of) {
    const Op receive = server_->op(of.receive), serve = server_->op(of.serve);
    const Op push = worker_.op(use.pushes[0]);
    CheckSame(push, push.Input("Grad"), receive.Output("Grad"), "Grad");
    for (absl::string_view slot : kScalarSlots) {
      CheckSame(push, push.Input(slot), receive.Output(slot), slot);
    }
    const bool by_rows = serve.BoolAttr("by_rows").value_or(false);
    const absl::optional<TensorType> held =
        serve.Input("X").empty() ? absl::nullopt : TypeOf(*server_, serve.Input("X")[0]);
    for (OpId id : by_rows ? use.pulls : use.lookups) {
      Report("W516", worker_.op(id), "",
             absl::StrCat(": expected key ", key, " to be held ", by_rows ? "whole" : "by rows",
                          ", found ", by_rows ? "by rows" : "whole", " in the servers' program"));
    }
    for (OpId id : use.pulls) CheckName(worker_.op(id), key, serve);
    for (const auto* ops : {&use.pulls, &use.lookups, &use.lookup_grads}) {
      for (OpId id : *ops) {
        const Op op = worker_.op(id);
        const auto shape = op.IntsAttr("shape");
        const auto dtype = DTypeFromProto(
            static_cast<int>(op.IntAttr("dtype").value_or(static_cast<int64_t>(DType::kFloat32))));
        if (held.has_value() && shape.has_value() && dtype == held->dtype &&
            absl::c_equal(*shape, held->dims)) {
          continue;
        }
        Report("W516", op, "",
               absl::StrCat(": expected attributes shape and dtype of ", TypeText(held),
                            ", which servers hold under key ", key));
      }
    }
  }

  // JoinServers takes variables of one name for one parameter.
  void CheckName(const Op& pull, int64_t key, const Op& serve) {
    if (pull.Output("Out").empty() || serve.Input("X").empty()) return;
    const absl::string_view here = worker_.name(pull.Output("Out")[0]);
    const absl::string_view there = server_->name(serve.Input("X")[0]);
    if (here == there) return;
    Report("W516", pull, here,
           absl::StrCat(" output Out (", here, "): expected ", there,
                        ", which servers hold under key ", key));
  }

  void CheckSame(const Op& push, absl::Span<const Symbol> pushed, absl::Span<const Symbol> received,
                 absl::string_view slot) {
    if (pushed.size() != received.size()) {
      return Report("W516", push, "",
                    absl::StrCat(" input ", slot, ": expected as many variables as the server ",
                                 "receives, ", received.size(), ", found ", pushed.size()));
    }
    for (size_t i = 0; i < pushed.size(); ++i) {
      const auto here = TypeOf(worker_, pushed[i]), there = TypeOf(*server_, received[i]);
      if (here.has_value() && here == there) continue;
      const std::string name(worker_.name(pushed[i]));
      Report("W516", push, name,
             absl::StrCat(" input ", slot, " (", name, "): expected ", TypeText(there),
                          ", as the server receives, found ", TypeText(here)));
    }
  }

  // Servers reduce what is pushed.
  void CheckReductions() {
    std::map<Symbol, OpId> pushed;
    for (const auto& [key, use] : uses_) {
      for (Symbol grad : worker_.op(use.pushes[0]).Input("Grad")) pushed[grad] = use.pushes[0];
    }
    const OpTraits& traits = facts_.Get<OpTraits>();
    for (const Op& op : BlockOps(worker_, 0)) {
      if (!traits.Has(op, Trait::kCollective)) continue;
      for (Symbol variable : op.output_args()) {
        const auto push = pushed.find(variable);
        if (push == pushed.end()) continue;
        const std::string name(worker_.name(variable));
        Report("W513", op, name,
               absl::StrCat(": reduces ", name, ", which ", worker_.op(push->second).DebugName(),
                            " sends to servers that reduce it, too"));
      }
    }
  }

  // Only servers have parameters that they update, and only they change them: to JoinServers,
  // variables of one name are one.
  void CheckHolders() {
    const std::set<std::string> held = HeldByServers(*server_);
    absl::flat_hash_set<VarId> here;
    for (VarId id : worker_.block(0).vars()) {
      const Var var = worker_.var(id);
      if (held.count(std::string(var.name())) == 0) continue;
      here.insert(id);
      if (!var.persistable()) continue;
      Reporter({0, false}, &findings_)
          .Add("W515", OpId(), var.name(),
               absl::StrCat("variable ", var.name(),
                            ": expected a value of the step, found a persistable variable, which "
                            "servers hold and update"));
    }
    const OpTraits& traits = facts_.Get<OpTraits>();
    for (int block = 0; block < worker_.num_blocks() && !here.empty(); ++block) {
      for (const Op& op : BlockOps(worker_, block)) {
        if (FindServerOp(op.type()) == ServerOp::kPull || traits.Has(op, Trait::kStreamSync)) {
          continue;
        }
        for (size_t i = 0; i < op.args().size(); ++i) {
          if (here.contains(worker_.block(block).Resolve(op.args()[i]))) CheckUseOfHeld(op, i);
        }
      }
    }
  }

  void CheckUseOfHeld(const Op& op, size_t arg) {
    const Symbol variable = op.args()[arg];
    const bool is_output = arg >= op.signature().num_input_args;
    if (!is_output && pushes_of_pulled_.count(variable) > 0) return;
    const std::string name(worker_.name(variable));
    Report(
        "W515", op, name,
        absl::StrCat(is_output ? ": writes " : ": reads ", name, ", which servers hold: expected ",
                     is_output ? "a variable of the worker" : "a pull of it"));
  }

  const ProgramFacts& facts_;  // of the worker
  const Program& worker_;
  const Program* const server_;
  const std::map<int64_t, Use> uses_;
  ServerKeys keys_;
  std::map<Symbol, OpId> pushes_of_pulled_;  // by parameter
  Findings& findings_;
};

}  // namespace

bool HasServerOps(const Program& program) {
  return absl::c_any_of(AllOps(program),
                        [](const Op& op) { return FindServerOp(op.type()).has_value(); });
}

void CheckServers(const ProgramFacts& worker, const Program* server, Findings* findings) {
  ServerChecker(worker, server, findings).Check();
}

bool IsAsynchronous(const Program& server) {
  bool is_async = false;
  ForEachServerOp(server, [&](const Op& op, ServerOp) {
    is_async = is_async || op.BoolAttr("is_async").value_or(false);
  });
  return is_async;
}

std::set<std::string> HeldByServers(const Program& server) {
  std::set<std::string> held;
  for (VarId id : server.block(0).vars()) {
    if (server.var(id).persistable()) held.insert(std::string(server.var(id).name()));
  }
  return held;
}

}  // namespace weft
