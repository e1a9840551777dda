#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/analysis/core/server_keys.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/server_ops.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"
#include "transpiler/verifier/servers/server_programs.h"

namespace weft {
namespace {

using SlotMessages = google::protobuf::RepeatedPtrField<pb::OpDesc::Var>;

constexpr absl::string_view kOnServer = "@ON_SERVER";

void AddSlot(const std::string& slot, const std::string& variable, SlotMessages* slots) {
  pb::OpDesc::Var* const added = slots->Add();
  added->set_parameter(slot);
  added->add_arguments(variable);
}

void KeepAttr(const Op& op, absl::string_view name, pb::OpDesc* to) {
  if (const auto attr = op.FindAttr(name); attr.has_value()) *to->add_attrs() = *attr;
}

class Joiner {
 public:
  Joiner(const Program& server, Program* joined)
      : server_(server), keys_(FindServerKeys(server)), program_(*joined), rewriter_(joined) {}

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
    desc.set_need_check_feed(false);
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

  const ServerKey& KeyOf(const Op& op) const { return keys_.keys.at(*ServerKeyOf(op)); }

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
    const Op serve = server_.op(KeyOf(op).serve);
    AddSlot("W", std::string(server_.name(serve.Input("X")[0])), desc.mutable_inputs());
    return desc;
  }

  // Only the values of its own key reach an op: CheckKeyValues. So the ops of other keys do not
  // matter, nor does the order of keys.
  void ReplacePush(const Op& push) {
    for (OpId id : KeyOf(push).ops) {
      const Op op = server_.op(id);
      const absl::optional<ServerOp> type = FindServerOp(op.type());
      if (type == ServerOp::kReceive) ReplacePush(push, op);
      if (type.has_value()) continue;
      pb::OpDesc desc = op.ToProto();
      Rename(desc.mutable_inputs());
      Rename(desc.mutable_outputs());
      rewriter_.InsertAfter(push.id(), desc);
    }
  }

  // By what a server receives: the scalars of the first worker, which are those of all.
  void ReplacePush(const Op& push, const Op& receive) {
    const bool averages = receive.BoolAttr("averages").value_or(true);
    pb::OpDesc merge = Copy(averages ? kMergedByMean : kMergedBySum, push.Input("Grad")[0],
                            receive.Output("Grad")[0], kRoleBackward);
    *merge.add_attrs() = MakeAttr("ring_id", 0);
    *merge.add_attrs() = MakeAttr("use_calc_stream", true);
    rewriter_.Replace(push.id(), merge);
    for (absl::string_view slot : kScalarSlots) {
      for (size_t i = 0; i < receive.Output(slot).size(); ++i) {
        rewriter_.InsertAfter(push.id(), Copy(kTakenFromOne, push.Input(slot)[i],
                                              receive.Output(slot)[i], kRoleOptimize));
      }
    }
  }

  pb::OpDesc Copy(absl::string_view type, Symbol pushed, Symbol received, int32_t role) const {
    pb::OpDesc op;
    op.set_type(std::string(type));
    AddSlot("X", std::string(program_.name(pushed)), op.mutable_inputs());
    AddSlot("Out", std::string(server_.name(received)), op.mutable_outputs());
    Rename(op.mutable_outputs());
    *op.add_attrs() = MakeAttr(kOpRoleAttr, role);
    return op;
  }

  // Names of the server's variables become those that AddVar gives them.
  void Rename(SlotMessages* slots) const {
    for (pb::OpDesc::Var& slot : *slots) {
      for (std::string& argument : *slot.mutable_arguments()) {
        const VarId var = server_.block(0).Resolve(argument);
        if (var.valid() && !server_.var(var).persistable()) argument = OfServer(argument);
      }
    }
  }

  const Program& server_;
  const ServerKeys keys_;
  const Program& program_;
  Rewriter rewriter_;
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
