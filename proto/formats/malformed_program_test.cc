#include "proto/formats/malformed_program.h"

#include <fstream>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/text/program_text.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

void AddBlock(pb::ProgramDesc* desc, int parent) {
  pb::BlockDesc* block = desc->add_blocks();
  block->set_idx(desc->blocks_size() - 1);
  block->set_parent_idx(parent);
}

void AddWhile(pb::ProgramDesc* desc, int block, int sub_block) {
  pb::OpDesc* op = desc->mutable_blocks(block)->add_ops();
  op->set_type("while");
  pb::OpDesc::Attr* attr = op->add_attrs();
  attr->set_name("sub_block");
  attr->set_type(pb::BLOCK);
  attr->set_block_idx(sub_block);
}

absl::StatusOr<ReadableProgram> ReadBytes(const std::string& bytes,
                                          const std::string& name = "program.pb") {
  const std::string path = absl::StrCat(::testing::TempDir(), "/", name);
  std::ofstream(path, std::ios::binary) << bytes;
  return ReadMalformedProgram(path);
}

absl::StatusOr<ReadableProgram> Read(const std::function<void(pb::ProgramDesc*)>& damage) {
  pb::ProgramDesc desc;
  AddBlock(&desc, -1);
  damage(&desc);
  return ReadBytes(desc.SerializePartialAsString());
}

TEST(MalformedProgramTest, WellFormedProgramIsWhatTheFileSays) {
  WEFT_ASSERT_OK_AND_ASSIGN(const ReadableProgram read, Read([](pb::ProgramDesc* desc) {
                              AddBlock(desc, 0);
                              AddWhile(desc, 0, 1);
                            }));
  EXPECT_THAT(read.malformed, IsEmpty());
  EXPECT_EQ(read.program.Serialize(), read.file.bytes);
}

TEST(MalformedProgramTest, BytesTellTheFormatAndNotTheName) {
  pb::ProgramDesc desc;
  AddBlock(&desc, -1);
  AddWhile(&desc, 0, 1);
  const std::string bytes = desc.SerializePartialAsString(), text = desc.Utf8DebugString();
  for (const char* name : {"a.pb", "a.pbtxt", "a.json", "a.txt", "a"}) {
    WEFT_ASSERT_OK_AND_ASSIGN(const ReadableProgram of_bytes, ReadBytes(bytes, name));
    EXPECT_EQ(of_bytes.format, ProgramFormat::kBinary);
    EXPECT_THAT(of_bytes.malformed, SizeIs(1)) << name;
    for (const std::string& marked : {text, "\xEF\xBB\xBF" + text}) {
      WEFT_ASSERT_OK_AND_ASSIGN(const ReadableProgram of_text, ReadBytes(marked, name));
      EXPECT_EQ(of_text.format, ProgramFormat::kProtoText);
      EXPECT_EQ(of_text.malformed, of_bytes.malformed) << name;
      EXPECT_EQ(of_text.file.bytes, marked);
    }
  }
}

TEST(MalformedProgramTest, CycleOfParentsEndsAtTheRoot) {
  WEFT_ASSERT_OK_AND_ASSIGN(const ReadableProgram read, Read([](pb::ProgramDesc* desc) {
                              AddBlock(desc, 2);
                              AddBlock(desc, 1);
                              AddBlock(desc, 2);
                            }));
  EXPECT_THAT(read.malformed,
              ElementsAre("block 2: parent block 1 closes a cycle; shown with parent 0"));
  EXPECT_EQ(read.program.block(1).parent_idx(), 2);
  EXPECT_EQ(read.program.block(2).parent_idx(), 0);
  EXPECT_EQ(read.program.block(3).parent_idx(), 2);
}

TEST(MalformedProgramTest, DeepBlocksAreCutWhereTheyAreTooDeep) {
  constexpr int kBlocks = 1000;
  WEFT_ASSERT_OK_AND_ASSIGN(const ReadableProgram read, Read([](pb::ProgramDesc* desc) {
                              for (int i = 0; i < kBlocks; ++i) {
                                AddBlock(desc, i);
                                AddWhile(desc, i, i + 1);
                              }
                            }));
  EXPECT_THAT(read.malformed, AllOf(SizeIs(6), Contains(HasSubstr("is nested too deep"))));
  EXPECT_EQ(read.program.num_blocks(), kBlocks + 1);
}

TEST(MalformedProgramTest, SubBlocksThatContainEachOtherAreCut) {
  WEFT_ASSERT_OK_AND_ASSIGN(const ReadableProgram read, Read([](pb::ProgramDesc* desc) {
                              AddBlock(desc, 0);
                              AddBlock(desc, 0);
                              AddWhile(desc, 0, 1);
                              AddWhile(desc, 1, 2);
                              AddWhile(desc, 2, 1);
                              AddWhile(desc, 2, 0);
                            }));
  EXPECT_THAT(read.malformed,
              ElementsAre(HasSubstr("block 2, op 1 (while): sub-block 0 is the root block"),
                          HasSubstr("block 1, op 0 (while): sub-block 2 is in a cycle"),
                          HasSubstr("block 2, op 0 (while): sub-block 1 is in a cycle")));
  EXPECT_THAT(read.program.op(read.program.block(0).ops()[0]).SubBlocks(), ElementsAre(1));
}

TEST(MalformedProgramTest, OtherContradictionsAreNamed) {
  WEFT_ASSERT_OK_AND_ASSIGN(const ReadableProgram read, Read([](pb::ProgramDesc* desc) {
                              desc->mutable_blocks(0)->set_idx(3);
                              for (int i = 0; i < 2; ++i) {
                                pb::VarDesc* var = desc->mutable_blocks(0)->add_vars();
                                var->set_name("a\xff");
                                var->mutable_type()->set_type(pb::VarType::STEP_SCOPES);
                              }
                              desc->mutable_blocks(0)->add_ops();
                              AddWhile(desc, 0, 4);
                              auto* role = desc->mutable_blocks(0)->mutable_ops(1)->add_attrs();
                              role->set_name("op_role");
                              role->set_type(pb::STRING);
                            }));
  EXPECT_THAT(
      read.malformed,
      ElementsAre(
          HasSubstr("block 0: has idx 3"), HasSubstr("the name 'a\\377' is not valid UTF-8"),
          HasSubstr("the name 'a\\377' is not valid UTF-8"),
          HasSubstr("variable 'a\\\\377' is declared twice"), HasSubstr("op 0 (): has no type"),
          HasSubstr("op 1 (while): sub-block 4 is missing"),
          HasSubstr("op 1 (while): attribute op_role: expected type INT, found STRING")));
  EXPECT_EQ(read.program.num_vars(), 1);
}

TEST(MalformedProgramTest, WhatProtobufCannotReadIsRefused) {
  EXPECT_THAT(ReadBytes(""), IsInvalidArgument("the program is empty"));
  EXPECT_THAT(ReadBytes("\x0a"), IsInvalidArgument("malformed"));
}

}  // namespace
}  // namespace weft::testing
