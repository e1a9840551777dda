#include "tools/inspect/server_stats.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "executor/servers/server_part.h"
#include "ops/schema/server_ops.h"
#include "ops/schema/tensor_type.h"
#include "proto/all_ops.h"

namespace weft {
namespace {

constexpr int64_t kRowNumberBytes = sizeof(int64_t);

absl::optional<TensorType> TypeOf(const Op& op, const Program& program, Symbol variable) {
  const VarId id = variable.valid() ? program.block(op.block()).Resolve(variable) : VarId();
  return id.valid() ? DeclaredType(program.var(id)) : absl::nullopt;
}

// -1: not known.
int64_t BytesOf(const absl::optional<TensorType>& type) {
  if (!type.has_value() || NumElements(type->dims) < 0) return -1;
  return NumElements(type->dims) * static_cast<int64_t>(SizeOf(type->dtype));
}

int64_t RowBytes(const TensorType& type) {
  int64_t elements = 1;
  for (size_t i = 1; i < type.dims.size(); ++i) elements *= std::max<int64_t>(type.dims[i], 0);
  return elements * static_cast<int64_t>(SizeOf(type.dtype));
}

// Bytes of tensors, and how many are of unknown size.
struct Sum {
  int64_t bytes = 0, unknown = 0;
  void Add(const absl::optional<TensorType>& type) {
    const int64_t of_one = BytesOf(type);
    of_one < 0 ? ++unknown : bytes += of_one;
  }
};

class Predictor {
 public:
  Predictor(const Program& program, int64_t batch) : program_(program), batch_(batch) {}

  std::map<int64_t, KeyTraffic> Predict() {
    for (const Op& op : BlockOps(program_, 0)) {
      const absl::optional<ServerOp> type = FindServerOp(op.type());
      if (!type.has_value()) continue;
      const int64_t key = op.IntAttr(kServerKeyAttr).value_or(0);
      if (*type == ServerOp::kPull) AddPull(op, &keys_[key]);
      if (*type == ServerOp::kLookup) AddLookup(op, &keys_[key]);
      if (*type == ServerOp::kLookupGrad) AddRows(op, &keys_[key].most_pushed_rows);
      if (*type == ServerOp::kPush) AddPush(op, &keys_[key]);
    }
    // A lookup asks for each row once; a gradient may have a row several times.
    for (auto& [key, traffic] : keys_) {
      const int64_t all = traffic.table_rows * lookups_[key];
      traffic.most_pulled_rows = std::min(traffic.most_pulled_rows, all);
    }
    return std::move(keys_);
  }

 private:
  void AddPull(const Op& op, KeyTraffic* traffic) {
    Sum sum;
    for (Symbol out : op.Output("Out")) {
      traffic->param = std::string(program_.name(out));
      sum.Add(TypeOf(op, program_, out));
    }
    ++traffic->pulls;
    traffic->pulled_bytes += sum.bytes;
    traffic->unknown += sum.unknown;
  }

  void AddLookup(const Op& op, KeyTraffic* traffic) {
    const std::vector<int64_t> shape = op.IntsAttr("shape").value_or(std::vector<int64_t>());
    const absl::optional<DType> dtype = DTypeFromProto(
        static_cast<int>(op.IntAttr("dtype").value_or(static_cast<int64_t>(pb::VarType::FP32))));
    if (shape.empty() || !dtype.has_value()) return;
    traffic->is_table = true;
    traffic->table_rows = shape[0];
    traffic->asked_row_bytes = kRowNumberBytes;
    traffic->pulled_row_bytes = RowBytes({*dtype, Dims(shape.begin(), shape.end())});
    traffic->is_prefetched |= op.BoolAttr(kPrefetchAttr).value_or(false);
    ++lookups_[op.IntAttr(kServerKeyAttr).value_or(0)];
    AddRows(op, &traffic->most_pulled_rows);
  }

  // As many as the op has ids.
  void AddRows(const Op& op, int64_t* most) const {
    for (Symbol ids : op.Input("Ids")) {
      absl::optional<TensorType> type = TypeOf(op, program_, ids);
      if (type.has_value() && !type->dims.empty() && type->dims[0] == -1) type->dims[0] = batch_;
      const int64_t count = type.has_value() ? NumElements(type->dims) : -1;
      *most = *most < 0 || count < 0 ? -1 : *most + count;
    }
  }

  void AddPush(const Op& op, KeyTraffic* traffic) {
    absl::optional<TensorType> grad;
    for (Symbol variable : op.Input("Grad")) {
      grad = TypeOf(op, program_, variable);
      if (!traffic->param.empty()) continue;
      traffic->param = std::string(absl::StripSuffix(program_.name(variable), "@GRAD"));
    }
    Sum others;
    for (absl::string_view slot : kScalarSlots) {
      for (Symbol variable : op.Input(slot)) others.Add(TypeOf(op, program_, variable));
    }
    traffic->unknown += others.unknown;
    ++traffic->pushes;
    if (grad.has_value() && grad->kind == TensorType::Kind::kSelectedRows) {
      traffic->is_table = true;
      traffic->table_rows = std::max<int64_t>(traffic->table_rows, grad->dims[0]);
      traffic->pushed_row_bytes = kRowNumberBytes + RowBytes(*grad);
      traffic->pushed_to_each_bytes += others.bytes;
      return;
    }
    Sum sum;
    sum.Add(grad);
    traffic->unknown += sum.unknown;
    traffic->pushed_bytes += sum.bytes + others.bytes;
  }

  const Program& program_;
  const int64_t batch_;
  std::map<int64_t, KeyTraffic> keys_;
  std::map<int64_t, int64_t> lookups_;  // by key
};

std::string AtMost(int64_t rows) {
  return rows < 0 ? "an unknown number" : absl::StrCat("at most ", rows);
}

std::string KeyText(const KeyTraffic& traffic) {
  std::string text;
  if (!traffic.is_table) {
    text = absl::StrFormat("pulled %d bytes, pushed %d bytes", traffic.pulled_bytes,
                           traffic.pushed_bytes);
  } else {
    text = absl::StrFormat(
        "a table of %d rows: of each row asked %d bytes, pulled %d bytes, pushed %d bytes; pulled "
        "%s, pushed %s; with a push, each server gets %d bytes",
        traffic.table_rows, traffic.asked_row_bytes, traffic.pulled_row_bytes,
        traffic.pushed_row_bytes, AtMost(traffic.most_pulled_rows),
        AtMost(traffic.most_pushed_rows), traffic.pushed_to_each_bytes);
    if (traffic.is_prefetched) absl::StrAppend(&text, "; prefetched rows that change come twice");
  }
  if (traffic.unknown > 0) {
    absl::StrAppend(&text, "; not counted: ", traffic.unknown, " tensors of unknown size");
  }
  return text;
}

// Of keys that servers hold whole.
struct Share {
  int64_t pulls = 0, pulled = 0, pushes = 0, pushed = 0;
  std::vector<int64_t> keys;

  void Add(int64_t key, const KeyTraffic& traffic) {
    pulls += traffic.pulls;
    pulled += traffic.pulled_bytes;
    pushes += traffic.pushes;
    pushed += traffic.pushed_bytes;
    keys.push_back(key);
  }
  std::string Text() const {
    return absl::StrFormat("pulled %d bytes in %d messages, pushed %d bytes in %d messages", pulled,
                           pulls, pushed, pushes);
  }
};

}  // namespace

std::map<int64_t, KeyTraffic> PredictServerTraffic(const Program& worker, int64_t batch) {
  return Predictor(worker, batch).Predict();
}

std::string ServerTrafficText(const std::map<int64_t, KeyTraffic>& keys, int num_servers) {
  if (keys.empty()) return "";
  std::string text = "parameter servers: what a worker exchanges with them in a step\n";
  Share all;
  std::vector<Share> shares(num_servers);
  for (const auto& [key, traffic] : keys) {
    absl::StrAppendFormat(&text, "  key %d  %-20s %s\n", key, traffic.param, KeyText(traffic));
    if (traffic.is_table) continue;
    all.Add(key, traffic);
    if (num_servers > 0) shares[ServerOfKey(key, num_servers)].Add(key, traffic);
  }
  absl::StrAppend(&text, "  all but tables: ", all.Text(), "\n");
  for (int server = 0; server < num_servers; ++server) {
    const Share& share = shares[server];
    absl::StrAppendFormat(&text, "  server %d: %s", server, share.Text());
    if (!share.keys.empty()) absl::StrAppend(&text, ", keys ", absl::StrJoin(share.keys, ", "));
    for (const auto& [key, traffic] : keys) {
      if (!traffic.is_table) continue;
      const RowRange rows = RowsOfServer(traffic.table_rows, server, num_servers);
      absl::StrAppendFormat(&text, "; %d rows of key %d", rows.size(), key);
    }
    text += "\n";
  }
  return text;
}

absl::StatusOr<std::vector<ServedBytes>> PredictServedBytes(const Program& server,
                                                            int num_servers) {
  WEFT_ASSIGN_OR_RETURN(const ServedKeys keys, FindServedKeys(server));
  std::set<std::string> params;
  for (const auto& [key, served] : keys) params.insert(served.param);
  std::vector<ServedBytes> all;
  for (int index = 0; index < num_servers; ++index) {
    WEFT_ASSIGN_OR_RETURN(const ServerPart part, PartOfServer(server, index, num_servers));
    const Program& program = part.program;
    Sum parameters, state, push, row;
    ServedBytes& bytes = all.emplace_back();
    for (VarId id : program.block(0).vars()) {
      const Var var = program.var(id);
      if (!var.persistable()) continue;
      const bool is_param = params.count(std::string(var.name())) > 0;
      (is_param ? parameters : state).Add(DeclaredType(var));
    }
    for (const Op& op : BlockOps(program, 0)) {
      if (FindServerOp(op.type()) != ServerOp::kReceive) continue;
      for (Symbol variable : op.output_args()) {
        const absl::optional<TensorType> type = TypeOf(op, program, variable);
        if (type.has_value() && type->kind == TensorType::Kind::kSelectedRows) {
          ++bytes.row_tables;
          bytes.push_of_row += kRowNumberBytes + RowBytes(*type);
        } else {
          push.Add(type);
        }
      }
    }
    bytes.parameters = parameters.bytes;
    bytes.state = state.bytes;
    bytes.push = push.bytes;
  }
  return all;
}

std::string ServedBytesText(const std::vector<ServedBytes>& servers) {
  std::string text;
  for (size_t i = 0; i < servers.size(); ++i) {
    const ServedBytes& bytes = servers[i];
    absl::StrAppendFormat(
        &text,
        "server %d of %d keeps %d bytes of parameters, %d of optimizer state; the pushes of a "
        "worker take %d bytes until they are merged",
        i, servers.size(), bytes.parameters, bytes.state, bytes.push);
    if (bytes.row_tables > 0) {
      absl::StrAppendFormat(&text, ", and %d for a row of each of %d table%s", bytes.push_of_row,
                            bytes.row_tables, bytes.row_tables == 1 ? "" : "s");
    }
    text += "\n";
  }
  return text;
}

}  // namespace weft
