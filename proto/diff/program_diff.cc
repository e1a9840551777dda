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

// Adds pairs in the gaps between the pairs that there are.
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

// The ops of both blocks, in pairs. Only those are decoded whose bytes have no counterpart.
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

class Differ {
 public:
  Differ(const Program& a, const Program& b) : a_(a), b_(b) {}

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
  bool InA(int block) const { return block < a_.num_blocks(); }
  bool InB(int block) const { return block < b_.num_blocks(); }

  Difference& Add(Kind kind, Subject subject, int block) {
    differences_.emplace_back();
    Difference& difference = differences_.back();
    difference.kind = kind;
    difference.subject = subject;
    difference.block = block;
    return difference;
  }

  void AddChanged(Subject subject, int block, Details details) {
    if (!details.empty()) Add(Kind::kChanged, subject, block).details = std::move(details);
  }

  void DiffBlockFields(int block) {
    if (!InA(block) || !InB(block)) {
      Difference& difference =
          Add(InA(block) ? Kind::kRemoved : Kind::kAdded, Subject::kBlock, block);
      AppendBlockHead((InA(block) ? a_ : b_).OtherFields(block), PrintOptions::Short(),
                      &difference.text);
      return;
    }
    AddChanged(Subject::kBlock, block, CompareBlocks(a_.OtherFields(block), b_.OtherFields(block)));
  }

  // Positions of the variables of a block. Unlike Block::FindVar it has those that no argument may
  // name (kEmptyVarName).
  using IndexOfName = absl::flat_hash_map<absl::string_view, int>;
  static IndexOfName IndexVars(const Program& program, int block) {
    IndexOfName index;
    const absl::Span<const VarId> vars = program.block(block).vars();
    for (size_t i = 0; i < vars.size(); ++i) {
      index.emplace(program.var(vars[i]).name(), static_cast<int>(i));
    }
    return index;
  }

  // Variable `index` of a block, on one side only.
  void AddVar(Kind kind, const Program& program, int block, size_t index) {
    const Var var = program.var(program.block(block).vars()[index]);
    Difference& difference = Add(kind, Subject::kVar, block);
    (kind == Kind::kRemoved ? difference.a_index : difference.b_index) = static_cast<int>(index);
    difference.name = std::string(var.name());
    difference.text = VarText(var, PrintOptions::Short());
  }

  void DiffVars(int block) {
    const auto a_vars = InA(block) ? a_.block(block).vars() : absl::Span<const VarId>();
    const auto b_vars = InB(block) ? b_.block(block).vars() : absl::Span<const VarId>();
    const IndexOfName a_index = InA(block) ? IndexVars(a_, block) : IndexOfName();
    const IndexOfName b_index = InB(block) ? IndexVars(b_, block) : IndexOfName();

    for (size_t i = 0; i < a_vars.size(); ++i) {
      const Var var = a_.var(a_vars[i]);
      const auto other = b_index.find(var.name());
      if (other == b_index.end()) {
        AddVar(Kind::kRemoved, a_, block, i);
        continue;
      }
      Details details = CompareVars(var, b_.var(b_vars[other->second]));
      if (!details.empty()) {
        Difference& difference = Add(Kind::kChanged, Subject::kVar, block);
        difference.a_index = static_cast<int>(i);
        difference.b_index = other->second;
        difference.name = std::string(var.name());
        difference.details = std::move(details);
      }
    }
    for (size_t i = 0; i < b_vars.size(); ++i) {
      if (!a_index.contains(b_.var(b_vars[i]).name())) AddVar(Kind::kAdded, b_, block, i);
    }
  }

  // Op `index` of a block, on one side only.
  void AddOp(Kind kind, const Program& program, int block, size_t index) {
    const Op op = program.op(program.block(block).ops()[index]);
    Difference& difference = Add(kind, Subject::kOp, block);
    (kind == Kind::kRemoved ? difference.a_index : difference.b_index) = static_cast<int>(index);
    difference.name = std::string(op.type());
    difference.text = OpText(op, PrintOptions::Short());
  }

  void DiffOps(int block) {
    const auto a_ops = InA(block) ? a_.block(block).ops() : absl::Span<const OpId>();
    const auto b_ops = InB(block) ? b_.block(block).ops() : absl::Span<const OpId>();
    std::vector<AlignedPair> pairs = AlignOps(a_, a_ops, b_, b_ops);
    pairs.push_back({a_ops.size(), b_ops.size()});  // the ends
    size_t i = 0, j = 0;
    for (const AlignedPair& pair : pairs) {
      for (; i < pair.a; ++i) AddOp(Kind::kRemoved, a_, block, i);
      for (; j < pair.b; ++j) AddOp(Kind::kAdded, b_, block, j);
      if (i == a_ops.size() || j == b_ops.size()) continue;
      Details details = CompareOps(a_.op(a_ops[i]), b_.op(b_ops[j]));
      if (!details.empty()) {
        Difference& difference = Add(Kind::kChanged, Subject::kOp, block);
        difference.a_index = static_cast<int>(i);
        difference.b_index = static_cast<int>(j);
        difference.name = std::string(a_.op(a_ops[i]).type());
        difference.details = std::move(details);
      }
      ++i;
      ++j;
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

std::string DetailText(const DifferenceDetail& detail) {
  return absl::StrCat(detail.what, ": ", detail.a, " -> ", detail.b);
}

}  // namespace

std::vector<Difference> DiffPrograms(const Program& a, const Program& b) {
  return Differ(a, b).Diff();
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
                                      out->append(DetailText(detail));
                                    }),
                      "\n");
      continue;
    }
    absl::StrAppend(&text, d.kind == Kind::kRemoved ? "- " : "+ ");
    // The line of an op does not say where it stands; those of variables and blocks name them.
    if (d.subject == Subject::kOp) absl::StrAppend(&text, SubjectText(d), ": ");
    absl::StrAppend(&text, d.text, "\n");
  }
  return text;
}

}  // namespace weft
