#include "transpiler/passes/servers/parameter_server.h"

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/analysis/training/data_variables.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/server_ops.h"
#include "ops/schema/table_entries.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"
#include "transpiler/passes/gradients/gradient_scale.h"
#include "transpiler/passes/servers/served_parameters.h"
#include "transpiler/passes/support/op_builder.h"
#include "transpiler/passes/support/op_queries.h"
#include "transpiler/passes/support/properties.h"

namespace weft {
namespace {

constexpr int kDefaultStaleness = 4, kMaxStaleness = 1 << 20;

NewOp OnKey(ServerOp op, size_t key, int role) {
  NewOp built;
  built.type = std::string(ServerOpType(op));
  built.attrs = {{std::string(kServerKeyAttr), static_cast<int32_t>(key)}};
  built.role = role;
  return built;
}

void AddType(const TensorType& type, NewOp* op) {
  op->attrs.emplace_back("dtype", static_cast<int32_t>(type.dtype));
  op->attrs.emplace_back("shape", std::vector<int64_t>(type.dims.begin(), type.dims.end()));
}

std::vector<std::string> Names(const Program& program, absl::Span<const Symbol> symbols) {
  std::vector<std::string> names;
  for (Symbol symbol : symbols) names.emplace_back(program.name(symbol));
  return names;
}

// A gradient and what the optimizer reads besides, as slots of ps_push and ps_receive.
NewSlots PushedSlots(const Program& program, const ServedParameter& served) {
  NewSlots slots = {{"Grad", {std::string(program.name(served.grad))}}};
  if (served.learning_rate.valid()) {
    slots.push_back({"LearningRate", {std::string(program.name(served.learning_rate))}});
  }
  std::vector<std::string> others;
  for (const auto& [slot, variable] : served.others) others.emplace_back(program.name(variable));
  if (!others.empty()) slots.push_back({"Others", std::move(others)});
  return slots;
}

pb::OpDesc WithKey(pb::OpDesc op, size_t key) {
  *op.add_attrs() = MakeAttr(kServerKeyAttr, static_cast<int32_t>(key));
  return op;
}

// Writes the workers' part of the main program.
class WorkerWriter {
 public:
  // `prefetched`: the lookups whose rows are prefetched for the next step.
  WorkerWriter(const Program& program, const std::vector<ServedParameter>& served,
               const std::set<OpId>& prefetched, OutOfRange out_of_range, Rewriter* rewriter)
      : program_(program),
        served_(served),
        prefetched_(prefetched),
        out_of_range_(out_of_range),
        rewriter_(*rewriter) {}

  void Write() {
    WritePrefetch();
    for (size_t key = 0; key < served_.size(); ++key) {
      const ServedParameter& served = served_[key];
      if (served.is_table()) {
        for (OpId id : served.lookups) WriteLookup(key, id, ServerOp::kLookup);
        for (OpId id : served.lookup_grads) WriteLookup(key, id, ServerOp::kLookupGrad);
      } else if (served.first_use.valid()) {
        WritePull(key);
      }
      NewOp push = OnKey(ServerOp::kPush, key, program_.op(served.update).role());
      push.inputs = PushedSlots(program_, served);
      for (OpId id : served.before_update) rewriter_.Erase(id);
      rewriter_.Replace(served.update, BuildOp(push));
      WriteVars(served);
    }
  }

 private:
  bool IsPulled(size_t key) const {
    return !served_[key].is_table() && served_[key].first_use.valid();
  }

  // In the order in which the step needs them.
  void WritePrefetch() {
    std::vector<std::pair<uint32_t, int32_t>> by_use;
    for (size_t key = 0; key < served_.size(); ++key) {
      if (!IsPulled(key)) continue;
      by_use.emplace_back(program_.op(served_[key].first_use).position(),
                          static_cast<int32_t>(key));
    }
    if (by_use.empty()) return;
    absl::c_sort(by_use);
    std::vector<int32_t> keys;
    for (const auto& [position, key] : by_use) keys.push_back(key);
    NewOp prefetch;
    prefetch.type = std::string(ServerOpType(ServerOp::kPrefetch));
    prefetch.attrs = {{"keys", std::move(keys)}};
    prefetch.role = kRoleForward;
    rewriter_.Prepend(0, BuildOp(prefetch));
  }

  void WritePull(size_t key) {
    const ServedParameter& served = served_[key];
    const Op use = program_.op(served.first_use);
    NewOp pull = OnKey(ServerOp::kPull, key, use.role() & ~kRoleLoss);
    pull.outputs = {{"Out", {std::string(program_.name(served.param))}}};
    AddType(served.type, &pull);
    rewriter_.InsertBefore(served.first_use, BuildOp(pull));
  }

  // Replaces a lookup, or its gradient op.
  void WriteLookup(size_t key, OpId id, ServerOp type) {
    const Op op = program_.op(id);
    NewOp lookup = OnKey(type, key, op.role());
    lookup.inputs = {{"Ids", Names(program_, op.Input("Ids"))}};
    absl::string_view table_op = op.type();
    if (type == ServerOp::kLookup) {
      lookup.outputs = {{"Out", Names(program_, op.Output("Out"))}};
      if (prefetched_.count(id) > 0) lookup.attrs.emplace_back(std::string(kPrefetchAttr), true);
    } else {
      lookup.inputs.push_back({"Out@GRAD", Names(program_, op.Input("Out@GRAD"))});
      lookup.outputs = {{"W@GRAD", Names(program_, op.Output("W@GRAD"))}};
      table_op.remove_suffix(kGradOpSuffix.size());
    }
    AddType(served_[key].type, &lookup);
    lookup.attrs.emplace_back("padding_idx", op.IntAttr("padding_idx").value_or(-1));
    lookup.attrs.emplace_back(std::string(kTableOpAttr), std::string(table_op));
    if (out_of_range_ == OutOfRange::kZeros || op.BoolAttr(kZerosOutOfRangeAttr) == true) {
      lookup.attrs.emplace_back(std::string(kZerosOutOfRangeAttr), true);
    }
    if (const auto pairs = op.StringsAttr(kOpRoleVarAttr); pairs.has_value() && !pairs->empty()) {
      lookup.weft_attrs.emplace_back(std::string(kOpRoleVarAttr), *pairs);
    }
    rewriter_.Replace(id, BuildOp(lookup));
  }

  // A parameter becomes a value of the step. What only servers have goes.
  void WriteVars(const ServedParameter& served) {
    const VarId param = program_.block(0).Resolve(served.param);
    pb::VarDesc var = program_.var(param).ToProto();
    var.set_persistable(false);
    var.set_is_parameter(false);
    rewriter_.ReplaceVar(param, var);
    for (const auto* own : {&served.states, &served.temporaries}) {
      for (Symbol variable : *own) rewriter_.EraseVar(program_.block(0).Resolve(variable));
    }
  }

  const Program& program_;
  const std::vector<ServedParameter>& served_;
  const std::set<OpId>& prefetched_;
  const OutOfRange out_of_range_;
  Rewriter& rewriter_;
};

// Writes the program of the servers.
class ServerWriter {
 public:
  ServerWriter(const Program& program, const std::vector<ServedParameter>& served,
               const ParameterServer::Options& options, bool averages)
      : program_(program), served_(served), options_(options), averages_(averages) {}

  absl::StatusOr<Program> Write() {
    desc_ = program_.OtherFields();
    desc_.clear_blocks();
    pb::BlockDesc& block = *desc_.add_blocks();
    block.set_idx(0);
    block.set_parent_idx(-1);
    const bool waits_for_all = options_.wait == ParameterServer::Wait::kAllKeys;
    if (waits_for_all) {
      for (size_t key = 0; key < served_.size(); ++key) *block.add_ops() = Receive(key);
    }
    for (size_t key = 0; key < served_.size(); ++key) {
      if (!waits_for_all) *block.add_ops() = Receive(key);
      std::vector<OpId> ops = served_[key].before_update;
      ops.push_back(served_[key].update);
      for (OpId id : ops) *block.add_ops() = WithKey(program_.op(id).ToProto(), key);
      *block.add_ops() = Serve(key);
    }
    AddVars(&block);
    return Program::FromProto(desc_);
  }

 private:
  pb::OpDesc Receive(size_t key) const {
    const ServedParameter& served = served_[key];
    NewOp receive = OnKey(ServerOp::kReceive, key, kRoleOptimize);
    receive.outputs = PushedSlots(program_, served);
    AddType({TypeOf(served.grad).dtype, served.type.dims}, &receive);
    receive.attrs.emplace_back("averages", averages_);
    receive.attrs.emplace_back("is_async", options_.is_async);
    receive.attrs.emplace_back("is_sparse", served.grad_is_sparse);
    return BuildOp(receive);
  }

  pb::OpDesc Serve(size_t key) const {
    NewOp serve = OnKey(ServerOp::kServe, key, kRoleOptimize);
    serve.inputs = {{"X", {std::string(program_.name(served_[key].param))}}};
    serve.attrs.emplace_back("by_rows", served_[key].is_table());
    serve.attrs.emplace_back("is_async", options_.is_async);
    serve.attrs.emplace_back(
        "staleness", options_.is_async ? options_.staleness.value_or(kDefaultStaleness) : 0);
    return BuildOp(serve);
  }

  TensorType TypeOf(Symbol variable) const { return *DeclaredType(program_, variable); }

  void AddVars(pb::BlockDesc* block) const {
    std::set<Symbol> added;
    const auto add = [&](Symbol variable, bool is_held) {
      if (!added.insert(variable).second) return;
      pb::VarDesc var = program_.var(program_.block(0).Resolve(variable)).ToProto();
      var.set_need_check_feed(false);
      var.set_persistable(is_held);
      if (!is_held) var.set_is_parameter(false);
      *block->add_vars() = std::move(var);
    };
    for (const ServedParameter& served : served_) {
      add(served.param, true);
      for (Symbol state : served.states) add(state, true);
      for (Symbol temporary : served.temporaries) add(temporary, false);
      add(served.grad, false);
      if (served.learning_rate.valid()) add(served.learning_rate, false);
      for (const auto& [slot, variable] : served.others) add(variable, false);
    }
  }

  const Program& program_;
  const std::vector<ServedParameter>& served_;
  const ParameterServer::Options& options_;
  const bool averages_;
  pb::ProgramDesc desc_;
};

// The lookups whose ids are known a step ahead. Notes name the others.
absl::StatusOr<std::set<OpId>> LookupsToPrefetch(const Program& program,
                                                 const std::vector<ServedParameter>& all,
                                                 const PassContext* context) {
  std::set<OpId> prefetched;
  std::string last = "no table is held by rows";
  const absl::flat_hash_set<VarId> fed = FindUnchangedData(program);
  for (const ServedParameter& served : all) {
    const std::string table(program.name(served.param));
    for (OpId id : served.lookups) {
      const Op op = program.op(id);
      const Symbol ids = op.Input("Ids")[0];
      if (fed.contains(program.block(0).Resolve(ids))) {
        prefetched.insert(id);
        context->sink.Explain(
            ParameterServer::kName, table, "rows prefetched", "the ids of the next batch are fed",
            {{"lookup", op.DebugName()}, {"ids", std::string(program.name(ids))}});
        continue;
      }
      last = absl::StrCat(op.DebugName(), " looks up rows of ", table, " by ", program.name(ids),
                          ", which is not fed as it is");
      context->sink.Note(absl::StrCat("pass ", ParameterServer::kName, ": prefetch_rows: ", last,
                                      ": its rows are not prefetched"));
    }
  }
  if (!prefetched.empty()) return prefetched;
  return absl::FailedPreconditionError(
      absl::StrCat("prefetch_rows: expected a lookup by ids that are fed, found none: ", last));
}

void ExplainServed(const Program& program, const std::vector<ServedParameter>& all,
                   const PassContext* context) {
  for (const ServedParameter& served : all) {
    for (OpId id : served.lookups) {
      const absl::optional<std::string> note = NoteOnEntries(program.op(id));
      if (!note.has_value()) continue;
      context->sink.Note(absl::StrCat("pass ", ParameterServer::kName, ": ", *note));
    }
  }
  if (context->sink.remarks == nullptr) return;
  for (size_t key = 0; key < all.size(); ++key) {
    const ServedParameter& served = all[key];
    context->sink.Explain(
        ParameterServer::kName, std::string(program.name(served.param)), "on servers",
        served.is_table() ? "only lookups read it, so each server has a part of the rows"
                          : "one server has the whole of it",
        {{"key", absl::StrCat(key)}, {"update", program.op(served.update).DebugName()}});
  }
}

}  // namespace

void ParameterServer::Options::Bind(OptionBinder& bind) {
  BindGradientScale(bind, &scale);
  bind.Choice("wait", &wait,
              "servers update a parameter when all workers have sent its gradient, or when they "
              "have sent all gradients",
              {{"per_key", Wait::kPerKey}, {"all_keys", Wait::kAllKeys}});
  bind.Switch("async", &is_async,
              "servers apply each gradient as it arrives, instead of the mean over the workers");
  bind.Parsed("staleness", &staleness, absl::StrCat(kDefaultStaleness),
              "maximum staleness, in steps (with option:async)",
              absl::StrCat("an integer >= 0 and <= ", kMaxStaleness),
              [](absl::string_view text) -> absl::StatusOr<int> {
                int steps = 0;
                if (absl::SimpleAtoi(text, &steps) && steps >= 0 && steps <= kMaxStaleness) {
                  return steps;
                }
                return absl::InvalidArgumentError("no number of steps");
              });
  bind.Switch(
      "prefetch_rows", &prefetch_rows,
      "while a step runs, workers prefetch the rows of tables that the next batch looks up");
  BindOutOfRange(bind, &out_of_range);
}

Contract ParameterServer::contract() const {
  return Contract()
      .ConflictsWith(kGradientsAccumulated)
      .ConflictsWith(kGradientsReduced)
      .ConflictsWith(kParametersAveraged)
      .Provides(kParametersServed);
}

Claims ParameterServer::claims(const PassContext& context) const {
  return Claims::Of(GradientsUnder(options_.scale, context));
}

absl::Status ParameterServer::CheckOptions() const {
  if (options_.staleness.has_value() && !options_.is_async) {
    return absl::InvalidArgumentError(
        "option staleness: expected option async with it: without, servers wait for all workers");
  }
  if (options_.wait == Wait::kAllKeys && options_.is_async) {
    return absl::InvalidArgumentError(
        "option wait: expected per_key with option async, which waits for no other gradient");
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> ParameterServer::Run(const PassContext& context, ProgramPair& programs) const {
  WEFT_RETURN_IF_ERROR(CheckOptions());
  const Program& program = *programs.main;
  WEFT_ASSIGN_OR_RETURN(const std::vector<ServedParameter> served,
                        FindServedParameters(program, context.target.param_attrs));
  if (served.empty()) return false;
  const bool has_table =
      absl::c_any_of(served, [](const ServedParameter& one) { return one.is_table(); });
  if (options_.out_of_range == OutOfRange::kZeros && !has_table) {
    return absl::FailedPreconditionError(
        "out_of_range: expected a table that servers hold by rows, found none: its gradient must "
        "be row-sparse (is_sparse), and lookups alone may read it");
  }
  WEFT_ASSIGN_OR_RETURN(const bool averages, ReductionAverages(options_.scale, program, context));
  WEFT_ASSIGN_OR_RETURN(Program server, ServerWriter(program, served, options_, averages).Write());
  context.sink.AddServer(std::move(server));
  ExplainServed(program, served, &context);
  std::set<OpId> prefetched;
  if (options_.prefetch_rows) {
    WEFT_ASSIGN_OR_RETURN(prefetched, LookupsToPrefetch(program, served, &context));
  }
  Rewriter rewriter(programs.main);
  WorkerWriter(program, served, prefetched, options_.out_of_range, &rewriter).Write();
  return CommitEdits(&rewriter);
}

}  // namespace weft
