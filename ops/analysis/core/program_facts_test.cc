#include "ops/analysis/core/program_facts.h"

#include <atomic>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "proto/rewriter.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

std::atomic<int> num_calls;

size_t CountOps(const Program& program) {
  ++num_calls;
  return program.num_ops();
}

size_t CountTwice(const ProgramFacts& facts) { return 2 * facts.Get(CountOps); }

struct NumOps {
  explicit NumOps(const Program& program) : found(program.num_ops()) { ++num_calls; }
  size_t found;
};

struct TwiceNumOps {
  explicit TwiceNumOps(const ProgramFacts& facts) : found(2 * facts.Get<NumOps>().found) {}
  size_t found;
};

size_t CountOf(const ProgramFacts& facts) { return facts.Get(CountOps); }

Program OneOp() { return ProgramBuilder().Op("relu", {}, {{"Out", {"a"}}}).Build(); }

class ProgramFactsTest : public ::testing::Test {
 protected:
  ProgramFactsTest() { num_calls = 0; }
};

TEST_F(ProgramFactsTest, AResultIsFoundOnce) {
  const Program program = OneOp();
  const ProgramFacts facts(program);
  EXPECT_EQ(num_calls, 0);
  EXPECT_EQ(facts.Get(CountOps), 1);
  EXPECT_EQ(&facts.Get(CountOps), &facts.Get(CountOps));
  EXPECT_EQ(facts.Get(CountTwice), 2);
  EXPECT_EQ(num_calls, 1);
}

TEST_F(ProgramFactsTest, ClassesAreMadeOfProgramsAndOfFacts) {
  const Program program = OneOp();
  const ProgramFacts facts(program);
  EXPECT_EQ(facts.Get<TwiceNumOps>().found, 2);
  EXPECT_EQ(facts.Get<NumOps>().found, 1);
  EXPECT_EQ(num_calls, 1);
}

TEST_F(ProgramFactsTest, CopiesShareResults) {
  const Program program = OneOp();
  const ProgramFacts facts(program);
  const ProgramFacts copy = facts;
  EXPECT_EQ(&copy.Get(CountOps), &facts.Get(CountOps));
  EXPECT_EQ(num_calls, 1);
}

TEST_F(ProgramFactsTest, ACommitChangesTheResult) {
  Program program = OneOp();
  const ProgramFacts facts(program);
  EXPECT_EQ(facts.Get(CountTwice), 2);
  Rewriter rewriter(&program);
  rewriter.Erase(program.block(0).ops()[0]);
  ASSERT_TRUE(rewriter.Commit().ok());
  EXPECT_EQ(facts.Get(CountTwice), 0);
  EXPECT_EQ(num_calls, 2);
}

TEST_F(ProgramFactsTest, AProgramWillDo) {
  const Program program = OneOp();
  EXPECT_EQ(CountOf(program), 1);
}

TEST_F(ProgramFactsTest, OfSeveralThreadsOneComputesAResult) {
  const Program program = OneOp();
  const ProgramFacts facts(program);
  std::atomic<size_t> sum{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back([&] { sum += facts.Get(CountTwice); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sum, 16);
  EXPECT_EQ(num_calls, 1);
}

}  // namespace
}  // namespace weft::testing
