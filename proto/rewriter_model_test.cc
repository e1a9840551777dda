// Random edits, compared with the same edits on a plain list.
#include <map>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gtest/gtest.h"
#include "proto/program.h"
#include "proto/rewriter.h"
#include "proto/testing/program_builder.h"
#include "rapidcheck/gtest.h"

namespace weft::testing {
namespace {

// The edits of one commit by the book: for every op what stands before and after it.
class NaiveRewriter {
 public:
  explicit NaiveRewriter(std::vector<std::string> types) : types_(std::move(types)) {
    before_.resize(types_.size());
    after_.resize(types_.size());
    stays_.assign(types_.size(), true);
  }

  void InsertBefore(size_t i, const std::string& type) { before_[i].push_back(type); }
  void InsertAfter(size_t i, const std::string& type) { after_[i].push_back(type); }
  void Prepend(const std::string& type) { first_.push_back(type); }
  void Append(const std::string& type) { last_.push_back(type); }
  void Replace(size_t i, const std::string& type) { replaced_[i] = type; }
  void Erase(size_t i) { stays_[i] = false; }
  void MoveBefore(size_t i, size_t anchor) {
    stays_[i] = false;
    before_[anchor].push_back(types_[i]);
  }

  std::vector<std::string> Result() const {
    std::vector<std::string> result = first_;
    const auto put = [&](const std::vector<std::string>& types) {
      result.insert(result.end(), types.begin(), types.end());
    };
    for (size_t i = 0; i < types_.size(); ++i) {
      put(before_[i]);
      if (stays_[i]) put({replaced_.count(i) > 0 ? replaced_.at(i) : types_[i]});
      put(after_[i]);
    }
    put(last_);
    return result;
  }

 private:
  std::vector<std::string> types_, first_, last_;
  std::vector<std::vector<std::string>> before_, after_;
  std::vector<bool> stays_;
  std::map<size_t, std::string> replaced_;
};

std::vector<std::string> Types(const Program& program, int block) {
  std::vector<std::string> types;
  for (OpId id : program.block(block).ops()) types.emplace_back(program.op(id).type());
  return types;
}

std::vector<std::string> WrittenTypes(const pb::ProgramDesc& desc, int block) {
  std::vector<std::string> types;
  for (const pb::OpDesc& op : desc.blocks(block).ops()) types.push_back(op.type());
  return types;
}

// An edit of a block, at op number `at` modulo the number of ops.
struct Edit {
  enum Kind { kPrepend, kAppend, kInsertBefore, kInsertAfter, kReplace, kErase, kMoveBefore };
  int kind = kPrepend;
  size_t at = 0;
  size_t anchor = 0;  // of a move
};

std::ostream& operator<<(std::ostream& out, const Edit& edit) {
  return out << "edit " << edit.kind << " at " << edit.at << " anchor " << edit.anchor;
}

// The edits of one commit, by block.
using Edits = std::vector<std::vector<Edit>>;
constexpr int kBlocks = 3;

pb::OpDesc OfType(const std::string& type) { return ProgramBuilder().Op(type, {}, {}).last_op(); }

class Rewrites {
 public:
  // `ops` by block.
  explicit Rewrites(const std::vector<size_t>& ops) : program_(ProgramBuilder().Build()) {
    ProgramBuilder builder;
    for (size_t b = 0; b < ops.size(); ++b) {
      if (b > 0) builder.NewBlock();
      for (size_t n = ops[b]; n-- > 0;) builder.Op(Fresh(), {}, {});
    }
    program_ = builder.Build();
  }

  // Commits and checks the outcome.
  void Commit(const Edits& edits) {
    Rewriter rewriter(&program_);
    std::vector<NaiveRewriter> naive;
    std::map<OpId, std::string> bytes;  // of ops that shall stay as they are
    for (int b = 0; b < program_.num_blocks(); ++b) {
      naive.emplace_back(Types(program_, b));
      std::set<size_t> edited;
      for (const Edit& edit : edits[b]) Apply(edit, b, rewriter, naive[b], edited);
      const auto ops = program_.block(b).ops();
      for (size_t i = 0; i < ops.size(); ++i) {
        if (edited.count(i) == 0) bytes[ops[i]] = std::string(program_.op(ops[i]).bytes());
      }
    }
    RC_ASSERT(rewriter.Commit().ok());

    const pb::ProgramDesc written = program_.ToProto();
    for (int b = 0; b < program_.num_blocks(); ++b) {
      RC_ASSERT(Types(program_, b) == naive[b].Result());
      RC_ASSERT(WrittenTypes(written, b) == naive[b].Result());
      const auto ops = program_.block(b).ops();
      for (uint32_t i = 0; i < ops.size(); ++i) RC_ASSERT(program_.op(ops[i]).position() == i);
    }
    for (const auto& [id, was] : bytes) RC_ASSERT(program_.op(id).bytes() == was);
    const absl::StatusOr<Program> again = Program::Parse(program_.Serialize());
    RC_ASSERT(again.ok());
    RC_ASSERT(again->num_ops() == program_.num_ops());
  }

 private:
  std::string Fresh() { return absl::StrCat("op", next_++); }

  void Apply(const Edit& edit, int block, Rewriter& rewriter, NaiveRewriter& naive,
             std::set<size_t>& edited) {
    const auto ops = program_.block(block).ops();
    const std::string type = Fresh();
    const size_t i = ops.empty() ? 0 : edit.at % ops.size();
    if (ops.empty() && edit.kind > Edit::kAppend) return;
    if (edit.kind >= Edit::kReplace && !edited.insert(i).second) return;  // one edit an op
    switch (edit.kind) {
      case Edit::kPrepend:
        rewriter.Prepend(block, OfType(type));
        return naive.Prepend(type);
      case Edit::kAppend:
        rewriter.Append(block, OfType(type));
        return naive.Append(type);
      case Edit::kInsertBefore:
        rewriter.InsertBefore(ops[i], OfType(type));
        return naive.InsertBefore(i, type);
      case Edit::kInsertAfter:
        rewriter.InsertAfter(ops[i], OfType(type));
        return naive.InsertAfter(i, type);
      case Edit::kReplace:
        rewriter.Replace(ops[i], OfType(type));
        return naive.Replace(i, type);
      case Edit::kErase:
        rewriter.Erase(ops[i]);
        return naive.Erase(i);
      default:
        rewriter.MoveBefore(ops[i], ops[edit.anchor % ops.size()]);
        return naive.MoveBefore(i, edit.anchor % ops.size());
    }
  }

  int next_ = 0;
  Program program_;
};

rc::Gen<size_t> Below(size_t n) {
  return rc::gen::resize(rc::kNominalSize, rc::gen::inRange<size_t>(0, n));
}

rc::Gen<Edit> AnyEdit() {
  return rc::gen::build<Edit>(
      rc::gen::set(&Edit::kind, rc::gen::cast<int>(Below(Edit::kMoveBefore + 1))),
      rc::gen::set(&Edit::at, Below(12)), rc::gen::set(&Edit::anchor, Below(12)));
}

RC_GTEST_PROP(RewriterModelTest, CommitsDoWhatAPlainListDoes, ()) {
  const auto edits_of_block = rc::gen::resize(15, rc::gen::container<std::vector<Edit>>(AnyEdit()));
  const auto commits = *rc::gen::resize(4, rc::gen::container<std::vector<Edits>>(
                                               rc::gen::container<Edits>(kBlocks, edits_of_block)));
  Rewrites rewrites(*rc::gen::container<std::vector<size_t>>(kBlocks, Below(12)));
  for (const Edits& edits : commits) rewrites.Commit(edits);
}

TEST(RewriterModelTest, HundredThousandEditsAtOneOpKeepTheirOrder) {
  Program program = ProgramBuilder().Op("anchor", {}, {}).Build();
  const OpId anchor = program.block(0).ops()[0];
  Rewriter rewriter(&program);
  std::vector<std::string> expected;
  for (int i = 0; i < 100000; ++i) {
    expected.push_back(absl::StrCat("op", i % 100));
    rewriter.InsertBefore(anchor, ProgramBuilder().Op(expected.back(), {}, {}).last_op());
  }
  WEFT_ASSERT_OK(rewriter.Commit());
  expected.push_back("anchor");
  EXPECT_EQ(Types(program, 0), expected);
}

}  // namespace
}  // namespace weft::testing
