#include "executor/jobs/late_ranks.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/test.h"

namespace weft::testing {
namespace {

TEST(LateRanksTest, ListsRanksAndRanges) {
  EXPECT_EQ(RankList({3}), "rank 3");
  EXPECT_EQ(RankList({0, 1, 2}), "rank 0, 1, 2");
  EXPECT_EQ(RankList({0, 1, 2, 3}), "rank 0-3");
  EXPECT_EQ(RankList({0, 2, 3, 4, 5, 6, 9, 10}), "rank 0, 2-6, 9, 10");
}

TEST(LateRanksTest, NamesEachPlaceOnce) {
  EXPECT_EQ(
      DescribeLateRanks("ring 0, all-reduce #2 of w (fp32[1])", {{1, "never arrived"}}, {0}, 5),
      "ring 0, all-reduce #2 of w (fp32[1]): rank 1 has not arrived after 5 s; waiting: rank 0; "
      "rank 1 has never arrived");
  EXPECT_EQ(
      DescribeLateRanks(
          "ring 0", {{1, "last arrived at a"}, {2, "last arrived at b"}, {3, "last arrived at a"}},
          {0}, 5),
      "ring 0: rank 1, 2, 3 have not arrived after 5 s; waiting: rank 0; rank 2 last arrived at "
      "b; rank 1, 3 last arrived at a");
}

TEST(LateRanksTest, MessageAboutTenThousandRanksIsShort) {
  std::vector<LateRank> late;
  std::vector<int> waiting;
  for (int rank = 0; rank < 10000; ++rank) {
    if (rank % 2000 == 1999) {
      late.push_back({rank, absl::StrCat("last arrived at all-reduce #", rank)});
    } else {
      waiting.push_back(rank);
    }
  }
  EXPECT_THAT(DescribeLateRanks("ring 0", late, waiting, 60),
              StartsWith("ring 0: rank 1999, 3999, 5999, 7999, 9999 have not arrived after 60 s; "
                         "waiting: rank 0-1998, 2000-3998, 4000-5998, 6000-7998, 8000-9998; rank "
                         "1999 last arrived at all-reduce #1999; "));
  for (int rank = 0; rank < 10000; ++rank) {
    if (rank % 2000 != 1999) late.push_back({rank, absl::StrCat("at ", rank)});
  }
  const std::string many = DescribeLateRanks("ring 0", late, {}, 60);
  EXPECT_THAT(many, HasSubstr("; others at 9992 more places"));
  EXPECT_THAT(many, Not(HasSubstr("at 9998;")));
}

}  // namespace
}  // namespace weft::testing
