#include "executor/servers/worker_port.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "executor/servers/server_checks.h"
#include "executor/servers/server_wait.h"
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

// What a message is, for the one who reads of an error.
std::string Describe(const ServerMessage& message) {
  std::string text = message.kind == ServerMessage::Kind::kReply     ? "a reply"
                     : message.kind == ServerMessage::Kind::kChanges ? "changed rows"
                                                                     : "another message";
  for (const Tensor& tensor : message.tensors) {
    absl::StrAppend(&text, &tensor == &message.tensors[0] ? " of " : ", ",
                    tensor.is_rows() ? "rows of " : "", DTypeName(tensor.dtype()),
                    DimsToString(tensor.dims()));
  }
  return text;
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

void WorkerPort::BeginStep(int64_t step) {
  step_ = step;
  late_.clear();
  spans_.clear();
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
  return absl::InvalidArgumentError(absl::StrCat("attribute ", kServerKeyAttr,
                                                 ": the servers' program does not serve key ", key,
                                                 kServerProgramsHint));
}

absl::Status WorkerPort::Run(const Plan::PlanOp& op, absl::Span<const Tensor* const> inputs,
                             absl::Span<Tensor* const> outputs) {
  const OpAttrs& attrs = op.kernel_spec.attrs;
  switch (std::get<Plan::ServerWork>(op.work).op) {
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

absl::StatusOr<const ServedKey*> WorkerPort::ServedTable(int64_t key) const {
  WEFT_ASSIGN_OR_RETURN(const ServedKey* const served, Served(key));
  if (served->by_rows && served->type.dims.size() == 2) return served;
  return absl::InvalidArgumentError(absl::StrCat(
      "expected ", served->param, " as a table that servers hold by rows", kServerProgramsHint));
}

absl::Status WorkerPort::Send(int server, ServerTraffic::Count ServerTraffic::*count,
                              ServerMessage message) {
  (traffic_of_servers_[server].*count).Add(message);
  return group_.post->Send(group_.RankOf(server), std::move(message));
}

absl::StatusOr<int64_t> WorkerPort::Ask(int server, ServerMessage message) {
  const int64_t request = message.request = next_request_++;
  requests_[request] = {
      server, message.key, message.kind == ServerMessage::Kind::kPrefetch, {}, {}};
  WEFT_RETURN_IF_ERROR(Send(server, &ServerTraffic::asked, std::move(message)));
  return request;
}

absl::Status WorkerPort::Keep(ServerMessage message) {
  const auto found = requests_.find(message.request);
  Request* const request = found == requests_.end() ? nullptr : &found->second;
  const bool is_changes = message.kind == ServerMessage::Kind::kChanges;
  const bool is_answer = request != nullptr && message.from == group_.RankOf(request->server) &&
                         message.key == request->key &&
                         (is_changes || message.kind == ServerMessage::Kind::kReply);
  if (is_answer && is_changes && request->is_prefetch && !request->changes.has_value()) {
    request->changes = std::move(message);
    return absl::OkStatus();
  }
  if (is_answer && !is_changes && !request->reply.has_value()) {
    request->reply = std::move(message);
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat(
      "expected an answer of a server, found ", Describe(message), " of rank ", message.from,
      " for key ", message.key, ", request ", message.request, ", which does not wait for it"));
}

absl::StatusOr<ServerMessage> WorkerPort::Await(int64_t number,
                                                absl::optional<ServerMessage> Request::*part,
                                                const ServedKey& served) {
  Request& request = requests_.at(number);
  const auto what = [&] {
    return absl::StrCat("rank ", rank_, " waits for ", served.param, " of rank ",
                        group_.RankOf(request.server), " (server ", request.server, "), step ",
                        step_);
  };
  WEFT_RETURN_IF_ERROR(WaitForMessages(
      group_, group_.post->mailbox(rank_), [&] { return (request.*part).has_value(); },
      [this](ServerMessage message) { return Keep(std::move(message)); }, what));
  ServerMessage message = *std::move(request.*part);
  traffic_of_servers_[request.server].pulled.Add(message);
  // The changes come last.
  if (!request.is_prefetch || part == &Request::changes) requests_.erase(number);
  return message;
}

absl::Status WorkerPort::Unexpected(const ServerMessage& message, const ServedKey& served,
                                    const std::string& expected) const {
  return absl::InternalError(absl::StrCat("rank ", message.from, " answers for key ", message.key,
                                          " (", served.param, "): expected ", expected, ", found ",
                                          Describe(message)));
}

absl::StatusOr<ServerMessage> WorkerPort::AwaitTensor(int64_t request, const ServedKey& served,
                                                      const Dims& dims) {
  WEFT_ASSIGN_OR_RETURN(ServerMessage reply, Await(request, &Request::reply, served));
  const bool fits = reply.tensors.size() == 1 && !reply.tensors[0].is_rows() &&
                    reply.tensors[0].dtype() == served.type.dtype &&
                    reply.tensors[0].dims() == dims;
  if (fits) return reply;
  return Unexpected(reply, served, absl::StrCat(DTypeName(served.type.dtype), DimsToString(dims)));
}

absl::Status WorkerPort::Prefetch(int64_t key) {
  WEFT_RETURN_IF_ERROR(Served(key).status());
  WEFT_ASSIGN_OR_RETURN(prefetched_[key], Ask(ServerOfKey(key, group_.num_servers),
                                              NewMessage(ServerMessage::Kind::kPull, key)));
  return absl::OkStatus();
}

absl::Status WorkerPort::Pull(int64_t key, Tensor* out) {
  WEFT_ASSIGN_OR_RETURN(const ServedKey* const served, Served(key));
  if (served->by_rows) {
    return absl::InvalidArgumentError(absl::StrCat("expected ", served->param,
                                                   " as a parameter that a server holds whole",
                                                   kServerProgramsHint));
  }
  if (prefetched_.count(key) == 0) WEFT_RETURN_IF_ERROR(Prefetch(key));
  const int64_t request = prefetched_[key];
  prefetched_.erase(key);
  WEFT_ASSIGN_OR_RETURN(const ServerMessage reply,
                        AwaitTensor(request, *served, served->type.dims));
  const Tensor& value = reply.tensors[0];
  out->Resize(value.dtype(), value.dims());
  std::memcpy(out->raw(), value.raw(), value.bytes());
  return absl::OkStatus();
}

absl::Status WorkerPort::Lookup(const Plan::PlanOp& op, const Tensor& ids, Tensor* out) {
  const OpAttrs& attrs = op.kernel_spec.attrs;
  const int64_t key = attrs.Int(kServerKeyAttr), padding = attrs.Int("padding_idx");
  WEFT_ASSIGN_OR_RETURN(const ServedKey* const table, ServedTable(key));
  WEFT_RETURN_IF_ERROR(CheckIds(*table, ids, attrs.Bool("zeros_out_of_range")));
  Asked asked;
  std::vector<Tensor> rows;
  if (const auto prefetched = prefetched_rows_.find(&op); prefetched != prefetched_rows_.end()) {
    asked = std::move(prefetched->second);
    prefetched_rows_.erase(prefetched);
    WEFT_ASSIGN_OR_RETURN(rows, AwaitPrefetched(op, asked, *table));
  } else {
    WEFT_ASSIGN_OR_RETURN(asked,
                          AskForRows(ServerMessage::Kind::kPull, key, step_,
                                     FindWantedRows(*table, ids, padding, group_.num_servers)));
    WEFT_ASSIGN_OR_RETURN(rows, AwaitRows(asked, *table));
    traffic_.pulled += asked.wanted.size();
    for (const Tensor& of_server : rows) {
      if (of_server.allocated()) traffic_.waited_bytes += static_cast<int64_t>(of_server.bytes());
    }
  }
  Dims dims = ids.dims();
  if (attrs.String(kTableOpAttr) == kLookupOfColumns) dims.pop_back();
  dims.push_back(table->type.dims[1]);
  out->Resize(table->type.dtype, dims);
  WEFT_RETURN_IF_ERROR(CopyWantedRows(*table, asked.wanted, rows, ids, padding, out));
  if (!attrs.Bool(kPrefetchAttr)) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const bool has_prefetched, PrefetchNext(op, *table));
  if (!has_prefetched) late_.push_back(&op);
  return absl::OkStatus();
}

absl::StatusOr<bool> WorkerPort::PrefetchNext(const Plan::PlanOp& op, const ServedKey& table) {
  const OpAttrs& attrs = op.kernel_spec.attrs;
  absl::StatusOr<absl::optional<Tensor>> ids = next_feed_(step_ + 1, op.inputs[0]);
  if (!ids.ok()) {
    return absl::Status(
        ids.status().code(),
        absl::StrCat("attribute ", kPrefetchAttr, ": expected fed Ids: ", ids.status().message()));
  }
  if (!ids->has_value()) return false;
  // The next step says what is wrong with its ids.
  WEFT_ASSIGN_OR_RETURN(
      prefetched_rows_[&op],
      AskForRows(ServerMessage::Kind::kPrefetch, attrs.Int(kServerKeyAttr), step_ + 1,
                 FindWantedRows(table, **ids, attrs.Int("padding_idx"), group_.num_servers)));
  return true;
}

absl::Status WorkerPort::PrefetchLate() {
  std::vector<const Plan::PlanOp*> late;
  late.swap(late_);
  for (const Plan::PlanOp* op : late) {
    WEFT_ASSIGN_OR_RETURN(const ServedKey* const table,
                          ServedTable(op->kernel_spec.attrs.Int(kServerKeyAttr)));
    WEFT_ASSIGN_OR_RETURN(const bool has_prefetched, PrefetchNext(*op, *table));
    if (!has_prefetched) late_.push_back(op);
  }
  return absl::OkStatus();
}

absl::StatusOr<WorkerPort::Asked> WorkerPort::AskForRows(ServerMessage::Kind kind, int64_t key,
                                                         int64_t step, WantedRows wanted) {
  Asked asked;
  asked.step = step;
  asked.wanted = std::move(wanted);
  asked.requests.resize(group_.num_servers, -1);
  asked.begin = std::chrono::steady_clock::now();
  for (int server = 0; server < group_.num_servers; ++server) {
    const std::vector<int64_t>& rows = asked.wanted.of_server[server];
    if (rows.empty()) continue;
    ServerMessage message = NewMessage(kind, key);
    message.step = step;
    Tensor& numbers = message.tensors.emplace_back();
    numbers.Resize(DType::kInt64, {static_cast<int64_t>(rows.size())});
    std::copy(rows.begin(), rows.end(), numbers.data<int64_t>());
    WEFT_ASSIGN_OR_RETURN(asked.requests[server], Ask(server, std::move(message)));
  }
  return asked;
}

absl::StatusOr<std::vector<Tensor>> WorkerPort::AwaitRows(const Asked& asked,
                                                          const ServedKey& table) {
  std::vector<Tensor> rows(group_.num_servers);
  for (int server = 0; server < group_.num_servers; ++server) {
    if (asked.requests[server] < 0) continue;
    const auto count = static_cast<int64_t>(asked.wanted.of_server[server].size());
    WEFT_ASSIGN_OR_RETURN(ServerMessage reply,
                          AwaitTensor(asked.requests[server], table, {count, table.type.dims[1]}));
    rows[server] = std::move(reply.tensors[0]);
  }
  return rows;
}

absl::StatusOr<std::vector<Tensor>> WorkerPort::AwaitPrefetched(const Plan::PlanOp& op,
                                                                const Asked& asked,
                                                                const ServedKey& table) {
  if (asked.step != step_) {
    return absl::InternalError(absl::StrCat("expected ", op.name, " in step ", asked.step,
                                            ", for which it has prefetched rows"));
  }
  PrefetchSpan span{table.param, asked.wanted.size(), 0, asked.begin, asked.begin};
  std::vector<Tensor> rows(group_.num_servers);
  for (int server = 0; server < group_.num_servers; ++server) {
    const int64_t request = asked.requests[server];
    if (request < 0) continue;
    const auto count = static_cast<int64_t>(asked.wanted.of_server[server].size());
    WEFT_ASSIGN_OR_RETURN(ServerMessage reply,
                          AwaitTensor(request, table, {count, table.type.dims[1]}));
    span.end = std::max(span.end, reply.arrival);
    rows[server] = std::move(reply.tensors[0]);
    WEFT_ASSIGN_OR_RETURN(const ServerMessage changes, Await(request, &Request::changes, table));
    WEFT_ASSIGN_OR_RETURN(const int64_t changed, ApplyChanges(changes, table, &rows[server]));
    span.changed += changed;
  }
  traffic_.prefetched += span.rows;
  traffic_.changed += span.changed;
  traffic_.waited_bytes +=
      span.changed * table.type.dims[1] * static_cast<int64_t>(SizeOf(table.type.dtype));
  spans_.push_back(std::move(span));
  return rows;
}

absl::StatusOr<int64_t> WorkerPort::ApplyChanges(const ServerMessage& changes,
                                                 const ServedKey& table, Tensor* rows) const {
  if (changes.tensors.empty()) return 0;
  const Tensor& positions = changes.tensors[0];
  const int64_t count = positions.size(), columns = table.type.dims[1];
  const bool fits = changes.tensors.size() == 2 && positions.dtype() == DType::kInt64 &&
                    !positions.is_rows() && positions.rank() == 1 &&
                    !changes.tensors[1].is_rows() &&
                    changes.tensors[1].dtype() == table.type.dtype &&
                    changes.tensors[1].dims() == Dims{count, columns};
  if (!fits) {
    return Unexpected(changes, table,
                      absl::StrCat("positions, and as many rows of ", ToString(table.type)));
  }
  const size_t row_bytes = columns * SizeOf(table.type.dtype);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t position = positions.data<int64_t>()[i];
    if (position < 0 || position >= rows->dim(0)) {
      return Unexpected(changes, table,
                        absl::StrCat("a position below ", rows->dim(0), " instead of ", position));
    }
    std::memcpy(static_cast<char*>(rows->raw()) + position * row_bytes,
                static_cast<const char*>(changes.tensors[1].raw()) + i * row_bytes, row_bytes);
  }
  return count;
}

absl::Status WorkerPort::Push(int64_t key, absl::Span<const Tensor* const> inputs) {
  WEFT_ASSIGN_OR_RETURN(const ServedKey* const served, Served(key));
  WEFT_RETURN_IF_ERROR(PrefetchLate());
  ServerMessage push = NewMessage(ServerMessage::Kind::kPush, key);
  const Tensor& grad = *inputs[0];
  // The gradient's memory has another value in the next step.
  for (size_t i = served->by_rows ? 1 : 0; i < inputs.size(); ++i) {
    push.tensors.push_back(inputs[i]->Clone());
  }
  if (served->by_rows) return PushRows(*served, push, grad);
  return Send(ServerOfKey(key, group_.num_servers), &ServerTraffic::pushed, std::move(push));
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
    WEFT_RETURN_IF_ERROR(Send(server, &ServerTraffic::pushed, std::move(push)));
  }
  return absl::OkStatus();
}

}  // namespace weft
