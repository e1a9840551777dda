#include "proto/shared_vector.h"

#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;

SharedVector<int> OneTwoThree() {
  SharedVector<int> v;
  for (int i : {1, 2, 3}) v.push_back(i);
  v.Share();
  return v;
}

std::vector<int> All(const SharedVector<int>& v) {
  std::vector<int> all;
  for (size_t i = 0; i < v.size(); ++i) all.push_back(v[i]);
  return all;
}

TEST(SharedVectorTest, CopiesAppendEachTheirOwn) {
  SharedVector<int> a = OneTwoThree();
  a.push_back(4);
  SharedVector<int> b = a;
  a.push_back(5);
  b.push_back(6);
  EXPECT_THAT(All(a), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(All(b), ElementsAre(1, 2, 3, 4, 6));
}

TEST(SharedVectorTest, CopyDoesNotSeeChanges) {
  SharedVector<int> a = OneTwoThree();
  const SharedVector<int> b = a;
  a.Mutable(0) = 7;
  a.Mutable(1) = 8;
  EXPECT_THAT(All(a), ElementsAre(7, 8, 3));
  EXPECT_THAT(All(b), ElementsAre(1, 2, 3));
}

TEST(SharedVectorTest, CopiesShareMemoryUntilOneIsChanged) {
  SharedVector<int> a = OneTwoThree();
  SharedVector<int> b = a;
  EXPECT_EQ(&a[0], &b[0]);
  b.Mutable(2) = 9;
  EXPECT_NE(&a[0], &b[0]);
  const int* const before = &a[0];
  a.Mutable(2) = 9;  // nobody else has it any more
  EXPECT_EQ(&a[0], before);
}

TEST(SharedVectorTest, SpansAreOfSharedOrOfOwnElements) {
  SharedVector<int> a = OneTwoThree();
  a.push_back(4);
  a.push_back(5);
  EXPECT_THAT(a.subspan(1, 2), ElementsAre(2, 3));
  EXPECT_THAT(a.subspan(3, 2), ElementsAre(4, 5));
  EXPECT_THAT(a.subspan(5, 0), ElementsAre());
}

TEST(SharedVectorTest, OwnElementsCanBeDropped) {
  SharedVector<int> a = OneTwoThree();
  a.push_back(4);
  a.resize(3);
  EXPECT_THAT(All(a), ElementsAre(1, 2, 3));
  a.resize(4);
  EXPECT_THAT(All(a), ElementsAre(1, 2, 3, 0));
}

TEST(SharedVectorTest, MovedVectorKeepsItsElements) {
  SharedVector<int> a = OneTwoThree();
  const SharedVector<int> b = std::move(a);
  EXPECT_THAT(All(b), ElementsAre(1, 2, 3));
}

}  // namespace
}  // namespace weft
