#include "proto/formats/malformed_program.h"

#include <algorithm>
#include <climits>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "google/protobuf/text_format.h"
#include "proto/formats/program_file.h"
#include "proto/op_role.h"
#include "proto/program_checks.h"

namespace weft {
namespace {

// Makes a message one that Program::FromProto takes.
class Mender {
 public:
  explicit Mender(pb::ProgramDesc* program) : program_(*program) {}

  std::vector<std::string> Mend() {
    if (program_.blocks().empty()) {
      Say("the program has no blocks; shown with an empty one");
      program_.add_blocks()->set_parent_idx(-1);
      program_.mutable_blocks(0)->set_idx(0);
    }
    for (int i = 0; i < program_.blocks_size(); ++i) MendBlock(i, program_.mutable_blocks(i));
    CutParents();
    CutSubBlocks();
    return std::move(lines_);
  }

 private:
  // An attribute of an op that names sub-blocks.
  struct SubBlock {
    int block, op, sub;
    pb::OpDesc::Attr* attr;
  };

  void Say(std::string line) { lines_.push_back(std::move(line)); }

  static std::string NameOf(int block, int op, const pb::OpDesc& desc) {
    const std::string where = block == 0 ? "" : absl::StrCat("block ", block, ", ");
    return absl::StrCat(where, "op ", op, " (", absl::CEscape(desc.type()), ")");
  }

  void MendName(std::string* name) {
    if (CheckName(*name).ok()) return;
    std::string escaped = absl::CEscape(*name);
    Say(absl::StrCat("the name '", escaped, "' is not valid UTF-8; shown escaped"));
    *name = std::move(escaped);
  }

  void MendBlock(int i, pb::BlockDesc* block) {
    if (!block->has_idx() || block->idx() != i) {
      Say(absl::StrCat("block ", i, ": ",
                       block->has_idx() ? absl::StrCat("has idx ", block->idx()) : "has no idx",
                       "; blocks count 0, 1, 2, ... in file order"));
      block->set_idx(i);
    }
    absl::flat_hash_set<std::string> names;
    for (int v = 0; v < block->vars_size(); ++v) {
      MendName(block->mutable_vars(v)->mutable_name());
      const std::string& name = block->vars(v).name();
      if (name == kEmptyVarName || names.insert(name).second) {
        kept_vars_.push_back(v);
        continue;
      }
      Say(absl::StrCat("block ", i, ": variable '", absl::CEscape(name),
                       "' is declared twice; shown as declared first"));
    }
    KeepVars(block);
    for (int o = 0; o < block->ops_size(); ++o) MendOp(i, o, block->mutable_ops(o));
  }

  // Linear, unlike the removal of one after the other.
  void KeepVars(pb::BlockDesc* block) {
    auto* vars = block->mutable_vars();
    for (size_t i = 0; i < kept_vars_.size(); ++i) {
      vars->SwapElements(static_cast<int>(i), kept_vars_[i]);
    }
    vars->DeleteSubrange(static_cast<int>(kept_vars_.size()),
                         vars->size() - static_cast<int>(kept_vars_.size()));
    kept_vars_.clear();
  }

  void MendOp(int block, int index, pb::OpDesc* op) {
    MendName(op->mutable_type());
    if (op->type().empty()) {
      Say(absl::StrCat(NameOf(block, index, *op), ": has no type; shown as 'untyped'"));
      op->set_type("untyped");
    }
    for (auto* slots : {op->mutable_inputs(), op->mutable_outputs()}) {
      for (pb::OpDesc::Var& slot : *slots) {
        MendName(slot.mutable_parameter());
        for (std::string& argument : *slot.mutable_arguments()) MendName(&argument);
      }
    }
    for (pb::OpDesc::Attr& attr : *op->mutable_attrs()) {
      MendName(attr.mutable_name());
      if (attr.name() == kOpRoleAttr && attr.type() != pb::INT) {
        Say(absl::StrCat(NameOf(block, index, *op),
                         ": attribute op_role: expected type INT, found ",
                         pb::AttrType_Name(attr.type()), "; shown without a role"));
        attr.set_name(absl::StrCat(kOpRoleAttr, " (not a role)"));
      }
      if (attr.type() == pb::BLOCK) AddSubBlock(block, index, attr.block_idx(), &attr);
      if (attr.type() == pb::BLOCKS) {
        for (int sub : attr.blocks_idx()) AddSubBlock(block, index, sub, &attr);
      }
    }
  }

  void AddSubBlock(int block, int op, int sub, pb::OpDesc::Attr* attr) {
    if (sub >= 1 && sub < program_.blocks_size()) {
      sub_blocks_.push_back({block, op, sub, attr});
      return;
    }
    Cut({block, op, sub, attr}, sub == 0 ? "is the root block" : "is missing");
  }

  void Cut(const SubBlock& cut, absl::string_view why) {
    const pb::OpDesc& op = program_.blocks(cut.block).ops(cut.op);
    Say(absl::StrCat(NameOf(cut.block, cut.op, op), ": sub-block ", cut.sub, " ", why,
                     "; the program has ", program_.blocks_size(),
                     " blocks; shown without attribute ", cut.attr->name()));
    cut_.insert(cut.attr);
  }

  // Of parents that are missing, in a cycle or too many, the root takes the place.
  void CutParents() {
    const int n = program_.blocks_size();
    constexpr int kUnknown = -1, kOnTheWay = -2;
    std::vector<int> depth(n, kUnknown);
    const auto cut = [this](int i, absl::string_view why) {
      pb::BlockDesc* block = program_.mutable_blocks(i);
      const int parent = i == 0 ? -1 : 0;
      Say(absl::StrCat("block ", i, ": ",
                       block->has_parent_idx() ? absl::StrCat("parent block ", block->parent_idx())
                                               : "the parent",
                       " ", why, "; shown with parent ", parent));
      block->set_parent_idx(parent);
    };
    for (int i = 0; i < n; ++i) {
      const pb::BlockDesc& block = program_.blocks(i);
      const int parent = block.parent_idx();
      if (!block.has_parent_idx()) {
        cut(i, "is missing");
      } else if (i == 0 ? parent != -1 : parent < -1 || parent >= n) {
        cut(i, i == 0 ? "of the root block is not -1" : "is missing");
      }
    }
    std::vector<int> way;
    for (int i = 0; i < n; ++i) {
      int b = i;
      for (; b != -1 && depth[b] == kUnknown; b = program_.blocks(b).parent_idx()) {
        depth[b] = kOnTheWay;
        way.push_back(b);
      }
      int above = b == -1 ? -1 : depth[b];
      if (above == kOnTheWay) {
        // The root was first, so it is no part of the cycle.
        cut(way.back(), "closes a cycle");
        above = 0;
      }
      for (; !way.empty(); way.pop_back()) {
        if (++above > Program::kMaxBlockDepth) {
          cut(way.back(), "is nested too deep");
          above = 1;
        }
        depth[way.back()] = above;
      }
    }
  }

  // The block that runs itself cannot be shown inside itself.
  void CutSubBlocks() {
    const int n = program_.blocks_size();
    std::vector<std::vector<const SubBlock*>> contains(n);
    std::vector<int> times_contained(n, 0), depth(n, 0), ready;
    for (const SubBlock& sub : sub_blocks_) {
      contains[sub.block].push_back(&sub);
      ++times_contained[sub.sub];
    }
    for (int i = 0; i < n; ++i) {
      if (times_contained[i] == 0) ready.push_back(i);
    }
    for (size_t i = 0; i < ready.size(); ++i) {
      for (const SubBlock* sub : contains[ready[i]]) {
        if (depth[ready[i]] == Program::kMaxBlockDepth) {
          Cut(*sub, "is nested too deep");
        } else {
          depth[sub->sub] = std::max(depth[sub->sub], depth[ready[i]] + 1);
        }
        if (--times_contained[sub->sub] == 0) ready.push_back(sub->sub);
      }
    }
    // What is left is in a cycle, or inside one.
    for (const SubBlock& sub : sub_blocks_) {
      if (times_contained[sub.block] > 0 && times_contained[sub.sub] > 0) {
        Cut(sub, "is in a cycle of blocks that contain each other, or inside one");
      }
    }
    for (pb::OpDesc::Attr* attr : cut_) {
      attr->set_type(pb::STRING);
      attr->clear_block_idx();
      attr->clear_blocks_idx();
      attr->set_s("(cut)");
    }
  }

  pb::ProgramDesc& program_;
  std::vector<std::string> lines_;
  std::vector<int> kept_vars_;
  std::vector<SubBlock> sub_blocks_;
  absl::flat_hash_set<pb::OpDesc::Attr*> cut_;
};

absl::optional<pb::ProgramDesc> ParseLeniently(absl::string_view bytes, ProgramFormat format) {
  pb::ProgramDesc desc;
  google::protobuf::LogSilencer silencer;  // names what is not UTF-8, as Mender does
  if (format == ProgramFormat::kBinary) {
    if (!desc.ParsePartialFromArray(bytes.data(), static_cast<int>(bytes.size()))) return {};
    return desc;
  }
  if (format != ProgramFormat::kProtoText) return {};
  google::protobuf::TextFormat::Parser parser;
  parser.AllowPartialMessage(true);
  if (!parser.ParseFromString(std::string(WithoutByteOrderMark(bytes)), &desc)) return {};
  return desc;
}

}  // namespace

absl::StatusOr<ReadableProgram> ReadMalformedProgram(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(FileBytes file, ReadFile(path, INT_MAX));
  WEFT_ASSIGN_OR_RETURN(const ProgramFormat format, FormatOfFile(path, file.bytes));
  absl::StatusOr<Program> program = ParseProgramFile(file, format);
  if (program.ok()) return ReadableProgram{*std::move(program), {}, std::move(file), format};
  if (file.bytes.empty()) return program.status();
  absl::optional<pb::ProgramDesc> desc = ParseLeniently(file.bytes, format);
  if (!desc.has_value()) return program.status();
  std::vector<std::string> malformed = Mender(&*desc).Mend();
  absl::StatusOr<Program> mended = Program::FromProto(*desc);
  if (!mended.ok() || malformed.empty()) return program.status();
  return ReadableProgram{*std::move(mended), std::move(malformed), std::move(file), format};
}

}  // namespace weft
