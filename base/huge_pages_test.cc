// Whether large blocks begin at a huge page and are marked for huge pages, in a test of its own,
// because base/huge_pages.cc replaces operator new in the whole binary.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <new>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace {

using ::testing::HasSubstr;

constexpr size_t kHugePage = 2 << 20;

// The line VmFlags of /proc/self/smaps for the mapping that contains the address; empty if the
// kernel does not show it.
std::string FlagsOf(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  bool is_inside = false;
  while (std::getline(maps, line)) {
    unsigned long begin, end;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      is_inside = begin <= at && at < end;
    } else if (is_inside && line.rfind("VmFlags:", 0) == 0) {
      return line + " ";
    }
  }
  return "";
}

bool KernelHasHugePages() {
  return std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled").good();
}

// Sanitizers replace the operators themselves.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsReplaced = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool kIsReplaced = false;
#else
constexpr bool kIsReplaced = true;
#endif
#else
constexpr bool kIsReplaced = true;
#endif

// A block that begins at a multiple of `alignment`, and of a huge page; it is written to its end.
void ExpectHugePages(char* block, size_t bytes, size_t alignment) {
  block[bytes - 1] = 1;
  EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % std::max(alignment, kHugePage), 0u);
  if (!KernelHasHugePages()) return;
  EXPECT_THAT(FlagsOf(block), HasSubstr(" hg "));
}

TEST(HugePagesTest, LargeBlocksAskForHugePages) {
  if (!kIsReplaced) GTEST_SKIP() << "sanitizers replace operator new themselves";
  for (const size_t bytes : {2 * kHugePage, 8 * kHugePage + 1}) {
    const std::unique_ptr<char[]> block(new char[bytes]);
    ExpectHugePages(block.get(), bytes, 1);
    const std::unique_ptr<char[]> other(new (std::nothrow) char[bytes]);
    ExpectHugePages(other.get(), bytes, 1);
  }
}

TEST(HugePagesTest, LargeAlignedBlocksAskForHugePages) {
  if (!kIsReplaced) GTEST_SKIP() << "sanitizers replace operator new themselves";
  for (const size_t alignment : {size_t{64}, kHugePage, 2 * kHugePage}) {
    const std::align_val_t value{alignment};
    const size_t bytes = 8 * kHugePage + 1;
    char* const block = static_cast<char*>(::operator new(bytes, value));
    ExpectHugePages(block, bytes, alignment);
    ::operator delete(block, value);
  }
}

TEST(HugePagesTest, SmallBlocksKeepTheirAlignment) {
  for (const size_t alignment : {size_t{16}, size_t{64}, size_t{4096}, 2 * kHugePage}) {
    for (const size_t bytes : {size_t{0}, size_t{1}, size_t{1000}, kHugePage}) {
      const std::align_val_t value{alignment};
      void* const block = ::operator new(bytes, value);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0u) << alignment << " " << bytes;
      ::operator delete(block, value);
    }
  }
}

TEST(HugePagesTest, SmallBlocksDoNotAsk) {
  const std::unique_ptr<char[]> small(new char[kHugePage]);
  small[0] = 1;
  EXPECT_NE(FlagsOf(small.get()), "");
  EXPECT_THAT(FlagsOf(small.get()), testing::Not(HasSubstr(" hg ")));
}

TEST(HugePagesTest, ThrowsIfThereIsNoMemory) {
  if (!kIsReplaced) GTEST_SKIP() << "sanitizers end the process instead";
  for (volatile size_t bytes : {SIZE_MAX / 2 + 1, SIZE_MAX}) {
    constexpr std::align_val_t kAlignment{64};
    EXPECT_THROW(::operator delete(::operator new(bytes)), std::bad_alloc);
    EXPECT_THROW(::operator delete(::operator new(bytes, kAlignment), kAlignment), std::bad_alloc);
  }
}

}  // namespace
