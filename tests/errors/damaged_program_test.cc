// Damage to a real program: whatever single byte is lost or changed, the transpiler refuses it with
// a message, or rewrites a program that is one by chance. It never crashes, and what it writes can
// be read.
#include <string>

#include "absl/strings/str_cat.h"
#include "base/testing/test.h"
#include "proto/program.h"
#include "tests/support/models.h"
#include "transpiler/transpile.h"

namespace weft::testing {
namespace {

class DamagedProgramTest : public ::testing::Test {
 protected:
  // The table of op versions is half of the file and of no interest here.
  DamagedProgramTest() {
    pb::ProgramDesc desc = ReadModels().at("fit_a_line").main.ToProto();
    desc.clear_op_version_map();
    whole_ = desc.SerializeAsString();
  }

  void Check(const std::string& bytes) {
    absl::StatusOr<Program> read = Program::Parse(bytes);
    if (!read.ok()) {
      ++refused_;
      EXPECT_FALSE(read.status().message().empty());
      return;
    }
    ++accepted_;
    EXPECT_TRUE(read->Serialize() == bytes);
    pb::ProgramDesc desc;
    EXPECT_TRUE(desc.ParsePartialFromString(bytes));
    EXPECT_EQ(desc.blocks_size(), read->num_blocks());
    if (transpile_)
      Transpile(*read, accepted_ % 2 == 0 ? Verification::kAtEnd : Verification::kNever);
  }

  void Transpile(Program program, Verification verification) {
    TranspileOptions options;
    options.mode = "grad_allreduce";
    options.cluster.nranks = 2;
    options.verification = verification;
    ProgramPair programs{&program, nullptr};
    const auto result = weft::Transpile(options, programs);
    if (!result.ok()) {
      EXPECT_FALSE(result.status().message().empty());
      return;
    }
    ++transpiled_;
    WEFT_EXPECT_OK(Program::Parse(program.Serialize()));
  }

  std::string whole_;
  bool transpile_ = true;
  int refused_ = 0, accepted_ = 0, transpiled_ = 0;
};

TEST_F(DamagedProgramTest, WholeProgramIsTranspiled) {
  Check(whole_);
  EXPECT_EQ(accepted_, 1);
  EXPECT_EQ(transpiled_, 1);
}

TEST_F(DamagedProgramTest, EveryPrefixIsRefusedOrRead) {
  for (size_t size = 0; size < whole_.size(); ++size) {
    SCOPED_TRACE(absl::StrCat(size, " bytes"));
    Check(whole_.substr(0, size));
  }
  // Only the version, after the one block, may be missing.
  EXPECT_EQ(accepted_, 1);
}

TEST_F(DamagedProgramTest, EveryChangedByteIsRefusedOrRead) {
  for (const int change : {0x01, 0x80}) {
    transpile_ = change == 0x01;  // the costly part
    for (size_t i = 0; i < whole_.size(); ++i) {
      SCOPED_TRACE(absl::StrCat("byte ", i, " xor ", change));
      std::string bytes = whole_;
      bytes[i] = static_cast<char>(bytes[i] ^ change);
      Check(bytes);
    }
  }
  EXPECT_GT(refused_, 0);
  EXPECT_GT(accepted_, 0);
  EXPECT_GT(transpiled_, 0);
}

TEST_F(DamagedProgramTest, EveryRemovedByteIsRefusedOrRead) {
  for (size_t i = 0; i < whole_.size(); ++i) {
    SCOPED_TRACE(absl::StrCat("without byte ", i));
    Check(whole_.substr(0, i) + whole_.substr(i + 1));
  }
  EXPECT_GT(refused_, 0);
}

}  // namespace
}  // namespace weft::testing
