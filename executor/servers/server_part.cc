#include "executor/servers/server_part.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "ops/analysis/core/communication.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/analysis/core/server_keys.h"
#include "ops/schema/server_ops.h"
#include "proto/all_ops.h"
#include "proto/rewriter.h"

namespace weft {
namespace {

constexpr char kShape[] = "shape";

// Keeps the ops on the keys of one server.
class PartMaker {
 public:
  PartMaker(const ServedKeys& keys, int index, int num_servers, Program* program)
      : keys_(keys),
        index_(index),
        num_servers_(num_servers),
        program_(*program),
        rewriter_(program) {}

  absl::StatusOr<std::map<std::string, RowRange>> Make() {
    const ServerKeys ops = FindServerKeys(program_);
    if (!ops.strays.empty()) {
      const ServerKeys::Stray& stray = ops.strays[0];
      return absl::InvalidArgumentError(
          absl::StrCat(program_.op(stray.op).DebugName(), ": expected ", stray.expected));
    }
    for (const auto& [key, of] : ops.keys) {
      const ServedKey& served = keys_.at(key);
      const bool is_here = IsHere(key, served);
      for (OpId id : of.ops) is_here ? KeepOp(program_.op(id), served) : rewriter_.Erase(id);
    }
    if (kept_.empty()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "server ", index_, " of ", num_servers_,
          " would hold nothing: expected no more servers than parameters that are held "
          "whole, or than rows of a table"));
    }
    for (VarId id : program_.block(0).vars()) {
      if (kept_.count(program_.var(id).name_symbol()) == 0) rewriter_.EraseVar(id);
    }
    WEFT_RETURN_IF_ERROR(rewriter_.Commit());
    return std::move(rows_);
  }

 private:
  bool IsHere(int64_t key, const ServedKey& served) const {
    if (!served.by_rows) return ServerOfKey(key, num_servers_) == index_;
    return RowsOfServer(served.type.dims[0], index_, num_servers_).size() > 0;
  }

  void KeepOp(const Op& op, const ServedKey& served) {
    for (Symbol variable : op.args()) {
      const VarId id = program_.block(0).Resolve(variable);
      if (!id.valid() || !kept_.insert(variable).second || !served.by_rows) continue;
      CutVariable(program_.var(id), served);
    }
    if (!served.by_rows || FindServerOp(op.type()) != ServerOp::kReceive) return;
    pb::OpDesc receive = op.ToProto();
    for (pb::OpDesc::Attr& attr : *receive.mutable_attrs()) {
      if (attr.name() == kShape && attr.longs_size() > 0) {
        attr.set_longs(0, RowsOfServer(served.type.dims[0], index_, num_servers_).size());
      }
    }
    rewriter_.Replace(op.id(), receive);
  }

  // The parameter, its gradient, and state of its dimensions.
  void CutVariable(const Var& var, const ServedKey& served) {
    const absl::optional<TensorType> type = DeclaredType(var);
    if (!type.has_value() || type->dims != served.type.dims) return;
    const RowRange rows = RowsOfServer(served.type.dims[0], index_, num_servers_);
    pb::VarDesc desc = var.ToProto();
    pb::VarType::TensorDesc* const tensor =
        var.type() == pb::VarType::SELECTED_ROWS
            ? desc.mutable_type()->mutable_selected_rows()
            : desc.mutable_type()->mutable_lod_tensor()->mutable_tensor();
    tensor->set_dims(0, rows.size());
    rewriter_.ReplaceVar(var.id(), desc);
    if (var.persistable()) rows_[std::string(var.name())] = rows;
  }

  const ServedKeys& keys_;
  const int index_, num_servers_;
  Program& program_;
  Rewriter rewriter_;
  std::set<Symbol> kept_;
  std::map<std::string, RowRange> rows_;
};

}  // namespace

namespace {

// A server runs its program for all workers at once, or for one worker at a time.
absl::Status CheckAllWaitAlike(const Program& server) {
  absl::optional<bool> is_async;
  for (const Op& op : BlockOps(server, 0)) {
    const absl::optional<ServerOp> type = FindServerOp(op.type());
    if (type != ServerOp::kReceive && type != ServerOp::kServe) continue;
    const bool here = op.BoolAttr("is_async").value_or(false);
    if (!is_async.has_value()) is_async = here;
    if (here == *is_async) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(op.DebugName(), " attribute is_async: expected ", *is_async ? "true" : "false",
                     " as in the ops before it, found ", here ? "true" : "false"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ServedKeys> FindServedKeys(const Program& server) {
  WEFT_RETURN_IF_ERROR(CheckAllWaitAlike(server));
  ServedKeys keys;
  for (const auto& [number, of] : FindServerKeys(server).keys) {
    const Op op = server.op(of.serve);
    if (number < 0) {
      return absl::InvalidArgumentError(absl::StrCat(op.DebugName(), " attribute ", kServerKeyAttr,
                                                     ": expected a key of 0 or more, found ",
                                                     number));
    }
    for (OpId id : of.repeated) {
      const Op again = server.op(id);
      if (FindServerOp(again.type()) != ServerOp::kServe) continue;
      return absl::InvalidArgumentError(absl::StrCat(again.DebugName(), ": serves key ", number,
                                                     ", which another op serves, too"));
    }
    const absl::Span<const Symbol> param = op.Input("X");
    const VarId var = param.empty() ? VarId() : server.block(0).Resolve(param[0]);
    const absl::optional<TensorType> type =
        var.valid() ? DeclaredType(server.var(var)) : absl::nullopt;
    if (!type.has_value() || NumElements(type->dims) < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(op.DebugName(), " input X: expected a tensor of known dimensions in ",
                       param.empty() ? "a variable" : server.name(param[0])));
    }
    ServedKey key;
    key.param = std::string(server.name(param[0]));
    key.type = *type;
    key.by_rows = op.BoolAttr("by_rows").value_or(false) && !type->dims.empty();
    key.is_async = op.BoolAttr("is_async").value_or(false);
    key.staleness = op.IntAttr("staleness").value_or(0);
    keys.emplace(number, std::move(key));
  }
  return keys;
}

RowRange RowsOfServer(int64_t rows, int server, int num_servers) {
  const int64_t each = rows / num_servers, more = rows % num_servers;
  const int64_t begin = server * each + std::min<int64_t>(server, more);
  return {begin, begin + each + (server < more ? 1 : 0)};
}

int ServerOfRow(int64_t row, int64_t rows, int num_servers) {
  const int64_t each = rows / num_servers, more = rows % num_servers;
  const int64_t in_larger = more * (each + 1);
  if (row < in_larger) return static_cast<int>(row / (each + 1));
  return static_cast<int>(more + (row - in_larger) / each);
}

int ServerOfKey(int64_t key, int num_servers) { return static_cast<int>(key % num_servers); }

absl::StatusOr<ServerPart> PartOfServer(const Program& server, int index, int num_servers) {
  WEFT_ASSIGN_OR_RETURN(const ServedKeys keys, FindServedKeys(server));
  ServerPart part{server, {}};
  WEFT_ASSIGN_OR_RETURN(part.rows, PartMaker(keys, index, num_servers, &part.program).Make());
  // A plan has the erased variables of a program, too.
  WEFT_ASSIGN_OR_RETURN(part.program, Program::Parse(part.program.Serialize()));
  return part;
}

absl::StatusOr<Program> WithoutCommunication(const Program& startup) {
  Program program = startup;
  Communications communications(startup);
  OpTraits traits(startup);
  Rewriter rewriter(&program);
  for (const Op& op : BlockOps(startup, 0)) {
    if (communications.Of(op) != Communication::kNone || traits.Has(op, Trait::kRingSetup) ||
        traits.Has(op, Trait::kStreamSync)) {
      rewriter.Erase(op.id());
    }
  }
  if (!rewriter.empty()) WEFT_RETURN_IF_ERROR(rewriter.Commit());
  return program;
}

}  // namespace weft
