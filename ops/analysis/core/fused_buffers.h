// Ops on fused buffers and on their parts, as Paddle's executor orders them.
//
// Paddle runs a ProgramDesc on several threads and orders ops by the names in their slots. A fused
// buffer (coalesce_tensor) and its parts are one memory under several names. Of these, the executor
// knows two things about each coalesce_tensor and the first op after it that reads the buffer:
// that op waits for the ops between them that write parts; and ops after it that read parts wait
// for it, or for the last of the ops that communicate right after it. Ops that communicate wait
// for each other, and all ops for the last c_sync_comm_stream before them.
//
// Source: Paddle's new_executor/interpreter/dependency_builder.cc.
#ifndef WEFT_OPS_ANALYSIS_CORE_FUSED_BUFFERS_H_
#define WEFT_OPS_ANALYSIS_CORE_FUSED_BUFFERS_H_

#include <cstdint>
#include <vector>

#include "absl/types/optional.h"
#include "ops/analysis/core/program_facts.h"
#include "ops/analysis/core/storage.h"
#include "proto/program.h"

namespace weft {

// As that executor tells them: by type and attribute.
bool CommunicatesInPaddle(const Op& op);

// An access by the op at a position of a block, or by ops in its blocks.
struct BufferAccess {
  uint32_t position = 0;
  Symbol name;                         // of the buffer or of a part
  bool reads = false, writes = false;  // neither: the op only orders others
  // By the op's own slots, which the executor sees.
  bool names_input = false, names_output = false;
};

// A fused buffer of a block, from its coalesce_tensor to the next one of that name. One that is
// made outside of the block has no `made_at` there, and Paddle orders nothing by it.
struct FusedBuffer {
  Symbol name;
  std::vector<Symbol> parts;
  absl::optional<uint32_t> made_at;
  // By position; not those of ops that make the buffer. Of a part, those while it is one.
  std::vector<BufferAccess> accesses;
  std::vector<BufferAccess> part_accesses;
  absl::optional<uint32_t> first_read;    // of the first op that names it as an input
  absl::optional<uint32_t> last_awaited;  // by those that read parts
};

// Those that a block makes, in order. O(arguments) of the block and of those in it.
std::vector<FusedBuffer> FindFusedBuffers(const Program& program, const Storage& storage,
                                          int block);

// Two ops of a block that access memory of a buffer under different names, one of which writes it.
// The program has them in this order, and nothing makes the executor keep it.
struct UnorderedAccesses {
  Symbol buffer, part;
  OpId first, second;
};

// At most one pair for each buffer and block that uses it: the block that makes it, and those in
// that one. `startup` may make persistable buffers; null: there is none. O(arguments), and once
// more for each op on a buffer that other data than the buffer and its parts orders; a buffer that
// many ops read between two writes takes that times the ops that write parts then.
std::vector<UnorderedAccesses> FindUnorderedAccesses(const ProgramFacts& facts,
                                                     const Program* startup);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_CORE_FUSED_BUFFERS_H_
