#include "executor/worker_port.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "executor/server_wait.h"
#include "ops/schema/server_ops.h"

namespace weft {
namespace {

// Some rows of a tensor that is_rows(), with indices from `begin` on.
Tensor SomeRows(const Tensor& rows, const std::vector<int64_t>& positions, RowRange range) {
  Dims dims = rows.TallDims();
  dims[0] = range.size();
  Tensor some;
  some.ResizeRows(rows.dtype(), dims, static_cast<int64_t>(positions.size()));
  const size_t bytes = rows.row_size() * SizeOf(rows.dtype());
  for (size_t i = 0; i < positions.size(); ++i) {
    some.mutable_rows()[i] = rows.rows()[positions[i]] - range.begin;
    std::memcpy(static_cast<char*>(some.raw()) + i * bytes,
                static_cast<const char*>(rows.raw()) + positions[i] * bytes, bytes);
  }
  return some;
}

int64_t IdAt(const Tensor& ids, int64_t i) {
  return ids.dtype() == DType::kInt32 ? ids.data<int32_t>()[i] : ids.data<int64_t>()[i];
}

}  // namespace

ServerMessage WorkerPort::NewMessage(ServerMessage::Kind kind, int64_t key) const {
  ServerMessage message;
  message.kind = kind;
  message.from = rank_;
  message.key = key;
  message.step = step_;
  return message;
}

absl::Status WorkerPort::End(int64_t step) {
  for (int server = 0; server < group_.num_servers; ++server) {
    ServerMessage end = NewMessage(ServerMessage::Kind::kEnd, 0);
    end.step = step;
    WEFT_RETURN_IF_ERROR(group_.post->Send(group_.RankOf(server), std::move(end)));
  }
  return absl::OkStatus();
}

absl::StatusOr<const ServedKey*> WorkerPort::Served(int64_t key) const {
  const auto found = group_.keys.find(key);
  if (found != group_.keys.end()) return &found->second;
  return absl::InvalidArgumentError(absl::StrCat(
      "attribute ", kServerKeyAttr, ": the servers' program does not serve key ", key));
}

absl::Status WorkerPort::Run(const Plan::PlanOp& op, absl::Span<const Tensor* const> inputs,
                             absl::Span<Tensor* const> outputs) {
  const OpAttrs& attrs = op.kernel_spec.attrs;
  switch (*op.server) {
    case ServerOp::kPrefetch:
      for (int64_t key : attrs.Ints("keys")) WEFT_RETURN_IF_ERROR(Prefetch(key));
      return absl::OkStatus();
    case ServerOp::kPull:
      return Pull(attrs.Int(kServerKeyAttr), outputs[0]);
    case ServerOp::kLookup:
      return Lookup(op, *inputs[0], outputs[0]);
    case ServerOp::kPush: {
      // The gradient first, wherever the program has its slot.
      std::vector<const Tensor*> pushed = {inputs[op.kernel_spec.Input("Grad")]};
      for (const char* slot : {"LearningRate", "Others"}) {
        const auto found = op.kernel_spec.inputs.find(slot);
        if (found == op.kernel_spec.inputs.end()) continue;
        const KernelSpec::Slot& of = found->second;
        for (int i = 0; i < of.count; ++i) pushed.push_back(inputs[of.first + i]);
      }
      return Push(attrs.Int(kServerKeyAttr), pushed);
    }
    default:
      return absl::InvalidArgumentError("expected an op of workers, found one of servers");
  }
}

absl::StatusOr<int64_t> WorkerPort::Ask(int server, ServerMessage pull) {
  pull.request = next_request_++;
  const int64_t request = pull.request;
  WEFT_RETURN_IF_ERROR(group_.post->Send(group_.RankOf(server), std::move(pull)));
  return request;
}

absl::StatusOr<Tensor> WorkerPort::Await(int64_t request, int server, const ServedKey& served) {
  const auto keep = [this](ServerMessage message) -> absl::Status {
    if (message.kind != ServerMessage::Kind::kReply || message.tensors.size() != 1) {
      return absl::InternalError("a worker expected the reply of a server, found another message");
    }
    replies_[message.request] = std::move(message.tensors[0]);
    return absl::OkStatus();
  };
  const auto what = [&] {
    return absl::StrCat("rank ", rank_, " waits for ", served.param, " of rank ",
                        group_.RankOf(server), " (server ", server, "), step ", step_);
  };
  WEFT_RETURN_IF_ERROR(WaitForMessages(
      group_, group_.post->mailbox(rank_), [&] { return replies_.count(request) > 0; }, keep,
      what));
  const auto reply = replies_.find(request);
  Tensor tensor = std::move(reply->second);
  replies_.erase(reply);
  return tensor;
}

absl::Status WorkerPort::Prefetch(int64_t key) {
  WEFT_RETURN_IF_ERROR(Served(key).status());
  WEFT_ASSIGN_OR_RETURN(prefetched_[key], Ask(ServerOfKey(key, group_.num_servers),
                                              NewMessage(ServerMessage::Kind::kPull, key)));
  return absl::OkStatus();
}

absl::Status WorkerPort::Pull(int64_t key, Tensor* out) {
  WEFT_ASSIGN_OR_RETURN(const ServedKey* const served, Served(key));
  if (prefetched_.count(key) == 0) WEFT_RETURN_IF_ERROR(Prefetch(key));
  const int64_t request = prefetched_[key];
  prefetched_.erase(key);
  WEFT_ASSIGN_OR_RETURN(const Tensor value,
                        Await(request, ServerOfKey(key, group_.num_servers), *served));
  out->Resize(value.dtype(), value.dims());
  std::memcpy(out->raw(), value.raw(), value.bytes());
  return absl::OkStatus();
}

absl::Status WorkerPort::Lookup(const Plan::PlanOp& op, const Tensor& ids, Tensor* out) {
  const OpAttrs& attrs = op.kernel_spec.attrs;
  const int64_t key = attrs.Int(kServerKeyAttr);
  WEFT_ASSIGN_OR_RETURN(const ServedKey* const served, Served(key));
  if (!served->by_rows || served->type.dims.size() != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected ", served->param, " as a table that servers hold by rows"));
  }
  if (ids.dtype() != DType::kInt64 && ids.dtype() != DType::kInt32) {
    return absl::InvalidArgumentError(
        absl::StrCat("input Ids: expected int64 or int32, found ", DTypeName(ids.dtype())));
  }
  const int64_t num_rows = served->type.dims[0], padding = attrs.Int("padding_idx");
  // Where each row will be: its server, and its position among what is asked of the server.
  std::vector<std::vector<int64_t>> wanted(group_.num_servers);
  absl::flat_hash_map<int64_t, std::pair<int, int64_t>> places;
  for (int64_t i = 0; i < ids.size(); ++i) {
    const int64_t id = IdAt(ids, i);
    if (id < 0 || id >= num_rows) {
      return absl::InvalidArgumentError(absl::StrCat("input Ids: ", id, " at position ", i,
                                                     " is not in [0, ", num_rows, "), the rows of ",
                                                     served->param));
    }
    if (id == padding) continue;
    const int server = ServerOfRow(id, num_rows, group_.num_servers);
    const auto place = std::make_pair(server, static_cast<int64_t>(wanted[server].size()));
    if (!places.emplace(id, place).second) continue;
    wanted[server].push_back(id - RowsOfServer(num_rows, server, group_.num_servers).begin);
  }
  std::vector<int64_t> requests(group_.num_servers, -1);
  for (int server = 0; server < group_.num_servers; ++server) {
    if (wanted[server].empty()) continue;
    ServerMessage pull = NewMessage(ServerMessage::Kind::kPull, key);
    Tensor& rows = pull.tensors.emplace_back();
    rows.Resize(DType::kInt64, {static_cast<int64_t>(wanted[server].size())});
    std::copy(wanted[server].begin(), wanted[server].end(), rows.data<int64_t>());
    WEFT_ASSIGN_OR_RETURN(requests[server], Ask(server, std::move(pull)));
  }
  std::vector<Tensor> rows(group_.num_servers);
  for (int server = 0; server < group_.num_servers; ++server) {
    if (requests[server] < 0) continue;
    WEFT_ASSIGN_OR_RETURN(rows[server], Await(requests[server], server, *served));
  }
  Dims dims = ids.dims();
  if (attrs.String(kTableOpAttr) == kLookupOfColumns) dims.pop_back();
  dims.push_back(served->type.dims[1]);
  out->Resize(served->type.dtype, dims);
  const size_t bytes = served->type.dims[1] * SizeOf(served->type.dtype);
  for (int64_t i = 0; i < ids.size(); ++i) {
    char* const to = static_cast<char*>(out->raw()) + i * bytes;
    const auto place = places.find(IdAt(ids, i));
    if (place == places.end()) {
      std::memset(to, 0, bytes);
    } else {
      const auto& [server, position] = place->second;
      std::memcpy(to, static_cast<const char*>(rows[server].raw()) + position * bytes, bytes);
    }
  }
  return absl::OkStatus();
}

absl::Status WorkerPort::Push(int64_t key, absl::Span<const Tensor* const> inputs) {
  WEFT_ASSIGN_OR_RETURN(const ServedKey* const served, Served(key));
  ServerMessage push = NewMessage(ServerMessage::Kind::kPush, key);
  const Tensor& grad = *inputs[0];
  // The gradient's memory has another value in the next step.
  for (size_t i = served->by_rows ? 1 : 0; i < inputs.size(); ++i) {
    push.tensors.push_back(inputs[i]->Clone());
  }
  if (served->by_rows) return PushRows(*served, push, grad);
  return group_.post->Send(group_.RankOf(ServerOfKey(key, group_.num_servers)), std::move(push));
}

absl::Status WorkerPort::PushRows(const ServedKey& served, const ServerMessage& message,
                                  const Tensor& grad) {
  const int64_t num_rows = served.type.dims[0];
  if (!grad.is_rows() || grad.height() != num_rows) {
    return absl::InvalidArgumentError(
        absl::StrCat("input Grad: expected rows of ", ToString(served.type), ", found ",
                     grad.is_rows() ? absl::StrCat("height ", grad.height()) : "a dense tensor"));
  }
  std::vector<std::vector<int64_t>> positions(group_.num_servers);
  for (size_t i = 0; i < grad.rows().size(); ++i) {
    const int64_t row = grad.rows()[i];
    if (row < 0) continue;  // no row (RowMerger)
    if (row >= num_rows) {
      return absl::InvalidArgumentError(absl::StrCat("input Grad: row ", row, " at position ", i,
                                                     " is not in [0, ", num_rows, "), the rows of ",
                                                     served.param));
    }
    positions[ServerOfRow(row, num_rows, group_.num_servers)].push_back(i);
  }
  for (int server = 0; server < group_.num_servers; ++server) {
    const RowRange range = RowsOfServer(num_rows, server, group_.num_servers);
    if (range.size() == 0) continue;
    ServerMessage push = message;
    push.tensors.clear();
    for (const Tensor& other : message.tensors) push.tensors.push_back(other.Clone());
    push.has_no_rows = positions[server].empty();
    if (!push.has_no_rows) {
      push.tensors.insert(push.tensors.begin(), SomeRows(grad, positions[server], range));
    }
    WEFT_RETURN_IF_ERROR(group_.post->Send(group_.RankOf(server), std::move(push)));
  }
  return absl::OkStatus();
}

}  // namespace weft
