#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "executor/gpu/nccl_group.h"

namespace weft {
namespace {

absl::StatusOr<nccl::DataType> TypeOf(DType dtype) {
  static constexpr std::pair<DType, nccl::DataType> kTypes[] = {
      {DType::kInt8, nccl::kInt8},       {DType::kUint8, nccl::kUint8},
      {DType::kInt32, nccl::kInt32},     {DType::kInt64, nccl::kInt64},
      {DType::kFloat16, nccl::kFloat16}, {DType::kBFloat16, nccl::kBfloat16},
      {DType::kFloat32, nccl::kFloat32}, {DType::kFloat64, nccl::kFloat64},
  };
  for (const auto& [known, type] : kTypes) {
    if (known == dtype) return type;
  }
  return absl::UnimplementedError(absl::StrCat("NCCL has no element type ", DTypeName(dtype)));
}

nccl::RedOp OperationOf(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return nccl::kSum;
    case Reduction::kMax:
      return nccl::kMax;
    case Reduction::kMin:
      return nccl::kMin;
    case Reduction::kProd:
      return nccl::kProd;
    case Reduction::kAvg:
      return nccl::kAvg;
  }
  return nccl::kSum;
}

}  // namespace

absl::Status NcclCommunicator::Enqueue(const CollectiveCall& call, const void* in, void* out) {
  const CollectiveDesc& desc = call.desc;
  WEFT_RETURN_IF_ERROR(CheckRanks(desc));
  WEFT_ASSIGN_OR_RETURN(const nccl::DataType type, TypeOf(desc.dtype));
  const nccl::RedOp operation = OperationOf(desc.reduction);
  const auto count = static_cast<size_t>(desc.count);
  const NcclLibrary& nccl = library();
  switch (desc.kind) {
    case CollectiveKind::kAllReduce:
      return nccl.StatusOf(nccl.AllReduce(in, out, count, type, operation, comm_, call.stream),
                           "ncclAllReduce");
    case CollectiveKind::kReduce:
      return Reduce(call, in, out, type, operation);
    case CollectiveKind::kReduceScatter:
      return nccl.StatusOf(
          nccl.ReduceScatter(in, out, count / nranks_, type, operation, comm_, call.stream),
          "ncclReduceScatter");
    case CollectiveKind::kAllGather:
      return nccl.StatusOf(nccl.AllGather(in, out, count, type, comm_, call.stream),
                           "ncclAllGather");
    case CollectiveKind::kBroadcast:
      return nccl.StatusOf(nccl.Broadcast(in, out, count, type, desc.root, comm_, call.stream),
                           "ncclBroadcast");
    case CollectiveKind::kAllToAll:
      return AllToAll(call, in, out, type);
    case CollectiveKind::kSend:
      return SendOne(call, in, out, type);
  }
  return absl::InternalError("no such collective");
}

absl::Status NcclCommunicator::CheckRanks(const CollectiveDesc& desc) const {
  if (HasRoot(desc.kind) && (desc.root < 0 || desc.root >= nranks_)) {
    return absl::InvalidArgumentError(
        absl::StrCat("root ", desc.root, ": expected 0 to ", nranks_ - 1));
  }
  if (desc.kind == CollectiveKind::kSend && (desc.peer < 0 || desc.peer >= nranks_)) {
    return absl::InvalidArgumentError(
        absl::StrCat("peer ", desc.peer, ": expected 0 to ", nranks_ - 1));
  }
  if (SplitsInput(desc.kind) && desc.count % nranks_ != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(desc.count, " elements cannot be split evenly over ", nranks_, " ranks"));
  }
  return absl::OkStatus();
}

absl::Status NcclCommunicator::Reduce(const CollectiveCall& call, const void* in, void* out,
                                      nccl::DataType type, nccl::RedOp operation) {
  const CollectiveDesc& desc = call.desc;
  if (rank_ != desc.root) {
    WEFT_RETURN_IF_ERROR(gpu().Copy(in, desc.count * SizeOf(desc.dtype), out, call.stream));
  }
  return library().StatusOf(library().Reduce(in, out, static_cast<size_t>(desc.count), type,
                                             operation, desc.root, comm_, call.stream),
                            "ncclReduce");
}

absl::Status NcclCommunicator::AllToAll(const CollectiveCall& call, const void* in, void* out,
                                        nccl::DataType type) {
  const auto share = static_cast<size_t>(call.desc.count / nranks_);
  const size_t bytes = share * SizeOf(call.desc.dtype);
  const NcclLibrary& nccl = library();
  WEFT_RETURN_IF_ERROR(nccl.StatusOf(nccl.GroupStart(), "ncclGroupStart"));
  absl::Status status;
  for (int r = 0; r < nranks_ && status.ok(); ++r) {
    const char* const mine = static_cast<const char*>(in) + r * bytes;
    status = nccl.StatusOf(nccl.Send(mine, share, type, r, comm_, call.stream), "ncclSend");
    if (!status.ok()) break;
    char* const theirs = static_cast<char*>(out) + r * bytes;
    status = nccl.StatusOf(nccl.Recv(theirs, share, type, r, comm_, call.stream), "ncclRecv");
  }
  status.Update(nccl.StatusOf(nccl.GroupEnd(), "ncclGroupEnd"));
  return status;
}

absl::Status NcclCommunicator::SendOne(const CollectiveCall& call, const void* in, void* out,
                                       nccl::DataType type) {
  const CollectiveDesc& desc = call.desc;
  const auto count = static_cast<size_t>(desc.count);
  const NcclLibrary& nccl = library();
  if (desc.root == desc.peer) {
    return rank_ != desc.root ? absl::OkStatus()
                              : gpu().Copy(in, count * SizeOf(desc.dtype), out, call.stream);
  }
  if (rank_ == desc.root) {
    return nccl.StatusOf(nccl.Send(in, count, type, desc.peer, comm_, call.stream), "ncclSend");
  }
  if (rank_ != desc.peer) return absl::OkStatus();
  return nccl.StatusOf(nccl.Recv(out, count, type, desc.root, comm_, call.stream), "ncclRecv");
}

absl::StatusOr<PendingCall> NcclCommunicator::NewCall() {
  PendingCall call;
  if (!unused_.empty()) {
    call = std::move(unused_.front());
    unused_.pop_front();
  } else {
    WEFT_ASSIGN_OR_RETURN(call.begin, gpu().NewMark());
    WEFT_ASSIGN_OR_RETURN(call.end, gpu().NewMark());
  }
  call.has_begun = call.was_reported = false;
  return call;
}

std::string NcclCommunicator::TextOf(absl::string_view op, const CollectiveDesc& desc,
                                     int64_t number, absl::string_view variable,
                                     const Dims& dims) const {
  return absl::StrCat(op, ": ", ToString(ring_), ", ",
                      DescribeCollective(desc, number, variable, dims), ", rank ",
                      RankAt(ring_, rank_));
}

absl::Status NcclCommunicator::AsyncStatus() const {
  if (comm_ == nullptr) return absl::OkStatus();
  int state = nccl::kSuccess;
  (void)library().CommGetAsyncError(comm_, &state);
  return library().StatusOf(state, ToString(ring_));
}

void NcclCommunicator::ForgetFinished() {
  while (!pending_.empty() && gpu().HasPassed(pending_.front().end.get())) {
    unused_.push_back(std::move(pending_.front()));
    pending_.pop_front();
  }
}

absl::Status NcclCommunicator::Run(const CollectiveCall& call, const void* in, void* out) {
  std::unique_lock<std::mutex> lock(group_->mutex_);
  const int64_t number = number_;
  absl::Status status = TryRun(&lock, call, in, out);
  ++number_;
  if (!in_group_) status = Leave(&lock, status);
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(ToString(ring_), ", ",
                                   DescribeCollective(call.desc, number, call.variable, call.dims),
                                   ": ", status.message()));
}

absl::Status NcclCommunicator::Check() {
  std::lock_guard<std::mutex> lock(group_->mutex_);
  return was_cut_off_ ? group_->abort_status_ : absl::OkStatus();
}

const NcclLibrary& NcclCommunicator::library() const { return group_->library(); }
GpuApi& NcclCommunicator::gpu() const { return group_->gpu(); }

absl::Status NcclCommunicator::AbortStatus() const {
  const absl::Status& status = group_->abort_status_;
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("aborted: ", status.message()));
}

absl::Status NcclCommunicator::TryRun(std::unique_lock<std::mutex>* lock,
                                      const CollectiveCall& call, const void* in, void* out) {
  WEFT_RETURN_IF_ERROR(AbortStatus());
  ++arrived_;
  absl::Status status;
  if (!current_.has_value()) {
    WEFT_RETURN_IF_ERROR(
        group_->AwaitRanksHere(lock, *this, &NcclCommunicator::arrived_, [this, &call] {
          return TextOf(call.op, call.desc, arrived_ - 1, call.variable, call.dims);
        }));
    status = Begin(call);
  }
  if (status.ok()) status = Enqueue(call, in, out);
  if (!in_group_) return End(lock, call.stream, status);
  group_status_.Update(status);
  return status;
}

// Calls of different rings must run in the same order on all devices, or each device may wait for
// another. Ranks make them in the same order; the devices follow.
absl::Status NcclCommunicator::Begin(const CollectiveCall& call) {
  WEFT_ASSIGN_OR_RETURN(current_, NewCall());
  group_stream_ = call.stream;
  current_->number = number_;
  current_->desc = call.desc;
  current_->op.assign(call.op.data(), call.op.size());
  current_->variable.assign(call.variable.data(), call.variable.size());
  current_->dims = call.dims;
  const NcclGroup::LastCall& last = group_->last_calls_[RankAt(ring_, rank_)];
  if (last.communicator != nullptr && last.communicator != this) {
    WEFT_RETURN_IF_ERROR(gpu().Wait(last.end, call.stream));
  }
  return gpu().Record(current_->begin.get(), call.stream);
}

// After the calls of a group, or one call.
absl::Status NcclCommunicator::End(std::unique_lock<std::mutex>* lock, void* stream,
                                   absl::Status status) {
  if (!current_.has_value()) return status;
  if (status.ok()) status = group_->Finish(lock, this, "enqueueing");
  if (status.ok()) status = gpu().Record(current_->end.get(), stream);
  std::deque<PendingCall>& calls = status.ok() ? pending_ : unused_;
  calls.push_back(*std::move(current_));
  current_.reset();
  if (!status.ok()) return status;
  group_->last_calls_[RankAt(ring_, rank_)] = {this, calls.back().end.get()};
  if (!group_->has_pending_) {
    group_->has_pending_ = true;
    group_->changed_.notify_all();
  }
  return status;
}

absl::Status NcclCommunicator::Leave(std::unique_lock<std::mutex>* lock, absl::Status status) {
  launched_ = arrived_;
  group_->changed_.notify_all();
  if (!status.ok() || pending_.empty()) return status;
  return group_->AwaitRanksHere(lock, *this, &NcclCommunicator::launched_,
                                [this] { return TextOf(pending_.back()); });
}

absl::Status NcclCommunicator::BeginGroup() {
  std::unique_lock<std::mutex> lock(group_->mutex_);
  WEFT_RETURN_IF_ERROR(AbortStatus());
  WEFT_RETURN_IF_ERROR(library().StatusOf(library().GroupStart(), "ncclGroupStart"));
  in_group_ = true;
  group_status_ = absl::OkStatus();
  return absl::OkStatus();
}

absl::Status NcclCommunicator::EndGroup() {
  std::unique_lock<std::mutex> lock(group_->mutex_);
  if (!in_group_) return AbortStatus();  // BeginGroup has failed
  in_group_ = false;
  group_->changed_.notify_all();  // an abort has waited for that
  absl::Status status = std::move(group_status_);
  status.Update(library().StatusOf(library().GroupEnd(), "ncclGroupEnd"));
  status.Update(AbortStatus());
  status = End(&lock, group_stream_, status);
  return Leave(&lock, status);
}

absl::Status NcclCommunicator::Barrier(void* stream) {
  if (barrier_ == nullptr) {
    try {
      barrier_ = gpu().Allocate(sizeof(float));
    } catch (const std::exception& error) {
      return absl::ResourceExhaustedError(absl::StrCat("barrier: ", error.what()));
    }
  }
  CollectiveCall call;
  call.desc.reduction = Reduction::kMax;  // of any bits
  call.desc.count = 1;
  call.op = "barrier";
  call.variable = "nothing";
  call.dims = {1};
  call.stream = stream;
  return Run(call, barrier_.get(), barrier_.get());
}

absl::Status NcclCommunicator::Register(void* buffer, size_t bytes) {
  std::unique_lock<std::mutex> lock(group_->mutex_);
  WEFT_RETURN_IF_ERROR(AbortStatus());
  if (library().CommRegister == nullptr || registered_.count(buffer) > 0) return absl::OkStatus();
  void* handle = nullptr;
  WEFT_RETURN_IF_ERROR(library().StatusOf(library().CommRegister(comm_, buffer, bytes, &handle),
                                          "ncclCommRegister"));
  registered_[buffer] = handle;
  return absl::OkStatus();
}

absl::Status NcclCommunicator::Unregister(void* buffer) {
  std::unique_lock<std::mutex> lock(group_->mutex_);
  const auto found = registered_.find(buffer);
  if (found == registered_.end()) return absl::OkStatus();
  void* const handle = found->second;
  registered_.erase(found);
  return library().StatusOf(library().CommDeregister(comm_, handle), "ncclCommDeregister");
}

}  // namespace weft
