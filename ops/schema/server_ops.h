// Ops between workers and parameter servers.
#ifndef WEFT_OPS_SCHEMA_SERVER_OPS_H_
#define WEFT_OPS_SCHEMA_SERVER_OPS_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace weft {

// A parameter that servers hold has a number, its key. A worker's program has the ops of the first
// line, a server's those of the second. They do not name ranks: the run knows which are servers.
enum class ServerOp : uint8_t {
  kPrefetch,    // asks for the parameters of these keys, and goes on
  kPull,        // waits for a parameter, as it is before this step
  kLookup,      // the same for the rows of a table with the given ids
  kLookupGrad,  // the rows of the table's gradient: no communication
  kPush,        // sends a gradient, and the scalars that the optimizer reads
  kReceive,     // waits for the gradients of the workers, and merges them
  kServe,       // the parameter is updated: answers who waits for it
};

// None for another type.
absl::optional<ServerOp> FindServerOp(absl::string_view op_type);
absl::string_view ServerOpType(ServerOp op);

// Whether programs for workers have the op, and not those for servers.
inline bool IsOfWorker(ServerOp op) { return op != ServerOp::kReceive && op != ServerOp::kServe; }
// Whether the op exchanges values with other ranks.
inline bool Communicates(ServerOp op) { return op != ServerOp::kLookupGrad; }

// INT: the key of the op. In a server's program, every op has it.
inline constexpr absl::string_view kServerKeyAttr = "server_key";
// STRING, of ops on a table: the type of the op that reads the whole table. The gradient op of that
// has kGradOpSuffix after its type.
inline constexpr absl::string_view kTableOpAttr = "table_op";

// The slots of what ps_push sends, and ps_receive gets, besides the gradient.
inline constexpr absl::string_view kScalarSlots[] = {"LearningRate", "Others"};

// BOOL, of a lookup: whether a worker prefetches the rows for the next step while a step runs, by
// the ids of the next batch. Its Ids are fed.
inline constexpr absl::string_view kPrefetchAttr = "prefetch";

// What servers do, as collectives of the workers: they merge gradients as these do, and give all
// workers the same parameters.
inline constexpr absl::string_view kMergedByMean = "c_allreduce_avg";
inline constexpr absl::string_view kMergedBySum = "c_allreduce_sum";
inline constexpr absl::string_view kGivenToAll = "c_broadcast";
// Of what is pushed besides gradients, which all workers have alike, a server takes one.
inline constexpr absl::string_view kTakenFromOne = "assign";

// The lookups whose tables servers can hold by rows. Their Ids have a last dimension of 1, or not.
inline constexpr absl::string_view kLookupOfColumns = "lookup_table";
inline constexpr absl::string_view kLookupOfIds = "lookup_table_v2";
inline constexpr absl::string_view kGradOpSuffix = "_grad";

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_SERVER_OPS_H_
