#include "tools/inspect/program_dot.h"

#include <map>
#include <set>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "ops/analysis/core/communication.h"
#include "ops/analysis/core/op_traits.h"
#include "proto/op_role.h"

namespace weft {
namespace {

// How ops are drawn that have one thing in common, and what the legend says of them.
struct Look {
  const char* name;
  const char* color;
  const char* shape = nullptr;  // null: the box of most ops
};

// Fill colours: light ones of Graphviz's X11 scheme. The bits of a role are tested in this order,
// so that the gradient of the loss is drawn as part of the loss.
struct RoleLook {
  int bits;
  Look look;
};
constexpr RoleLook kRoles[] = {
    {kRoleLoss, {"loss", "gold"}},
    {kRoleBackward, {"backward", "lightsalmon"}},
    {kRoleOptimize, {"optimize", "palegreen"}},
    {kRoleLrSched, {"lr_sched", "khaki"}},
    {kRoleRpc | kRoleDist, {"rpc, dist", "plum"}},
    {kRoleNotSpecified, {"not_specified", "gray90"}},
};
constexpr Look kForward = {"forward", "lightblue"};

// Ops that do more than compute. The first trait that an op has counts.
struct TraitLook {
  Trait trait;
  Look look;
};
constexpr TraitLook kTraits[] = {
    {Trait::kCollective, {"collective", "mediumpurple1", "octagon"}},
    {Trait::kStreamSync, {"stream synchronization", "thistle", "parallelogram"}},
    {Trait::kRingSetup, {"ring set-up", "thistle", "house"}},
    {Trait::kAlias, {"fuses variables into a buffer", "thistle", "component"}},
};

Look LookOfRole(int role) {
  for (const RoleLook& known : kRoles) {
    if ((role & known.bits) != 0) return known.look;
  }
  return kForward;
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

// Draws the ops of a program, and remembers their looks for the legend.
class OpDrawer {
 public:
  explicit OpDrawer(const Program& program) : traits_(program) {}

  void Draw(const Op& op, std::string* out) {
    const Look look = LookOf(op);
    legend_.emplace(look.name, look);
    std::string label = absl::StrCat(op.position(), ": ", op.type());
    if (HasRing(op)) absl::StrAppend(&label, "\nring ", RingOf(op));
    absl::StrAppend(out, "    ", OpNode(op.id()), " [label=", Quoted(label), Style(look),
                    ", tooltip=", Quoted(RoleName(op.role())), "];\n");
  }

  std::string Legend() const {
    std::string out = "  subgraph cluster_legend {\n    label=\"legend\";\n";
    int number = 0;
    for (const auto& [name, look] : legend_) {
      absl::StrAppend(&out, "    legend", number++, " [label=", Quoted(name), Style(look), "];\n");
    }
    return out + "  }\n";
  }

 private:
  Look LookOf(const Op& op) {
    for (const TraitLook& known : kTraits) {
      if (traits_.Has(op, known.trait)) return known.look;
    }
    return LookOfRole(op.role());
  }

  bool HasRing(const Op& op) {
    return op.HasAttr("ring_id") &&
           (traits_.Has(op, Trait::kCollective) || traits_.Has(op, Trait::kStreamSync) ||
            traits_.Has(op, Trait::kRingSetup) || !traits_.IsRegistered(op));
  }

  static std::string Style(const Look& look) {
    const std::string shape = look.shape == nullptr ? "" : absl::StrCat(", shape=", look.shape);
    return absl::StrCat(", fillcolor=", look.color, shape);
  }

  OpTraits traits_;
  std::map<std::string, Look> legend_;  // by name
};

// Draws the boxes and ellipses of a block inside its cluster, and adds its edges to `edges`.
void DrawBlock(const Program& program, int idx, OpDrawer* drawer, std::string* out,
               std::string* edges) {
  const Block block = program.block(idx);
  absl::StrAppend(out, "  subgraph ", ClusterName(idx), " {\n    label=\"block ", idx, "\";\n");
  // Keeps an empty cluster on the page, and gives dashed edges a target.
  absl::StrAppend(out, "    block", idx, " [shape=point, style=invis];\n");
  absl::flat_hash_map<Symbol, OpId> last_writer;
  std::set<Symbol> sources;
  for (OpId id : block.ops()) {
    const Op op = program.op(id);
    drawer->Draw(op, out);
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

absl::StatusOr<std::string> ProgramToDot(const Program& program) {
  if (program.num_ops() > kMaxDrawnOps) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected at most ", kMaxDrawnOps, " ops to draw with dot, found ",
                     program.num_ops(), "; weft view draws large programs"));
  }
  std::string out =
      "digraph program {\n"
      "  compound=true;\n"
      "  node [shape=box, style=filled, fontname=Helvetica, fontsize=10];\n"
      "  edge [fontname=Helvetica, fontsize=8];\n";
  std::string edges;
  OpDrawer drawer(program);
  for (int idx = 0; idx < program.num_blocks(); ++idx) {
    DrawBlock(program, idx, &drawer, &out, &edges);
  }
  return absl::StrCat(out, drawer.Legend(), edges, "}\n");
}

}  // namespace weft
