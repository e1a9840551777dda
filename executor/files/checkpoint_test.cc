#include "executor/files/checkpoint.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/testing/test.h"
#include "executor/files/params_file.h"

namespace weft::testing {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

std::string TestPath(const std::string& name) { return ::testing::TempDir() + "/" + name; }

std::string Contents(const std::string& path) {
  const absl::StatusOr<FileBytes> file = ReadFile(path);
  return file.ok() ? std::string(file->bytes) : file.status().ToString();
}

// A file in memory, for many contents: those on a disk take their time.
class MemoryFile {
 public:
  MemoryFile() : fd_(memfd_create("test", MFD_CLOEXEC)) {}
  ~MemoryFile() { close(fd_); }

  // Returns the path.
  std::string Set(const std::string& bytes) {
    EXPECT_EQ(ftruncate(fd_, 0), 0);
    EXPECT_EQ(pwrite(fd_, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    return absl::StrCat("/proc/self/fd/", fd_);
  }

 private:
  const int fd_;
};

Tensor Filled(DType dtype, const Dims& dims, uint8_t byte) {
  Tensor tensor;
  tensor.Resize(dtype, dims);
  std::memset(tensor.raw(), byte, tensor.bytes());
  return tensor;
}

Checkpoint Example() {
  Checkpoint checkpoint;
  checkpoint.step = 7;
  checkpoint.end_step = int64_t{1} << 60;
  checkpoint.nranks = 2;
  checkpoint.seed = ~uint64_t{0};
  checkpoint.random = {"", RandomText(RandomState::Seeded(3, 1))};
  checkpoint.settings = {{"schedule", "cosine{learning_rate=0.1,T_max=3}"}};
  checkpoint.shared["w"] = Filled(DType::kBFloat16, {2, 2}, 1);
  checkpoint.shared["rank1/w"] = Filled(DType::kFloat32, {}, 2);
  checkpoint.own.resize(2);
  checkpoint.own[0]["v"] = Filled(DType::kFloat32, {3}, 3);
  checkpoint.own[1]["v"] = Filled(DType::kFloat32, {3}, 4);
  checkpoint.own[1]["late"] = Filled(DType::kInt64, {1}, 5);
  checkpoint.unset = {"feed", "\u00e4"};
  checkpoint.buffers = {{"flat", 9, {{"a", 0, 4}, {"b", 4, 5}}}, {"other", 1, {}}};
  return checkpoint;
}

void ExpectEqual(const std::map<std::string, Tensor>& found,
                 const std::map<std::string, Tensor>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    ASSERT_EQ(found.count(name), 1u) << name;
    EXPECT_EQ(found.at(name).dtype(), tensor.dtype()) << name;
    EXPECT_EQ(found.at(name).dims(), tensor.dims()) << name;
    EXPECT_EQ(std::memcmp(found.at(name).raw(), tensor.raw(), tensor.bytes()), 0) << name;
  }
}

TEST(CheckpointTest, EverythingComesBack) {
  const Checkpoint expected = Example();
  const std::string path = TestPath("whole.ckpt");
  WEFT_ASSERT_OK(WriteCheckpoint(path, expected));
  WEFT_ASSERT_OK_AND_ASSIGN(const Checkpoint found, ReadCheckpoint(path));
  EXPECT_EQ(found.step, expected.step);
  EXPECT_EQ(found.end_step, expected.end_step);
  EXPECT_EQ(found.nranks, expected.nranks);
  EXPECT_EQ(found.seed, expected.seed);
  EXPECT_EQ(found.random, expected.random);
  EXPECT_EQ(found.settings, expected.settings);
  EXPECT_EQ(found.unset, expected.unset);
  ASSERT_EQ(found.buffers.size(), 2u);
  EXPECT_EQ(found.buffers[0].name, "flat");
  EXPECT_EQ(found.buffers[0].size, 9);
  ASSERT_EQ(found.buffers[0].parts.size(), 2u);
  EXPECT_EQ(found.buffers[0].parts[1].name, "b");
  EXPECT_EQ(found.buffers[0].parts[1].begin, 4);
  EXPECT_EQ(found.buffers[0].parts[1].count, 5);
  ExpectEqual(found.shared, expected.shared);
  ASSERT_EQ(found.own.size(), 2u);
  for (int rank : {0, 1}) ExpectEqual(found.own[rank], expected.own[rank]);
}

TEST(CheckpointTest, GeneratorsGoOnFromTheirText) {
  RandomState random = RandomState::Seeded(3, 1);
  for (int i = 0; i < 1000; ++i) random.noise();
  random.dropout.next_sequence = 7;
  WEFT_ASSERT_OK_AND_ASSIGN(RandomState read, ParseRandomText(RandomText(random)));
  EXPECT_EQ(read.noise(), random.noise());
  EXPECT_EQ(read.initializers(), random.initializers());
  EXPECT_EQ(read.dropout.key, random.dropout.key);
  EXPECT_EQ(read.dropout.next_sequence, 7u);
  for (const std::string& text :
       {std::string(), std::string("1 2 3"), RandomText(random) + " 1", std::string("x")}) {
    EXPECT_THAT(ParseRandomText(text), StatusIs(kInvalid, HasSubstr("three generators")));
  }
}

TEST(CheckpointTest, EveryDamageIsNoticed) {
  const std::string path = TestPath("good.ckpt");
  Checkpoint small = Example();
  small.random = {"", ""};
  WEFT_ASSERT_OK(WriteCheckpoint(path, small));
  const std::string whole = Contents(path);
  MemoryFile file;
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::string cut = file.Set(whole.substr(0, size));
    ASSERT_THAT(ReadCheckpoint(cut), StatusIs(kInvalid, StartsWith(cut + ": "))) << size;
  }
  // One bit of every byte. Some bytes of the header mean the same after it: nothing is damaged.
  int same = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string bytes = whole;
    bytes[i] = static_cast<char>(bytes[i] ^ (1 << i % 8));
    const std::string flipped = file.Set(bytes);
    const auto read = ReadCheckpoint(flipped);
    if (!read.ok()) {
      ASSERT_THAT(read.status(), StatusIs(kInvalid, StartsWith(flipped + ": "))) << i;
      continue;
    }
    ++same;
    EXPECT_EQ(read->step, small.step) << i;
    ExpectEqual(read->shared, small.shared);
  }
  EXPECT_LE(same, 8);  // the case of hexadecimal digits in \u escapes, and the like
}

TEST(CheckpointTest, OtherFilesAreRefused) {
  const std::string plain = TestPath("plain.safetensors");
  WEFT_ASSERT_OK(WriteSafetensors(plain, {{"w", Filled(DType::kFloat32, {1}, 0)}}));
  EXPECT_THAT(
      ReadCheckpoint(plain),
      StatusIs(kInvalid, HasSubstr("plain.safetensors: expected a checkpoint of weft run")));
  const std::string later = TestPath("later.safetensors");
  WEFT_ASSERT_OK(WriteSafetensors(later, {}, {{"format", "weft checkpoint 2"}}));
  EXPECT_THAT(ReadCheckpoint(later), StatusIs(kInvalid, HasSubstr("found 'weft checkpoint 2'")));
  const std::string checkpoint = TestPath("checkpoint.safetensors");
  WEFT_ASSERT_OK(WriteCheckpoint(checkpoint, Example()));
  EXPECT_THAT(LoadParams(checkpoint, ""),
              StatusIs(kInvalid, HasSubstr("which option:resume reads")));
}

// Files that another program wrote, of the right form.
TEST(CheckpointTest, FieldsThatCannotBeAreRefused) {
  const std::string path = TestPath("fields.ckpt");
  WEFT_ASSERT_OK(WriteCheckpoint(path, Example()));
  WEFT_ASSERT_OK_AND_ASSIGN(const SafetensorsFile file, SafetensorsFile::Open(path));
  const auto with = [&](const std::string& key, const std::string& text) {
    Metadata metadata = file.metadata();
    metadata[key] = text;
    if (text == "none") metadata.erase(key);
    const std::string other = TestPath("other.ckpt");
    EXPECT_TRUE(WriteSafetensors(other, {}, metadata).ok());
    return ReadCheckpoint(other).status();
  };
  EXPECT_THAT(with("step", "-1"), StatusIs(kInvalid, HasSubstr("metadata step: expected")));
  EXPECT_THAT(with("step", "none"), StatusIs(kInvalid, HasSubstr("metadata step: missing")));
  EXPECT_THAT(with("ranks", "0"), StatusIs(kInvalid, HasSubstr("metadata ranks: expected")));
  EXPECT_THAT(with("ranks", "99999999"), StatusIs(kInvalid, HasSubstr("metadata ranks: expected")));
  EXPECT_THAT(with("random", "[\"\"]"), StatusIs(kInvalid, HasSubstr("expected 2 texts, found 1")));
  EXPECT_THAT(with("random", "[1]"), StatusIs(kInvalid, HasSubstr("expected a list of texts")));
  EXPECT_THAT(with("settings", "[]["), StatusIs(kInvalid, HasSubstr("expected a map of texts")));
  for (const char* text : {"[", "[[1]]", "[[\"flat\", 1]]", "[[\"flat\", 1, [[\"a\"]]]]", "[1]"}) {
    EXPECT_THAT(with("buffers", text), StatusIs(kInvalid, HasSubstr("metadata buffers: expected")))
        << text;
  }
  EXPECT_THAT(with("hash", "0"), StatusIs(kInvalid, HasSubstr("its hash does not match")));
  for (const char* key : {"rank2/w", "rank01/w", "rank-1/w", "rank/w", "w", "rank1"}) {
    const std::string other = TestPath("keys.ckpt");
    WEFT_ASSERT_OK(WriteSafetensors(other, {{key, Filled(DType::kInt8, {1}, 0)}}, file.metadata()));
    EXPECT_THAT(ReadCheckpoint(other),
                StatusIs(kInvalid, HasSubstr("does not belong in a checkpoint of 2 ranks")))
        << key;
  }
}

TEST(CheckpointTest, WhatCannotBeWrittenIsRefused) {
  Checkpoint checkpoint = Example();
  checkpoint.own.pop_back();
  EXPECT_THAT(WriteCheckpoint(TestPath("x.ckpt"), checkpoint),
              StatusIs(kInvalid, HasSubstr("2 ranks with values of 1")));
  checkpoint = Example();
  checkpoint.settings["a"] = "\xff";
  EXPECT_THAT(WriteCheckpoint(TestPath("x.ckpt"), checkpoint),
              StatusIs(kInvalid, HasSubstr("not UTF-8")));
}

TEST(CheckpointTest, AnotherNumberOfRanksIsRefusedIfRanksDiffer) {
  Checkpoint checkpoint = Example();
  WEFT_EXPECT_OK(CheckRanks(checkpoint, 2));
  EXPECT_THAT(CheckRanks(checkpoint, 3),
              IsFailedPrecondition(StartsWith("expected 2 ranks, as when it was written, found 3: "
                                              "variable late differs between the ranks;")));
  checkpoint.own = {{}, {}};
  EXPECT_THAT(CheckRanks(checkpoint, 3), IsFailedPrecondition("random numbers of its next step"));
  checkpoint.random = {"", ""};
  WEFT_EXPECT_OK(CheckRanks(checkpoint, 3));
}

}  // namespace
}  // namespace weft::testing
