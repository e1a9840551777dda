// Which parameters each server of a run holds.
#ifndef WEFT_EXECUTOR_SERVERS_SERVER_PART_H_
#define WEFT_EXECUTOR_SERVERS_SERVER_PART_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "ops/schema/tensor_type.h"
#include "proto/program.h"

namespace weft {

struct ServedKey {
  std::string param;
  TensorType type;       // of the whole parameter
  bool by_rows = false;  // each server has some rows; else one has the whole
  bool is_async = false;
  int64_t staleness = 0;
};
using ServedKeys = std::map<int64_t, ServedKey>;

// The keys that the program of the servers serves. InvalidArgument, naming the op: a key that is
// served twice, a parameter whose type is not known, or ops that differ in is_async. O(ops).
absl::StatusOr<ServedKeys> FindServedKeys(const Program& server);

// Rows of a table: each server has equally many, the first ones one more.
struct RowRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};
RowRange RowsOfServer(int64_t rows, int server, int num_servers);
// The server that holds a row.
int ServerOfRow(int64_t row, int64_t rows, int num_servers);
// The server that holds a parameter whole.
int ServerOfKey(int64_t key, int num_servers);

struct ServerPart {
  Program program;
  // Of its persistable variables, those of which the server has some rows.
  std::map<std::string, RowRange> rows;
};

// The program of one server: the ops on its keys, with tables and their state cut by rows.
// FailedPrecondition if the server would hold nothing: more servers than parameters and rows.
// O(ops).
absl::StatusOr<ServerPart> PartOfServer(const Program& server, int index, int num_servers);

// A startup program without its communication, for a server: it computes all that the program does
// on a single rank, with the same draws. O(ops).
absl::StatusOr<Program> WithoutCommunication(const Program& startup);

}  // namespace weft

#endif  // WEFT_EXECUTOR_SERVERS_SERVER_PART_H_
