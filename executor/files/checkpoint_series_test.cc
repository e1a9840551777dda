#include "executor/files/checkpoint_series.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

class CheckpointSeriesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
  }

  static absl::Status Write(CheckpointSeries* series, int64_t step) {
    Checkpoint checkpoint;
    checkpoint.step = step;
    checkpoint.own.resize(1);
    checkpoint.random.resize(1);
    const absl::Status status = series->Write(checkpoint);
    return status.ok() ? series->Wait() : status;
  }
  std::set<std::string> Files() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }

  const std::string folder_ = absl::StrCat(
      ::testing::TempDir(), "/", ::testing::UnitTest::GetInstance()->current_test_info()->name());
  const std::string path_ = folder_ + "/run.ckpt";
};

TEST_F(CheckpointSeriesTest, OneIsKeptByDefault) {
  CheckpointSeries series(path_, 1, 0, false);
  for (int step : {5, 10}) WEFT_EXPECT_OK(Write(&series, step));
  EXPECT_THAT(Files(), ElementsAre("run.ckpt"));
}

TEST_F(CheckpointSeriesTest, TheLastOnesAreKept) {
  CheckpointSeries series(path_, 3, 0, false);
  for (int step : {5, 10, 15, 100}) WEFT_EXPECT_OK(Write(&series, step));
  WEFT_EXPECT_OK(Write(&series, 100));  // at the end of a run once more
  EXPECT_THAT(Files(), ElementsAre("run.ckpt", "run.ckpt.10", "run.ckpt.100", "run.ckpt.15"));
  WEFT_ASSERT_OK_AND_ASSIGN(const Checkpoint ten, ReadCheckpoint(path_ + ".10"));
  EXPECT_EQ(ten.step, 10);
  WEFT_ASSERT_OK_AND_ASSIGN(const Checkpoint last, ReadCheckpoint(path_));
  EXPECT_EQ(last.step, 100);
  struct stat one, other;
  ASSERT_EQ(stat(path_.c_str(), &one), 0);
  ASSERT_EQ(stat((path_ + ".100").c_str(), &other), 0);
  EXPECT_EQ(one.st_ino, other.st_ino) << "it is not stored twice";
}

TEST_F(CheckpointSeriesTest, ARunThatGoesOnRemovesThoseOfTheOneBefore) {
  for (const char* name :
       {"run.ckpt.5", "run.ckpt.10", "run.ckpt.20", "run.ckpt.old", "run.ckpt.010", "other.5"}) {
    std::ofstream(folder_ + "/" + name) << name;
  }
  CheckpointSeries series(path_, 2, 10, true);
  WEFT_EXPECT_OK(Write(&series, 15));
  EXPECT_THAT(Files(), ElementsAre("other.5", "run.ckpt", "run.ckpt.010", "run.ckpt.10",
                                   "run.ckpt.15", "run.ckpt.20", "run.ckpt.old"));
  CheckpointSeries another(path_, 2, 0, false);
  WEFT_EXPECT_OK(Write(&another, 1));
  EXPECT_EQ(Files().count("run.ckpt.10"), 1U) << "of another run";
}

// The run goes on meanwhile.
TEST_F(CheckpointSeriesTest, WritesValuesAsTheyWere) {
  Checkpoint checkpoint;
  checkpoint.step = 5;
  checkpoint.own.resize(1);
  checkpoint.random.resize(1);
  checkpoint.shared["w"] = Floats({1000000}, std::vector<float>(1000000, 1));
  checkpoint.own[0]["v"] = Floats({2}, {1, 2});
  {
    CheckpointSeries series(path_, 1, 0, false);
    ASSERT_THAT(series.Write(checkpoint), IsOk());
    checkpoint.shared["w"].data<float>()[999999] = 7;
    checkpoint.own[0]["v"].data<float>()[0] = 7;
  }
  WEFT_ASSERT_OK_AND_ASSIGN(const Checkpoint found, ReadCheckpoint(path_));
  EXPECT_EQ(found.shared.at("w").data<float>()[999999], 1);
  EXPECT_EQ(found.own[0].at("v").data<float>()[0], 1);
}

TEST_F(CheckpointSeriesTest, TheNextCallHasTheError) {
  CheckpointSeries series(folder_ + "/missing/run.ckpt", 1, 0, false);
  Checkpoint checkpoint;
  checkpoint.own.resize(1);
  checkpoint.random.resize(1);
  WEFT_EXPECT_OK(series.Write(checkpoint));
  EXPECT_THAT(series.Write(checkpoint), Not(IsOk()));
  WEFT_EXPECT_OK(series.Write(checkpoint));
  EXPECT_THAT(series.Wait(), Not(IsOk()));
  WEFT_EXPECT_OK(series.Wait());
}

TEST_F(CheckpointSeriesTest, WhatCannotBeReplacedIsAnError) {
  std::filesystem::create_directories(path_ + ".5/x");
  CheckpointSeries series(path_, 2, 0, false);
  EXPECT_THAT(std::string(Write(&series, 5).message()),
              HasSubstr("run.ckpt.5: cannot be replaced"));
}

}  // namespace
}  // namespace weft::testing
