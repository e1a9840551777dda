#include "tools/program_dot.h"

#include <set>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/op_role.h"

namespace weft {
namespace {

// Fill colours: light ones of Graphviz's X11 scheme. The bits of a role are tested in this order,
// so that the gradient of the loss is drawn as part of the loss.
struct RoleColor {
  int bits;
  absl::string_view color;
};
constexpr RoleColor kColors[] = {
    {kRoleLoss, "gold"},
    {kRoleBackward, "lightsalmon"},
    {kRoleOptimize, "palegreen"},
    {kRoleLrSched, "khaki"},
    {kRoleRpc, "plum"},
    {kRoleDist, "plum"},
    {kRoleNotSpecified, "gray90"},
};
constexpr absl::string_view kForwardColor = "lightblue";

absl::string_view ColorOf(int role) {
  for (const RoleColor& color : kColors) {
    if ((role & color.bits) != 0) return color.color;
  }
  return kForwardColor;
}

std::string Quoted(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '\n') {
      quoted += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

std::string OpNode(OpId op) { return absl::StrCat("op", op.value()); }
std::string VarNode(int block, Symbol var) { return absl::StrCat("var", block, "_", var.value()); }
std::string ClusterName(int block) { return absl::StrCat("cluster_block", block); }

bool StandsForNothing(const Program& program, Symbol var) {
  return program.name(var).empty() || program.name(var) == kEmptyVarName;
}

void DrawOp(const Op& op, std::string* out) {
  absl::StrAppend(out, "    ", OpNode(op.id()),
                  " [label=", Quoted(absl::StrCat(op.position(), ": ", op.type())),
                  ", fillcolor=", ColorOf(op.role()), ", tooltip=", Quoted(RoleName(op.role())),
                  "];\n");
}

// Draws the boxes and ellipses of a block inside its cluster, and adds its edges to `edges`.
void DrawBlock(const Program& program, int idx, std::string* out, std::string* edges) {
  const Block block = program.block(idx);
  absl::StrAppend(out, "  subgraph ", ClusterName(idx), " {\n    label=\"block ", idx, "\";\n");
  // Keeps an empty cluster on the page, and gives dashed edges a target.
  absl::StrAppend(out, "    block", idx, " [shape=point, style=invis];\n");
  absl::flat_hash_map<Symbol, OpId> last_writer;
  std::set<Symbol> sources;
  for (OpId id : block.ops()) {
    const Op op = program.op(id);
    DrawOp(op, out);
    std::set<Symbol> drawn;  // an op may read a variable through several slots
    for (Symbol var : op.input_args()) {
      if (StandsForNothing(program, var) || !drawn.insert(var).second) continue;
      const auto writer = last_writer.find(var);
      const bool written = writer != last_writer.end();
      if (!written && sources.insert(var).second) {
        absl::StrAppend(out, "    ", VarNode(idx, var),
                        " [shape=ellipse, fillcolor=white, label=", Quoted(program.name(var)),
                        "];\n");
      }
      absl::StrAppend(edges, "  ", written ? OpNode(writer->second) : VarNode(idx, var), " -> ",
                      OpNode(id));
      if (written) absl::StrAppend(edges, " [label=", Quoted(program.name(var)), "]");
      absl::StrAppend(edges, ";\n");
    }
    for (Symbol var : op.output_args()) last_writer[var] = id;
    for (int sub_block : op.SubBlocks()) {
      absl::StrAppend(edges, "  ", OpNode(id), " -> block", sub_block,
                      " [style=dashed, lhead=", ClusterName(sub_block), "];\n");
    }
  }
  absl::StrAppend(out, "  }\n");
}

}  // namespace

std::string ProgramToDot(const Program& program) {
  std::string out =
      "digraph program {\n"
      "  compound=true;\n"
      "  node [shape=box, style=filled, fontname=Helvetica, fontsize=10];\n"
      "  edge [fontname=Helvetica, fontsize=8];\n";
  std::string edges;
  for (int idx = 0; idx < program.num_blocks(); ++idx) DrawBlock(program, idx, &out, &edges);
  return absl::StrCat(out, edges, "}\n");
}

}  // namespace weft
