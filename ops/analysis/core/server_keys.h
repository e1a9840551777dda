// Which ops of a program for parameter servers run, and for which key.
#ifndef WEFT_OPS_ANALYSIS_CORE_SERVER_KEYS_H_
#define WEFT_OPS_ANALYSIS_CORE_SERVER_KEYS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "ops/schema/server_ops.h"
#include "proto/program.h"

namespace weft {

// The key of an op of workers or servers.
inline absl::optional<int64_t> ServerKeyOf(const Op& op) { return op.IntAttr(kServerKeyAttr); }

// A server runs the ops of a key in the order of the program. Of other keys, it runs ops before,
// between or after them: those that receive first wait for all, others come in any order. Each key
// may be on another server.
struct ServerKey {
  std::vector<OpId> ops;       // all
  OpId receive, serve;         // the first ones; `receive` may be invalid
  std::vector<OpId> repeated;  // other ops that receive or serve the key
};

struct ServerKeys {
  std::map<int64_t, ServerKey> keys;
  // What no server can run: ops without a key that an op serves, ops of blocks other than the root
  // block, and ops that run blocks, communicate or order streams. `expected` ends a message.
  struct Stray {
    OpId op;
    std::string expected;
  };
  std::vector<Stray> strays;  // in order
};

// O(ops log keys).
ServerKeys FindServerKeys(const Program& server);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_CORE_SERVER_KEYS_H_
