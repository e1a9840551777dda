// Programs in the form in which they are replayed.
#ifndef WEFT_TESTS_REPLAY_PROGRAM_H_
#define WEFT_TESTS_REPLAY_PROGRAM_H_

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/optional.h"
#include "ops/schema/communication_ops.h"
#include "tests/support/program_descs.h"

namespace weft::testing {

struct SlotArg {
  std::string slot;
  int number;  // in the slot
  std::string name;
};

// What ranks make together: each waits for the others.
enum class RankCall {
  kNone,
  kCollective,
  kMakeId,   // rank 0 of the list sends an id to the endpoints of the others
  kJoin,     // a ring, by an id
  kJoinAll,  // a ring, of all devices of the process
  kMeet,     // a barrier, or an op with a collective inside
  kSend,
  kReceive,
};

// An op, as it is run.
struct ReplayOp {
  const pb::OpDesc* desc = nullptr;
  std::string type;
  std::string identity;  // type and attributes that matter
  std::vector<SlotArg> inputs, outputs;
  RankCall call = RankCall::kNone;
  const CollectiveOp* collective = nullptr;
  absl::optional<StreamSync> sync;
  int ring = 0;
  std::vector<int> group;  // the ranks that call it; empty: all
  bool on_compute = true;
  int sub_block = -1;
  bool is_random = false;
  std::string place;  // "op 17 (sgd)"
};

struct ReplayProgram {
  // The declaration in the block or the nearest block around it, and which block holds the
  // variable, the root for all that persist; {0, nullptr}: there is none.
  std::pair<int, const pb::VarDesc*> Find(int block, const std::string& name) const;

  const pb::ProgramDesc* desc = nullptr;
  std::vector<absl::flat_hash_map<std::string, const pb::VarDesc*>> vars;  // by block
  std::vector<std::vector<ReplayOp>> blocks;
  std::set<std::string> persistable;  // in any block
  bool is_one_process = false;        // joins rings without an id
};

// Points into `desc`.
ReplayProgram CompileForReplay(const pb::ProgramDesc& desc);

}  // namespace weft::testing

#endif  // WEFT_TESTS_REPLAY_PROGRAM_H_
