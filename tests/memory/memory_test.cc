// How much memory `transpile` takes, relative to its input.
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/test.h"
#include "proto/testing/wire_bytes.h"
#include "tests/commands/transpile_command.h"

namespace weft::testing {
namespace {

constexpr int64_t kMiB = 1 << 20;

class MemoryTest : public testing::TranspileCommandTest {
 protected:
  // Peaks are those of transpile only where they are not those of this process: files are written
  // in pieces.
  int64_t SizeOf(const std::string& path) const {
    return std::ifstream(path, std::ios::binary | std::ios::ate).tellg();
  }
};

// --- Unknown fields -----------------------------------------------------------------------------

constexpr int64_t kUnknownBytes = 28 * kMiB;

// A message that unknown fields of two bytes each fill, after `head`, in messages around it.
struct Hostile {
  std::string name;
  std::vector<int> path;  // field numbers of the messages that lead to it, from ProgramDesc on
  std::string head;       // of the innermost message
};

class HostileFileTest : public MemoryTest, public ::testing::WithParamInterface<Hostile> {
 protected:
  // The numbers that every block has.
  static std::string BlockHead() {
    return WireNumber(1, 0) + WireNumber(2, static_cast<uint64_t>(-1));
  }

  void Write(const std::string& path, const Hostile& hostile) const {
    std::string tags = hostile.head;
    int64_t size = kUnknownBytes + static_cast<int64_t>(hostile.head.size());
    for (size_t i = hostile.path.size(); i-- > 0;) {
      const bool in_block = i == 0 && hostile.path[0] == 1;
      const std::string before = in_block ? BlockHead() : "";
      tags =
          absl::StrCat(WireTag(hostile.path[i], 2), WireVarint(before.size() + size), before, tags);
      size = kUnknownBytes + static_cast<int64_t>(tags.size());
    }
    std::ofstream out(path, std::ios::binary);
    out << tags;
    const std::string field = WireNumber(15, 7);
    std::string piece;
    while (piece.size() < 1 << 16) piece += field;
    for (int64_t written = 0; written < kUnknownBytes; written += piece.size()) out << piece;
  }
};

TEST_P(HostileFileTest, IsRefusedInThreeTimesItsSize) {
  const std::string in = Path("in.pb");
  Write(in, GetParam());
  const ProcessResult result = Run({"--mode", "grad_allreduce", in, Path("out.pb")});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("transpile: error: "));
  EXPECT_LE(result.peak_bytes, 3 * SizeOf(in) + 64 * kMiB);
}

const std::string kVarHead = WireBytes(1, "v");

INSTANTIATE_TEST_SUITE_P(
    Unknown, HostileFileTest,
    ::testing::Values(Hostile{"Program", {}, ""}, Hostile{"Version", {4}, ""},
                      Hostile{"OpVersions", {5}, ""}, Hostile{"Block", {1}, ""},
                      Hostile{"Op", {1, 4}, ""}, Hostile{"Slot", {1, 4, 1}, WireBytes(1, "X")},
                      Hostile{"Attribute", {1, 4, 4}, WireBytes(1, "a") + WireNumber(2, 0)},
                      Hostile{"Variable", {1, 3}, ""},
                      Hostile{"TypeOfVariable", {1, 3, 2}, WireNumber(1, 7)},
                      Hostile{"Tensor", {1, 3, 2, 3, 1}, WireNumber(1, 5)},
                      Hostile{"AttributeOfVariable", {1, 3, 7}, WireBytes(1, "a")}),
    [](const auto& info) { return info.param.name; });

// --- Rewriting ----------------------------------------------------------------------------------

TEST_F(MemoryTest, VerifiedRewriteTakesTwiceTheFile) {
  const std::string in = Path("in.pb"), out = Path("out.pb");
  const ProcessResult generated = testing::RunProcess(
      {"tests/benchmarks/generate_program", "1000000", "4000", in, "few_attributes"});
  ASSERT_EQ(generated.status, 0) << generated.err;
  const ProcessResult result = testing::RunProcess(
      {"tools/transpile", "--mode", "grad_allreduce", "--nranks", "4", in, out});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_LE(result.peak_bytes, 2 * SizeOf(in))
      << result.peak_bytes / static_cast<double>(SizeOf(in));
}

}  // namespace
}  // namespace weft::testing
