// NCCL, loaded when the program runs: the build needs neither its headers nor the library.
#ifndef WEFT_EXECUTOR_GPU_NCCL_LIBRARY_H_
#define WEFT_EXECUTOR_GPU_NCCL_LIBRARY_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft {

// The interface of NCCL 2.14 and later, as in its nccl.h, with CUDA's streams as pointers.
namespace nccl {

struct Communicator;  // ncclComm

struct UniqueId {
  char internal[128];
};

enum Result : int { kSuccess = 0, kInProgress = 7 };
enum DataType : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kInt64 = 4,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9
};
enum RedOp : int { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4 };

// That of 2.14. Later versions have more settings, and take this one for their defaults.
// Communicators do not block: only then may a thread abort a call, or the set-up, in which another
// one waits for a peer. The mode of a communicator cannot change later.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0;
};

}  // namespace nccl

// The functions of the library, named as there without "nccl".
struct NcclLibrary {
  int (*GetVersion)(int* version);
  const char* (*GetErrorString)(int result);
  int (*GetUniqueId)(nccl::UniqueId* id);
  int (*CommInitRankConfig)(nccl::Communicator** comm, int nranks, nccl::UniqueId id, int rank,
                            nccl::Config* config);
  int (*CommGetAsyncError)(nccl::Communicator* comm, int* error);
  int (*CommAbort)(nccl::Communicator* comm);
  int (*CommFinalize)(nccl::Communicator* comm);
  int (*CommDestroy)(nccl::Communicator* comm);
  int (*GroupStart)();
  int (*GroupEnd)();
  int (*AllReduce)(const void* in, void* out, size_t count, int type, int op,
                   nccl::Communicator* comm, void* stream);
  int (*Reduce)(const void* in, void* out, size_t count, int type, int op, int root,
                nccl::Communicator* comm, void* stream);
  int (*ReduceScatter)(const void* in, void* out, size_t out_count, int type, int op,
                       nccl::Communicator* comm, void* stream);
  int (*AllGather)(const void* in, void* out, size_t in_count, int type, nccl::Communicator* comm,
                   void* stream);
  int (*Broadcast)(const void* in, void* out, size_t count, int type, int root,
                   nccl::Communicator* comm, void* stream);
  int (*Send)(const void* in, size_t count, int type, int peer, nccl::Communicator* comm,
              void* stream);
  int (*Recv)(void* out, size_t count, int type, int peer, nccl::Communicator* comm, void* stream);
  // Since 2.19; null before.
  int (*CommRegister)(nccl::Communicator* comm, void* buffer, size_t bytes, void** handle);
  int (*CommDeregister)(nccl::Communicator* comm, void* handle);

  // Internal, with the name of the call and NCCL's text, unless the result is a success or, for
  // calls that do not block, in progress.
  absl::Status StatusOf(int result, absl::string_view call) const;
};

// The default is found as the system finds libraries, and beside the binary.
inline constexpr absl::string_view kNcclFile = "libnccl.so.2";

// Loads a library once, and keeps it. Unavailable if there is none, or if it is older than 2.14.
// Thread-safe.
absl::StatusOr<const NcclLibrary*> LoadNccl(const std::string& file = std::string(kNcclFile));

}  // namespace weft

#endif  // WEFT_EXECUTOR_GPU_NCCL_LIBRARY_H_
