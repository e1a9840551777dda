#include "executor/communicators/shared_segment.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/testing/test.h"

namespace weft::testing {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

std::shared_ptr<SharedSegment> NewSegment(size_t bytes = 256 * kMiB) {
  return *SharedSegment::Create("weft-test", bytes);
}

TEST(SharedSegmentTest, TwoMappingsShareTheirBytes) {
  const auto one = NewSegment();
  const auto other = *SharedSegment::Open(one->address());
  EXPECT_NE(one->data(), other->data());
  EXPECT_EQ(one->bytes(), other->bytes());
  static_cast<char*>(one->data())[5 * kMiB] = 7;
  EXPECT_EQ(static_cast<char*>(other->data())[5 * kMiB], 7);
}

TEST(SharedSegmentTest, AnotherFileOrNoneIsAnError) {
  const auto one = NewSegment(), other = NewSegment();
  const auto with_word = [&](size_t i, const std::string& word) {
    std::string text = one->address();
    size_t begin = 0;
    while (i-- > 0) begin = text.find(' ', begin) + 1;
    return text.replace(begin, text.find(' ', begin) - begin, word);
  };
  const std::string other_file = other->address().substr(other->address().find(' ') + 1);
  EXPECT_THAT(SharedSegment::Open(with_word(1, other_file.substr(0, other_file.find(' ')))),
              IsFailedPrecondition("is not the memory of"));
  EXPECT_THAT(SharedSegment::Open(with_word(5, "12345")),
              IsFailedPrecondition("is not the memory of"));
  EXPECT_THAT(SharedSegment::Open(with_word(1, "123456")), IsFailedPrecondition("No such file"));
  EXPECT_THAT(SharedSegment::Open("1 2"), IsFailedPrecondition("found \"1 2\""));
  const std::string address = one->address();
  one->CloseFile();
  EXPECT_THAT(SharedSegment::Open(address), IsFailedPrecondition("cannot open"));
}

TEST(SegmentMemoryTest, BlocksAreAlignedApartAndUsedAgain) {
  const auto segment = NewSegment();
  const auto memory = NewSegmentMemory(segment);
  std::vector<std::pair<char*, size_t>> blocks;
  std::vector<std::shared_ptr<void>> owners;
  for (size_t bytes : {0, 1, 63, 64, 65, 4096, 100000, 100000, 3000000, 3000000, 17}) {
    owners.push_back(memory->Allocate(bytes));
    blocks.push_back({static_cast<char*>(owners.back().get()), std::max<size_t>(bytes, 1)});
    EXPECT_EQ(reinterpret_cast<uintptr_t>(owners.back().get()) % 64, 0u);
    std::memset(owners.back().get(), 1, bytes);
  }
  std::sort(blocks.begin(), blocks.end());
  EXPECT_GE(blocks[0].first, segment->data());
  for (size_t i = 1; i < blocks.size(); ++i) {
    EXPECT_GE(blocks[i].first, blocks[i - 1].first + blocks[i - 1].second);
  }
  const void* const begin = blocks[0].first;
  owners.clear();
  // All has become one block again. It begins where the first one did, or later in that page.
  const auto all = memory->Allocate(segment->bytes() - 8192);
  EXPECT_LT(static_cast<const char*>(all.get()) - static_cast<const char*>(begin), 4096);
}

TEST(SegmentMemoryTest, LargeBlocksBeginAtDifferentPlacesInTheirPages) {
  const auto memory = NewSegmentMemory(NewSegment());
  std::set<uintptr_t> places;
  std::vector<std::shared_ptr<void>> owners;
  for (int i = 0; i < 8; ++i) {
    owners.push_back(memory->Allocate(kMiB));
    places.insert(reinterpret_cast<uintptr_t>(owners.back().get()) % 4096);
  }
  EXPECT_GE(places.size(), 6u);
}

// It would be a signal for all who read.
TEST(SharedSegmentTest, NobodyMakesItSmaller) {
  const auto segment = NewSegment();
  const std::vector<std::string> words = absl::StrSplit(segment->address(), ' ');
  const std::string path = absl::StrCat("/proc/", words[0], "/fd/", words[1]);
  EXPECT_EQ(truncate(path.c_str(), 4096), -1);
  EXPECT_EQ(errno, EPERM);
  static_cast<char*>(segment->data())[segment->bytes() - 1] = 1;
}

TEST(SegmentMemoryTest, NoRoomIsBadAlloc) {
  const auto memory = NewSegmentMemory(NewSegment(16 * kMiB));
  EXPECT_THROW(memory->Allocate(17 * kMiB), std::bad_alloc);
  EXPECT_THROW(memory->Allocate(SIZE_MAX - 10), std::bad_alloc);
  const auto most = memory->Allocate(15 * kMiB);
  EXPECT_THROW(memory->Allocate(2 * kMiB), std::bad_alloc);
}

TEST(SegmentMemoryTest, MoreThanTheMachineHasIsBadAllocBeforeItIsTouched) {
  const auto memory = NewSegmentMemory(NewSegment(TensorSegmentBytes(1)));
  EXPECT_THROW(memory->Allocate(TensorSegmentBytes(1) - kMiB), std::bad_alloc);
}

TEST(SegmentMemoryTest, LargeFreeBlocksGoBackToTheSystem) {
  constexpr size_t kBytes = 96 * kMiB;
  const auto segment = NewSegment();
  const auto memory = NewSegmentMemory(segment);
  char* const data = static_cast<char*>(segment->data());
  const auto num_resident = [&] {
    std::vector<unsigned char> pages(kBytes / 4096);
    EXPECT_EQ(mincore(data, kBytes, pages.data()), 0);
    return std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; });
  };
  auto block = memory->Allocate(kBytes);
  std::memset(block.get(), 1, kBytes);
  EXPECT_GT(num_resident(), 20000);
  block = nullptr;
  EXPECT_LT(num_resident(), 1000);
}

TEST(SegmentMemoryTest, BlocksOutliveTheMemory) {
  auto memory = NewSegmentMemory(NewSegment());
  const auto block = memory->Allocate(kMiB);
  memory = nullptr;
  std::memset(block.get(), 1, kMiB);
}

}  // namespace
}  // namespace weft::testing
