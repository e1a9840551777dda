#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/server_ops.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"
#include "transpiler/verifier/servers/server_programs.h"

namespace weft {
namespace {

using SlotMessages = google::protobuf::RepeatedPtrField<pb::OpDesc::Var>;
using Names = std::map<std::string, std::string>;

constexpr absl::string_view kOnServer = "@ON_SERVER";

void AddSlot(const std::string& slot, const std::string& variable, SlotMessages* slots) {
  pb::OpDesc::Var* const added = slots->Add();
  added->set_parameter(slot);
  added->add_arguments(variable);
}

void Rename(const Names& names, SlotMessages* slots) {
  for (pb::OpDesc::Var& slot : *slots) {
    for (std::string& argument : *slot.mutable_arguments()) {
      const auto found = names.find(argument);
      if (found != names.end()) argument = found->second;
    }
  }
}

void KeepAttr(const Op& op, absl::string_view name, pb::OpDesc* to) {
  if (const auto attr = op.FindAttr(name); attr.has_value()) *to->add_attrs() = *attr;
}

class Joiner {
 public:
  Joiner(const Program& server, Program* joined)
      : server_(server), program_(*joined), rewriter_(joined) {
    for (OpId id : server.block(0).ops()) {
      const absl::optional<int64_t> key = server.op(id).IntAttr(kServerKeyAttr);
      if (key.has_value()) ops_of_key_[*key].push_back(id);
    }
  }

  absl::Status Join() {
    for (VarId id : server_.block(0).vars()) AddVar(server_.var(id));
    for (OpId id : program_.block(0).ops()) {
      const Op op = program_.op(id);
      const absl::optional<ServerOp> type = FindServerOp(op.type());
      if (type.has_value()) Replace(op, *type);
    }
    return rewriter_.Commit();
  }

 private:
  // Persistable variables are those of the server; its other variables get names of their own.
  void AddVar(const Var& var) {
    pb::VarDesc desc = var.ToProto();
    if (!var.persistable()) {
      desc.set_name(OfServer(var.name()));
      return rewriter_.AddVar(0, desc);
    }
    const VarId there = program_.block(0).FindVar(var.name());
    there.valid() ? rewriter_.ReplaceVar(there, desc) : rewriter_.AddVar(0, desc);
  }

  // No name of a program has it: Paddle writes at signs in names of gradients and the like alone.
  static std::string OfServer(absl::string_view name) { return absl::StrCat(name, kOnServer); }

  void Replace(const Op& op, ServerOp type) {
    switch (type) {
      case ServerOp::kPrefetch:
      case ServerOp::kPull:
        return rewriter_.Erase(op.id());
      case ServerOp::kLookup:
      case ServerOp::kLookupGrad:
        return rewriter_.Replace(op.id(), TableOp(op, type));
      case ServerOp::kPush:
        return ReplacePush(op);
      case ServerOp::kReceive:
      case ServerOp::kServe:
        return;
    }
  }

  const std::vector<OpId>& OpsOf(const Op& op) {
    return ops_of_key_[op.IntAttr(kServerKeyAttr).value_or(-1)];
  }

  std::string ParamOf(const Op& op) {
    for (OpId id : OpsOf(op)) {
      const Op serve = server_.op(id);
      if (FindServerOp(serve.type()) != ServerOp::kServe || serve.Input("X").empty()) continue;
      return std::string(server_.name(serve.Input("X")[0]));
    }
    return "";
  }

  // The op on the whole table.
  pb::OpDesc TableOp(const Op& op, ServerOp type) {
    pb::OpDesc desc = op.ToProto();
    const std::string table_op = op.StringAttr(kTableOpAttr).value_or(std::string(kLookupOfIds));
    desc.set_type(type == ServerOp::kLookup ? table_op : absl::StrCat(table_op, kGradOpSuffix));
    desc.clear_attrs();
    *desc.add_attrs() = MakeAttr("is_sparse", true);
    KeepAttr(op, "padding_idx", &desc);
    KeepAttr(op, "zeros_out_of_range", &desc);
    KeepAttr(op, kOpRoleAttr, &desc);
    KeepAttr(op, kOpRoleVarAttr, &desc);
    AddSlot("W", ParamOf(op), desc.mutable_inputs());
    return desc;
  }

  void ReplacePush(const Op& push) {
    Names names;
    pb::OpDesc merge;
    for (OpId id : OpsOf(push)) {
      const Op op = server_.op(id);
      const absl::optional<ServerOp> type = FindServerOp(op.type());
      if (type == ServerOp::kReceive) {
        // What the server receives besides gradients is what the worker has sent.
        for (const char* slot : {"LearningRate", "Others"}) {
          for (size_t i = 0; i < op.Output(slot).size(); ++i) {
            names[std::string(server_.name(op.Output(slot)[i]))] =
                std::string(program_.name(push.Input(slot)[i]));
          }
        }
        const std::string grad(server_.name(op.Output("Grad")[0]));
        merge = Merge(push, OfServer(grad), op.BoolAttr("averages").value_or(true));
        rewriter_.Replace(push.id(), merge);
      }
      for (Symbol variable : op.args()) {
        const VarId var = server_.block(0).Resolve(variable);
        if (!var.valid() || server_.var(var).persistable()) continue;
        const std::string name(server_.name(variable));
        names.emplace(name, OfServer(name));
      }
      if (type.has_value()) continue;
      pb::OpDesc desc = op.ToProto();
      Rename(names, desc.mutable_inputs());
      Rename(names, desc.mutable_outputs());
      rewriter_.InsertAfter(push.id(), desc);
    }
  }

  pb::OpDesc Merge(const Op& push, const std::string& out, bool averages) const {
    pb::OpDesc merge;
    merge.set_type(std::string(averages ? kMergedByMean : kMergedBySum));
    AddSlot("X", std::string(program_.name(push.Input("Grad")[0])), merge.mutable_inputs());
    AddSlot("Out", out, merge.mutable_outputs());
    *merge.add_attrs() = MakeAttr("ring_id", 0);
    *merge.add_attrs() = MakeAttr("use_calc_stream", true);
    *merge.add_attrs() = MakeAttr(kOpRoleAttr, static_cast<int32_t>(kRoleBackward));
    return merge;
  }

  const Program& server_;
  const Program& program_;
  Rewriter rewriter_;
  std::map<int64_t, std::vector<OpId>> ops_of_key_;
};

}  // namespace

bool IsOnServer(absl::string_view variable) { return absl::EndsWith(variable, kOnServer); }

absl::StatusOr<Program> JoinServers(const Program& worker, const Program& server) {
  Program joined = worker;
  WEFT_RETURN_IF_ERROR(Joiner(server, &joined).Join());
  return joined;
}

absl::StatusOr<Program> JoinStartup(const Program& startup, const Program& server) {
  Program joined = startup;
  Rewriter rewriter(&joined);
  for (const std::string& name : HeldByServers(server)) {
    if (!joined.block(0).FindVar(name).valid()) continue;
    pb::OpDesc broadcast;
    broadcast.set_type(std::string(kGivenToAll));
    AddSlot("X", name, broadcast.mutable_inputs());
    AddSlot("Out", name, broadcast.mutable_outputs());
    *broadcast.add_attrs() = MakeAttr("ring_id", 0);
    *broadcast.add_attrs() = MakeAttr("use_calc_stream", true);
    *broadcast.add_attrs() = MakeAttr(kOpRoleAttr, static_cast<int32_t>(kRoleForward));
    rewriter.Append(0, broadcast);
  }
  WEFT_RETURN_IF_ERROR(rewriter.Commit());
  return joined;
}

}  // namespace weft
