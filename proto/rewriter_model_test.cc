// Random edits, compared with the same edits on a plain list.
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gtest/gtest.h"
#include "proto/program.h"
#include "proto/program_builder.h"
#include "proto/rewriter.h"

namespace weft {
namespace {

using ::weft::testing::ProgramBuilder;

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

class RandomRewrites {
 public:
  explicit RandomRewrites(unsigned seed) : random_(seed), program_(ProgramBuilder().Build()) {
    ProgramBuilder builder;
    for (int b = 0; b < 3; ++b) {
      if (b > 0) builder.NewBlock();
      for (size_t n = Below(12); n-- > 0;) builder.Op(Fresh(), {}, {});
    }
    program_ = builder.Build();
  }

  // One commit of random edits in all blocks; checks the outcome.
  void Commit() {
    Rewriter rewriter(&program_);
    std::vector<NaiveRewriter> naive;
    std::map<OpId, std::string> bytes;  // of ops that shall stay as they are
    for (int b = 0; b < program_.num_blocks(); ++b) {
      naive.emplace_back(Types(program_, b));
      std::set<size_t> edited;
      for (size_t n = Below(15); n-- > 0;) Edit(b, rewriter, naive[b], edited);
      const auto ops = program_.block(b).ops();
      for (size_t i = 0; i < ops.size(); ++i) {
        if (edited.count(i) == 0) bytes[ops[i]] = std::string(program_.op(ops[i]).bytes());
      }
    }
    WEFT_ASSERT_OK(rewriter.Commit());

    const pb::ProgramDesc written = program_.ToProto();
    for (int b = 0; b < program_.num_blocks(); ++b) {
      EXPECT_EQ(Types(program_, b), naive[b].Result());
      EXPECT_EQ(WrittenTypes(written, b), naive[b].Result());
    }
    for (const auto& [id, was] : bytes) EXPECT_EQ(program_.op(id).bytes(), was);
    WEFT_ASSERT_OK_AND_ASSIGN(const Program again, Program::Parse(program_.Serialize()));
    EXPECT_EQ(again.num_ops(), program_.num_ops());
  }

 private:
  size_t Below(size_t n) { return random_() % n; }
  std::string Fresh() { return absl::StrCat("op", next_++); }
  static pb::OpDesc OfType(const std::string& type) {
    return ProgramBuilder().Op(type, {}, {}).last_op();
  }

  void Edit(int block, Rewriter& rewriter, NaiveRewriter& naive, std::set<size_t>& edited) {
    const auto ops = program_.block(block).ops();
    const std::string type = Fresh();
    const size_t kind = ops.empty() ? Below(2) : Below(7);
    if (kind == 0) {
      rewriter.Prepend(block, OfType(type));
      naive.Prepend(type);
      return;
    }
    if (kind == 1) {
      rewriter.Append(block, OfType(type));
      naive.Append(type);
      return;
    }
    const size_t i = Below(ops.size());
    if (kind == 2) {
      rewriter.InsertBefore(ops[i], OfType(type));
      naive.InsertBefore(i, type);
      return;
    }
    if (kind == 3) {
      rewriter.InsertAfter(ops[i], OfType(type));
      naive.InsertAfter(i, type);
      return;
    }
    if (!edited.insert(i).second) return;  // one edit an op
    if (kind == 4) {
      rewriter.Replace(ops[i], OfType(type));
      naive.Replace(i, type);
    } else if (kind == 5) {
      rewriter.Erase(ops[i]);
      naive.Erase(i);
    } else {
      const size_t anchor = Below(ops.size());
      rewriter.MoveBefore(ops[i], ops[anchor]);
      naive.MoveBefore(i, anchor);
    }
  }

  std::mt19937 random_;
  int next_ = 0;
  Program program_;
};

TEST(RewriterModelTest, RandomCommitsDoWhatAPlainListDoes) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    RandomRewrites rewrites(seed);
    for (int commit = 0; commit < 4; ++commit) ASSERT_NO_FATAL_FAILURE(rewrites.Commit());
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(RewriterModelTest, HundredThousandEditsBesideOneOpStandInOrder) {
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
}  // namespace weft
