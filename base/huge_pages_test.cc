// Whether large blocks begin at a huge page and are marked for huge pages, in a test of its own,
// because base/huge_pages.cc replaces operator new in the whole binary.
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

TEST(HugePagesTest, LargeBlocksAskForHugePages) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers replace operator new themselves";
#endif
  const std::unique_ptr<char[]> large(new char[8 * kHugePage + 1]);
  large[8 * kHugePage] = 1;  // all of it is there
  EXPECT_EQ(reinterpret_cast<uintptr_t>(large.get()) % kHugePage, 0u);
  if (!KernelHasHugePages()) GTEST_SKIP() << "the kernel has no huge pages";
  EXPECT_THAT(FlagsOf(large.get()), HasSubstr(" hg "));
}

TEST(HugePagesTest, LargeAlignedBlocksAskForHugePages) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers replace operator new themselves";
#endif
  constexpr std::align_val_t kAlignment{64};
  char* const large = static_cast<char*>(::operator new(8 * kHugePage + 1, kAlignment));
  large[8 * kHugePage] = 1;
  const std::string flags = FlagsOf(large);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(large) % kHugePage, 0u);
  ::operator delete(large, kAlignment);
  if (!KernelHasHugePages()) GTEST_SKIP() << "the kernel has no huge pages";
  EXPECT_THAT(flags, HasSubstr(" hg "));
}

TEST(HugePagesTest, KeepsTheAlignmentOfSmallBlocks) {
  for (const size_t alignment : {16, 64, 4096}) {
    for (const size_t bytes : {size_t{0}, size_t{1}, size_t{1000}, kHugePage}) {
      const std::align_val_t value{alignment};
      void* const block = ::operator new(bytes, value);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0u) << alignment << " " << bytes;
      ::operator delete(block, value);
    }
  }
}

TEST(HugePagesTest, SmallBlocksDoNot) {
  const std::unique_ptr<char[]> small(new char[kHugePage]);
  small[0] = 1;
  EXPECT_NE(FlagsOf(small.get()), "");
  EXPECT_THAT(FlagsOf(small.get()), testing::Not(HasSubstr(" hg ")));
}

TEST(HugePagesTest, ThrowsIfThereIsNoMemory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers end the process instead";
#endif
  volatile size_t bytes = SIZE_MAX / 2 + 1;
  EXPECT_THROW(::operator delete(::operator new(bytes)), std::bad_alloc);
}

}  // namespace
