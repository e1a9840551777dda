#include "proto/diff/sequence_alignment.h"

#include <algorithm>
#include <random>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rapidcheck/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

std::vector<uint64_t> Keys(const std::string& letters) { return {letters.begin(), letters.end()}; }

std::vector<std::pair<int, int>> Align(const std::vector<uint64_t>& a,
                                       const std::vector<uint64_t>& b) {
  std::vector<std::pair<int, int>> pairs;
  for (const AlignedPair& pair : AlignSequences(a, b)) pairs.emplace_back(pair.a, pair.b);
  return pairs;
}

// The aligned elements as letters; also checks that they are a common subsequence.
std::string Common(const std::string& a, const std::string& b) {
  std::string common;
  int last_a = -1, last_b = -1;
  for (const auto& [i, j] : Align(Keys(a), Keys(b))) {
    EXPECT_GT(i, last_a);
    EXPECT_GT(j, last_b);
    EXPECT_EQ(a[i], b[j]);
    common.push_back(a[i]);
    last_a = i;
    last_b = j;
  }
  return common;
}

size_t LongestCommon(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> length(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      length[i][j] = a[i - 1] == b[j - 1] ? length[i - 1][j - 1] + 1
                                          : std::max(length[i - 1][j], length[i][j - 1]);
    }
  }
  return length[a.size()][b.size()];
}

TEST(SequenceAlignmentTest, EqualSequencesAlignElementByElement) {
  EXPECT_THAT(Align(Keys("abc"), Keys("abc")), ElementsAre(Pair(0, 0), Pair(1, 1), Pair(2, 2)));
}

TEST(SequenceAlignmentTest, EmptyAndForeignSequencesHaveNothingInCommon) {
  EXPECT_THAT(Align({}, {}), IsEmpty());
  EXPECT_THAT(Align(Keys("abc"), {}), IsEmpty());
  EXPECT_THAT(Align({}, Keys("abc")), IsEmpty());
  EXPECT_THAT(Align(Keys("abc"), Keys("xyz")), IsEmpty());
}

TEST(SequenceAlignmentTest, InsertedElementsAreSteppedOver) {
  EXPECT_EQ(Common("abcdef", "abXcdYYef"), "abcdef");
}

TEST(SequenceAlignmentTest, MovedElementIsLeftOutOnce) {
  EXPECT_EQ(Common("abcdef", "bcdeaf"), "bcdef");
}

TEST(SequenceAlignmentTest, RepeatedElementsAlignBetweenUniqueOnes) {
  EXPECT_EQ(Common("sxsysz", "xssysszs"), "xsysz");
}

RC_GTEST_PROP(SequenceAlignmentTest, OnlyRepeatedElementsGiveTheLongestCommonSubsequence, ()) {
  // Every letter twice or more on one side: none is unique, so the search is exact.
  const auto letters =
      rc::gen::resize(30, rc::gen::container<std::string>(rc::gen::element('a', 'b', 'c')));
  const std::string a = *letters + "abcabc", b = *letters + "cbacba";
  RC_ASSERT(Common(a, b).size() == LongestCommon(a, b));
}

TEST(SequenceAlignmentTest, LargeGapWithoutUniqueElementsIsAlignedInWindows) {
  // Far more than is solved exactly; no key is unique, and the ends differ.
  std::mt19937 random(5);
  std::string a = "x", b = "y", kept;
  for (int i = 0; i < 20000; ++i) {
    const char c = 'a' + i % 23;
    a.push_back(c);
    if (random() % 50 != 0) {
      b.push_back(c);
      kept.push_back(c);
    }
    if (random() % 50 == 0) b.push_back('a' + random() % 23);
  }
  a.append("z");
  b.append("w");
  EXPECT_GE(Common(a, b).size(), kept.size() * 99 / 100);
}

TEST(SequenceAlignmentTest, MillionElementsWithManyEditsAlign) {
  std::mt19937 random(4);
  std::vector<uint64_t> a, b;
  for (uint64_t i = 0; i < 1000000; ++i) {
    a.push_back(i % 10 == 0 ? 7 : i + 100);  // every tenth is the same
    if (random() % 20 != 0) b.push_back(a.back());
    if (random() % 20 == 0) b.push_back(~i);
  }
  const std::vector<AlignedPair> pairs = AlignSequences(a, b);
  EXPECT_GT(pairs.size(), 900000u);
  EXPECT_TRUE(std::all_of(pairs.begin(), pairs.end(),
                          [&](const AlignedPair& pair) { return a[pair.a] == b[pair.b]; }));
}

TEST(SequenceAlignmentTest, ReversedSequenceEndsInTime) {
  std::vector<uint64_t> a(300000);
  for (size_t i = 0; i < a.size(); ++i) a[i] = i;
  const std::vector<uint64_t> b(a.rbegin(), a.rend());
  EXPECT_EQ(AlignSequences(a, b).size(), 1u);
}

}  // namespace
}  // namespace weft
