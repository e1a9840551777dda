#include <cuda_runtime_api.h>
#include <nccl.h>

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "executor/nccl_communicator.h"

namespace weft {
namespace {

absl::Status NcclStatus(ncclResult_t error, absl::string_view call) {
  if (error == ncclSuccess) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(call, ": ", ncclGetErrorString(error)));
}

absl::StatusOr<ncclDataType_t> TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
      return ncclInt8;
    case DType::kUint8:
      return ncclUint8;
    case DType::kInt32:
      return ncclInt32;
    case DType::kInt64:
      return ncclInt64;
    case DType::kFloat16:
      return ncclFloat16;
    case DType::kBFloat16:
      return ncclBfloat16;
    case DType::kFloat32:
      return ncclFloat32;
    case DType::kFloat64:
      return ncclFloat64;
    default:
      return absl::UnimplementedError(absl::StrCat("NCCL has no element type ", DTypeName(dtype)));
  }
}

ncclRedOp_t OperationOf(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return ncclSum;
    case Reduction::kMax:
      return ncclMax;
    case Reduction::kMin:
      return ncclMin;
    case Reduction::kProd:
      return ncclProd;
    case Reduction::kAvg:
      return ncclAvg;
  }
  return ncclSum;
}

class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(ncclComm_t comm, int rank, int nranks, RingKey ring)
      : comm_(comm), rank_(rank), nranks_(nranks), ring_(ring) {}
  ~NcclCommunicator() override {
    if (!aborted_) (void)ncclCommDestroy(comm_);
  }

  int rank() const override { return rank_; }
  int nranks() const override { return nranks_; }

  absl::Status Run(const CollectiveCall& call, const void* in, void* out) override {
    const absl::Status status = Enqueue(call, in, out);
    const int64_t number = number_++;
    if (status.ok()) return status;
    return absl::Status(
        status.code(), absl::StrCat(ToString(ring_), ": ",
                                    DescribeCollective(call.desc, number, call.variable, call.dims),
                                    ": ", status.message()));
  }

  // Ends what is running, with an error on its stream.
  void Abort() {
    if (!aborted_) (void)ncclCommAbort(comm_);
    aborted_ = true;
  }

 private:
  absl::Status Enqueue(const CollectiveCall& call, const void* in, void* out) {
    const CollectiveDesc& desc = call.desc;
    if (desc.root < 0 || desc.root >= nranks_) {
      return absl::InvalidArgumentError(
          absl::StrCat("root ", desc.root, ": expected 0 to ", nranks_ - 1));
    }
    WEFT_ASSIGN_OR_RETURN(const ncclDataType_t type, TypeOf(desc.dtype));
    const ncclRedOp_t operation = OperationOf(desc.reduction);
    const auto stream = static_cast<cudaStream_t>(call.stream);
    const auto count = static_cast<size_t>(desc.count);
    switch (desc.kind) {
      case CollectiveKind::kAllReduce:
        return NcclStatus(ncclAllReduce(in, out, count, type, operation, comm_, stream),
                          "ncclAllReduce");
      case CollectiveKind::kReduce:
        return Reduce(desc, in, out, type, operation, stream);
      case CollectiveKind::kReduceScatter:
        return NcclStatus(
            ncclReduceScatter(in, out, count / nranks_, type, operation, comm_, stream),
            "ncclReduceScatter");
      case CollectiveKind::kAllGather:
        return NcclStatus(ncclAllGather(in, out, count, type, comm_, stream), "ncclAllGather");
      case CollectiveKind::kBroadcast:
        return NcclStatus(ncclBroadcast(in, out, count, type, desc.root, comm_, stream),
                          "ncclBroadcast");
    }
    return absl::InternalError("no such collective");
  }

  // Ranks but the root get a copy of their own input, which NCCL leaves to the caller.
  absl::Status Reduce(const CollectiveDesc& desc, const void* in, void* out, ncclDataType_t type,
                      ncclRedOp_t operation, cudaStream_t stream) {
    if (rank_ != desc.root && in != out) {
      const cudaError_t error = cudaMemcpyAsync(out, in, desc.count * SizeOf(desc.dtype),
                                                cudaMemcpyDeviceToDevice, stream);
      if (error != cudaSuccess) {
        return absl::InternalError(absl::StrCat("cudaMemcpyAsync: ", cudaGetErrorString(error)));
      }
    }
    return NcclStatus(ncclReduce(in, out, desc.count, type, operation, desc.root, comm_, stream),
                      "ncclReduce");
  }

  const ncclComm_t comm_;
  const int rank_, nranks_;
  const RingKey ring_;
  int64_t number_ = 0;
  bool aborted_ = false;
};

class NcclGroup : public CommunicatorGroup {
 public:
  explicit NcclGroup(int nranks) : nranks_(nranks) {}
  int nranks() const override { return nranks_; }

  absl::StatusOr<Communicator*> Get(RingKey ring, int rank) override {
    ncclUniqueId id;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      const auto found = communicators_.find({ring, rank});
      if (found != communicators_.end()) return found->second.get();
      const auto [it, is_new] = ids_.try_emplace(ring);
      if (is_new) WEFT_RETURN_IF_ERROR(NcclStatus(ncclGetUniqueId(&it->second), "ncclGetUniqueId"));
      id = it->second;
    }
    // Waits for the other ranks.
    ncclComm_t comm = nullptr;
    WEFT_RETURN_IF_ERROR(NcclStatus(ncclCommInitRank(&comm, nranks_, id, rank),
                                    absl::StrCat(ToString(ring), ": ncclCommInitRank")));
    std::lock_guard<std::mutex> lock(mutex_);
    auto& communicator = communicators_[{ring, rank}];
    communicator = std::make_unique<NcclCommunicator>(comm, rank, nranks_, ring);
    return communicator.get();
  }

  void Abort(int /*rank*/, const absl::Status& /*status*/) override {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto& communicator : communicators_) communicator.second->Abort();
  }

 private:
  const int nranks_;
  std::mutex mutex_;
  std::map<RingKey, ncclUniqueId> ids_;
  std::map<std::pair<RingKey, int>, std::unique_ptr<NcclCommunicator>> communicators_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CommunicatorGroup>> NewNcclGroup(int nranks) {
  return std::unique_ptr<CommunicatorGroup>(std::make_unique<NcclGroup>(nranks));
}

}  // namespace weft
