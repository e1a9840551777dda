#include "base/available_memory.h"

#include <sys/stat.h>

#include <fstream>
#include <limits>
#include <string>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::testing {
namespace {

// A directory with files of /proc and /sys.
class Root {
 public:
  explicit Root(const std::string& name) : path_(::testing::TempDir() + "/" + name) {
    Add("/proc/meminfo",
        "MemTotal:       24000000 kB\nMemAvailable:   1000 kB\nSwapFree:  24 kB\n");
  }

  Root& Add(const std::string& file, const std::string& contents) {
    for (size_t slash = 0; slash != std::string::npos; slash = file.find('/', slash + 1)) {
      mkdir((path_ + file.substr(0, slash)).c_str(), 0755);
    }
    std::ofstream(path_ + file) << contents;
    return *this;
  }

  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

TEST(AvailableMemoryTest, MachineWithoutGroupsHasItsMemoryAndItsSwap) {
  EXPECT_EQ(AvailableMemory(Root("machine").path()), 1024 * 1024);
}

TEST(AvailableMemoryTest, GroupOfVersionTwoLimitsItsMembers) {
  Root root("v2");
  root.Add("/proc/self/cgroup", "0::/user/job\n");
  root.Add("/sys/fs/cgroup/user/job/memory.max", "max\n");
  root.Add("/sys/fs/cgroup/user/job/memory.current", "600000\n");
  root.Add("/sys/fs/cgroup/user/memory.max", "700000\n");
  root.Add("/sys/fs/cgroup/user/memory.current", "600000\n");
  EXPECT_EQ(AvailableMemory(root.path()), 100000);
  // What files have in the cache is given back.
  root.Add("/sys/fs/cgroup/user/memory.stat", "anon 100000\ninactive_file 500000\n");
  EXPECT_EQ(AvailableMemory(root.path()), 600000);
}

TEST(AvailableMemoryTest, GroupOfVersionOneLimitsAContainerThatSeesItAsTheRoot) {
  Root root("v1");
  root.Add("/proc/self/cgroup", "8:cpu,cpuacct:/docker/1f\n4:memory:/docker/1f\n");
  root.Add("/sys/fs/cgroup/memory/memory.limit_in_bytes", "500000\n");
  root.Add("/sys/fs/cgroup/memory/memory.usage_in_bytes", "600000\n");
  EXPECT_EQ(AvailableMemory(root.path()), 0);
  root.Add("/sys/fs/cgroup/memory/memory.stat", "total_inactive_file 200000\n");
  EXPECT_EQ(AvailableMemory(root.path()), 100000);
}

TEST(AvailableMemoryTest, WhatCannotBeReadLimitsNothing) {
  EXPECT_EQ(AvailableMemory("/nowhere"), std::numeric_limits<uint64_t>::max());
}

TEST(AvailableMemoryTest, ThisMachineHasSome) { EXPECT_GT(AvailableMemory(), 0); }

TEST(CheckFitsMemoryTest, ErrorHasBothSizes) {
  EXPECT_THAT(CheckFitsMemory("x", 100, 100), IsOk());
  EXPECT_THAT(CheckFitsMemory("x", uint64_t{6} << 30, uint64_t{2} << 30),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "x takes 6144 MiB, but only 2048 MiB of memory are available"));
}

}  // namespace
}  // namespace weft::testing
