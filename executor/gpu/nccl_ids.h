// How the processes of a run learn the ids of NCCL's communicators.
#ifndef WEFT_EXECUTOR_GPU_NCCL_IDS_H_
#define WEFT_EXECUTOR_GPU_NCCL_IDS_H_

#include <functional>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "executor/communicators/communicator.h"
#include "executor/gpu/nccl_library.h"

namespace weft {

using NcclIds = std::map<RingKey, nccl::UniqueId>;

// Gives all processes of options.link an id for each of options.rings. Every process calls it.
//
// `new_id` makes one; the process that has the first rank of a ring calls it. If `file` is not
// empty, process 0 makes all ids, and the others read them from that file, on a file system of all
// hosts. The file may be there from an earlier run; it is removed when all have read it.
//
// An error of one process is that of all, with its number.
absl::StatusOr<NcclIds> ShareNcclIds(const GroupOptions& options, const std::string& file,
                                     const std::function<absl::StatusOr<nccl::UniqueId>()>& new_id);

}  // namespace weft

#endif  // WEFT_EXECUTOR_GPU_NCCL_IDS_H_
