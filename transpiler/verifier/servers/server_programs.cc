#include "transpiler/verifier/servers/server_programs.h"

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/analysis/training/data_variables.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/server_ops.h"
#include "ops/schema/tensor_type.h"
#include "proto/all_ops.h"
#include "proto/op_role.h"

namespace weft {
namespace {

absl::optional<int64_t> KeyOf(const Op& op) { return op.IntAttr(kServerKeyAttr); }

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

// What a server does with a key.
struct Section {
  OpId receive, serve;
  std::vector<OpId> again;    // other ops that receive or serve it
  std::vector<OpId> updates;  // optimizers
  std::vector<OpId> ops;      // between receive and serve, in order
};

std::map<int64_t, Section> SectionsOf(const Program& server) {
  std::map<int64_t, Section> sections;
  OpTraits traits(server);
  for (const Op& op : BlockOps(server, 0)) {
    const absl::optional<int64_t> key = KeyOf(op);
    if (!key.has_value()) continue;
    Section& section = sections[*key];
    const absl::optional<ServerOp> type = FindServerOp(op.type());
    if (type == ServerOp::kReceive || type == ServerOp::kServe) {
      OpId& place = type == ServerOp::kReceive ? section.receive : section.serve;
      place.valid() ? section.again.push_back(op.id()) : void(place = op.id());
    } else {
      section.ops.push_back(op.id());
      if (traits.Has(op, Trait::kOptimizer)) section.updates.push_back(op.id());
    }
  }
  return sections;
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
    if (!KeyOf(op).has_value() || !IsOfWorker(type)) return;
    Use& use = uses[*KeyOf(op)];
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
    if (server != nullptr) sections_ = SectionsOf(*server);
  }

  void Check() {
    CheckRoles();
    if (findings_.HasErrors()) return;
    CheckBlocks();
    for (const auto& [key, use] : uses_) CheckUse(key, use);
    for (const auto& [key, section] : sections_) CheckSection(key, section);
    if (findings_.HasErrors()) return;
    for (const auto& [key, use] : uses_) {
      CheckOrder(key, use);
      CheckTypes(key, use, sections_.at(key));
    }
    CheckUsesOfPulled();
    CheckPrefetchedIds();
    CheckReductions();
    CheckHolders();
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
      if (KeyOf(op).value_or(0) >= 0) return;
      ReportOfServer("W514", op, "",
                     absl::StrCat(" attribute ", kServerKeyAttr, ": expected a key of 0 or more, ",
                                  "found ", *KeyOf(op)));
    });
  }

  // Workers and servers meet in every step.
  void CheckBlocks() {
    for (const Program* program : {&worker_, server_}) {
      if (program == nullptr) continue;
      for (const Op& op : InnerOps(*program)) {
        if (!FindServerOp(op.type()).has_value()) continue;
        const std::string message = ": expected the op in the root block, which runs in every step";
        program == server_ ? ReportOfServer("W512", op, "", message)
                           : Report("W512", op, "", message);
      }
    }
  }

  void CheckUse(int64_t key, const Use& use) {
    for (const auto* ops : {&use.prefetches, &use.pulls, &use.lookups, &use.pushes}) {
      for (OpId id : *ops) {
        if (sections_.count(key) > 0) continue;
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

  void CheckSection(int64_t key, const Section& section) {
    const auto any = section.receive.valid() ? section.receive
                     : section.serve.valid() ? section.serve
                                             : section.ops.front();
    const Op op = server_->op(any);
    if (!section.receive.valid() || !section.serve.valid()) {
      return ReportOfServer("W514", op, "",
                            absl::StrCat(": expected ops that receive and serve key ", key));
    }
    for (OpId id : section.again) {
      ReportOfServer("W514", server_->op(id), "",
                     absl::StrCat(": expected one op that receives and one that serves key ", key));
    }
    const Op receives = server_->op(section.receive), serves = server_->op(section.serve);
    if (serves.position() < receives.position()) {
      ReportOfServer("W514", serves, "",
                     absl::StrCat(": expected key ", key, " after ", receives.DebugName()));
    }
    for (OpId id : section.ops) {
      const Op between = server_->op(id);
      if (receives.position() < between.position() && between.position() < serves.position()) {
        continue;
      }
      ReportOfServer("W514", between, "",
                     absl::StrCat(": expected an op of key ", key, " between ",
                                  receives.DebugName(), " and ", serves.DebugName()));
    }
    if (uses_.count(key) == 0) {
      ReportOfServer("W511", op, "",
                     absl::StrCat(": expected workers that push key ", key, ", found none"));
    }
    const Op serve = server_->op(section.serve);
    const absl::string_view param =
        serve.Input("X").empty() ? "" : server_->name(serve.Input("X")[0]);
    int num_updates = 0;
    for (OpId id : section.updates) {
      const Op update = server_->op(id);
      for (Symbol of : update.Input("Param")) num_updates += server_->name(of) == param;
    }
    for (OpId id : section.updates) {
      const OpSchema* const schema = FindOpSchema(server_->op(id).type());
      const bool is_cut = serve.BoolAttr("by_rows").value_or(false);
      if (!is_cut || schema->Has(Trait::kElementwise)) continue;
      ReportOfServer(
          "W514", server_->op(id), param,
          absl::StrCat(": expected an elementwise optimizer, as each server has some rows "
                       "of ",
                       param));
    }
    if (num_updates != 1) {
      ReportOfServer("W514", serve, param,
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

  void CheckTypes(int64_t key, const Use& use, const Section& section) {
    const Op receive = server_->op(section.receive), serve = server_->op(section.serve);
    const Op push = worker_.op(use.pushes[0]);
    CheckSame(push, push.Input("Grad"), receive.Output("Grad"), "Grad");
    CheckSame(push, push.Input("LearningRate"), receive.Output("LearningRate"), "LearningRate");
    CheckSame(push, push.Input("Others"), receive.Output("Others"), "Others");
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

  // Only servers have parameters that they update.
  void CheckHolders() {
    const std::set<std::string> held = HeldByServers(*server_);
    for (VarId id : worker_.block(0).vars()) {
      const Var var = worker_.var(id);
      if (!var.persistable() || held.count(std::string(var.name())) == 0) continue;
      Reporter({0, false}, &findings_)
          .Add("W515", OpId(), var.name(),
               absl::StrCat("variable ", var.name(),
                            ": expected a value of the step, found a persistable variable, which "
                            "servers hold and update"));
    }
  }

  const ProgramFacts& facts_;  // of the worker
  const Program& worker_;
  const Program* const server_;
  const std::map<int64_t, Use> uses_;
  std::map<int64_t, Section> sections_;
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
