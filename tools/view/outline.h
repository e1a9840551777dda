// A program by phases and layers.
#ifndef WEFT_TOOLS_VIEW_OUTLINE_H_
#define WEFT_TOOLS_VIEW_OUTLINE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "proto/program.h"

namespace weft {

// Consecutive ops. Ops are numbered over all blocks, one block after the other.
struct OutlineNode {
  std::string name;
  uint32_t depth = 0;  // 0: a phase of the root block, or another block
  uint32_t begin = 0, end = 0;
};

// The ops of a program in their order, grouped. Nodes stand before those that they contain.
//
// The root block is divided into phases, by role: "forward", "backward", "update", "learning rate",
// "other". Every other block is one node: "block 1". Below are layers, at most 16 levels:
//
// - An op with attribute op_namescope belongs to that scope, one level for each part: "/enc/ffn/".
// - Otherwise, a forward op belongs to the layer of the first persistable variable that it reads,
//   whose name without its last part is the layer: fc_0 for fc_0.w_0. If it reads none, it belongs
//   to the layer of the op before it.
// - An op of another phase belongs to the layer of the forward op that wrote, or first read, the
//   variable whose gradient it reads or writes; else to that of the op before it.
// - Communication, stream synchronization and fusing of buffers belong to phase and layer of the op
//   before them.
//
// Layers that are interrupted have several nodes. O(arguments + attributes).
std::vector<OutlineNode> OutlineOf(const Program& program);

}  // namespace weft

#endif  // WEFT_TOOLS_VIEW_OUTLINE_H_
