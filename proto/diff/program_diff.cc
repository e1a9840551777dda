#include "proto/diff/program_diff.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/diff/diff_details.h"
#include "proto/diff/sequence_alignment.h"
#include "proto/text/program_text.h"
#include "proto/text/text_op.h"
#include "proto/text/text_words.h"

namespace weft {
namespace {

using Details = std::vector<DifferenceDetail>;
using Kind = Difference::Kind;
using Subject = Difference::Subject;

// Adds pairs in the gaps between existing pairs.
std::vector<AlignedPair> FillGaps(const std::vector<AlignedPair>& pairs,
                                  absl::Span<const uint64_t> a, absl::Span<const uint64_t> b) {
  std::vector<AlignedPair> filled;
  size_t a_begin = 0, b_begin = 0;
  const auto fill_until = [&](size_t a_end, size_t b_end) {
    if (a_begin == a_end || b_begin == b_end) return;
    for (const AlignedPair& pair :
         AlignSequences(a.subspan(a_begin, a_end - a_begin), b.subspan(b_begin, b_end - b_begin))) {
      filled.push_back({a_begin + pair.a, b_begin + pair.b});
    }
  };
  for (const AlignedPair& pair : pairs) {
    fill_until(pair.a, pair.b);
    filled.push_back(pair);
    a_begin = pair.a + 1;
    b_begin = pair.b + 1;
  }
  fill_until(a.size(), b.size());
  return filled;
}

// Pairs the ops of two blocks. Decodes only ops whose bytes have no counterpart.
std::vector<AlignedPair> AlignOps(const Program& a, absl::Span<const OpId> a_ops, const Program& b,
                                  absl::Span<const OpId> b_ops) {
  std::vector<AlignedPair> pairs = AlignSequences(ByteKeysOf(a, a_ops), ByteKeysOf(b, b_ops));
  std::vector<bool> a_paired(a_ops.size()), b_paired(b_ops.size());
  for (const AlignedPair& pair : pairs) a_paired[pair.a] = b_paired[pair.b] = true;
  const OpKeys x = KeysOf(a, a_ops, a_paired), y = KeysOf(b, b_ops, b_paired);
  pairs = FillGaps(pairs, x.whole, y.whole);
  pairs = FillGaps(pairs, x.type_and_outputs, y.type_and_outputs);
  return FillGaps(pairs, x.type, y.type);
}

// Those of a block; none if the program does not have it.
absl::Span<const VarId> VarsOf(const Program& program, int block) {
  return block < program.num_blocks() ? program.block(block).vars() : absl::Span<const VarId>();
}
absl::Span<const OpId> OpsOf(const Program& program, int block) {
  return block < program.num_blocks() ? program.block(block).ops() : absl::Span<const OpId>();
}

class ProgramDiffer {
 public:
  ProgramDiffer(const Program& a, const Program& b) : a_(a), b_(b) {}

  std::vector<Difference> Diff() {
    AddChanged(Subject::kProgram, -1, ComparePrograms(a_.OtherFields(), b_.OtherFields()));
    const int blocks = std::max(a_.num_blocks(), b_.num_blocks());
    for (int block = 0; block < blocks; ++block) {
      DiffBlockFields(block);
      DiffVars(block);
      DiffOps(block);
    }
    return std::move(differences_);
  }

 private:
  Difference& Add(Kind kind, Subject subject, int block) {
    Difference& difference = differences_.emplace_back();
    difference.kind = kind;
    difference.subject = subject;
    difference.block = block;
    return difference;
  }

  // An op or variable of one side only, with its line.
  void AddOneSided(Kind kind, Subject subject, int block, size_t index, absl::string_view name,
                   std::string text) {
    Difference& difference = Add(kind, subject, block);
    (kind == Kind::kRemoved ? difference.a_index : difference.b_index) = static_cast<int>(index);
    difference.name = std::string(name);
    difference.text = std::move(text);
  }
  void AddVar(Kind kind, const Var& var, size_t index) {
    AddOneSided(kind, Subject::kVar, var.block(), index, var.name(),
                VarText(var, PrintOptions::Short()));
  }
  void AddOp(Kind kind, const Op& op, size_t index) {
    AddOneSided(kind, Subject::kOp, op.block(), index, op.type(),
                OpText(op, PrintOptions::Short()));
  }

  // Nothing without details.
  void AddChanged(Subject subject, int block, Details details, absl::string_view name = "",
                  int a_index = -1, int b_index = -1) {
    if (details.empty()) return;
    Difference& difference = Add(Kind::kChanged, subject, block);
    difference.a_index = a_index;
    difference.b_index = b_index;
    difference.name = std::string(name);
    difference.details = std::move(details);
  }

  void DiffBlockFields(int block) {
    const bool in_a = block < a_.num_blocks(), in_b = block < b_.num_blocks();
    if (in_a && in_b) {
      AddChanged(Subject::kBlock, block,
                 CompareBlocks(a_.OtherFields(block), b_.OtherFields(block)));
      return;
    }
    Difference& difference = Add(in_a ? Kind::kRemoved : Kind::kAdded, Subject::kBlock, block);
    AppendBlockHead((in_a ? a_ : b_).OtherFields(block), PrintOptions::Short(), &difference.text);
  }

  // Positions of the variables of a block. Unlike Block::FindVar it includes kEmptyVarName.
  using IndexOfName = absl::flat_hash_map<absl::string_view, int>;
  static IndexOfName IndexVars(const Program& program, absl::Span<const VarId> vars) {
    IndexOfName index;
    for (size_t i = 0; i < vars.size(); ++i) {
      index.emplace(program.var(vars[i]).name(), static_cast<int>(i));
    }
    return index;
  }

  void DiffVars(int block) {
    const absl::Span<const VarId> a_vars = VarsOf(a_, block), b_vars = VarsOf(b_, block);
    const IndexOfName a_index = IndexVars(a_, a_vars), b_index = IndexVars(b_, b_vars);
    for (size_t i = 0; i < a_vars.size(); ++i) {
      const Var var = a_.var(a_vars[i]);
      const auto other = b_index.find(var.name());
      if (other == b_index.end()) {
        AddVar(Kind::kRemoved, var, i);
      } else {
        AddChanged(Subject::kVar, block, CompareVars(var, b_.var(b_vars[other->second])),
                   var.name(), static_cast<int>(i), other->second);
      }
    }
    for (size_t i = 0; i < b_vars.size(); ++i) {
      const Var var = b_.var(b_vars[i]);
      if (!a_index.contains(var.name())) AddVar(Kind::kAdded, var, i);
    }
  }

  void DiffOps(int block) {
    const absl::Span<const OpId> a_ops = OpsOf(a_, block), b_ops = OpsOf(b_, block);
    std::vector<AlignedPair> pairs = AlignOps(a_, a_ops, b_, b_ops);
    pairs.push_back({a_ops.size(), b_ops.size()});  // the ends
    size_t i = 0, j = 0;
    for (const AlignedPair& pair : pairs) {
      for (; i < pair.a; ++i) AddOp(Kind::kRemoved, a_.op(a_ops[i]), i);
      for (; j < pair.b; ++j) AddOp(Kind::kAdded, b_.op(b_ops[j]), j);
      if (i == a_ops.size() || j == b_ops.size()) continue;
      const Op a = a_.op(a_ops[i]), b = b_.op(b_ops[j]);
      AddChanged(Subject::kOp, block, CompareOps(a, b), a.type(), static_cast<int>(i++),
                 static_cast<int>(j++));
    }
  }

  const Program& a_;
  const Program& b_;
  std::vector<Difference> differences_;
};

// --- Rendering ----------------------------------------------------------------------------------

// "op 15 -> 16 (scale)", "var x", "block 2", "program".
std::string SubjectText(const Difference& d) {
  switch (d.subject) {
    case Subject::kProgram:
      return "program";
    case Subject::kBlock:
      return absl::StrCat("block ", d.block);
    case Subject::kVar:
      break;
    case Subject::kOp: {
      std::string text = absl::StrCat("op ", d.a_index >= 0 ? d.a_index : d.b_index);
      if (d.kind != Kind::kChanged) return text;
      if (d.a_index != d.b_index) absl::StrAppend(&text, " -> ", d.b_index);
      absl::StrAppend(&text, " (");
      AppendName(d.name, &text);
      return absl::StrCat(text, ")");
    }
  }
  std::string text = "var ";
  AppendName(d.name, &text);
  return text;
}

}  // namespace

std::vector<Difference> DiffPrograms(const Program& a, const Program& b) {
  return ProgramDiffer(a, b).Diff();
}

std::string DifferencesText(absl::Span<const Difference> differences) {
  std::string text;
  int block = -1;
  for (const Difference& d : differences) {
    if (d.block != block) {
      block = d.block;
      absl::StrAppend(&text, "block ", block, "\n");
    }
    if (d.kind == Kind::kChanged) {
      absl::StrAppend(&text, "~ ", SubjectText(d), ": ",
                      absl::StrJoin(d.details, "; ",
                                    [](std::string* out, const DifferenceDetail& detail) {
                                      absl::StrAppend(out, detail.what, ": ", detail.a, " -> ",
                                                      detail.b);
                                    }),
                      "\n");
      continue;
    }
    absl::StrAppend(&text, d.kind == Kind::kRemoved ? "- " : "+ ");
    // Unlike lines of variables and blocks, the line of an op does not identify it.
    if (d.subject == Subject::kOp) absl::StrAppend(&text, SubjectText(d), ": ");
    absl::StrAppend(&text, d.text, "\n");
  }
  return text;
}

}  // namespace weft
