// Reading and writing real programs: bytes that nobody touches come out as they went in.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "base/testing/archive.h"
#include "base/testing/test.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "google/protobuf/dynamic_message.h"
#include "proto/program.h"
#include "proto/rewriter.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;

// --- The checks ---------------------------------------------------------------------------------

// Calls `check` with name and bytes of every program in an archive; returns how many there are.
template <typename Check>
int ForEachProgram(const std::string& archive, Check check) {
  const auto files = ReadTarXz(archive);
  WEFT_EXPECT_OK(files);
  if (!files.ok()) return 0;
  int count = 0;
  for (const auto& [name, bytes] : *files) {
    if (!absl::EndsWith(name, ".pb")) continue;
    SCOPED_TRACE(name);
    check(bytes);
    ++count;
  }
  return count;
}

void ExpectSameBytes(const std::string& bytes) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, Program::Parse(bytes));
  ASSERT_TRUE(program.Serialize() == bytes);
}

// The bytes of all ops and variables of a block, decoded with libprotobuf's own reader.
struct BlockBytes {
  explicit BlockBytes(const pb::BlockDesc& block) {
    for (const pb::OpDesc& op : block.ops()) ops.push_back(op.SerializePartialAsString());
    for (const pb::VarDesc& var : block.vars()) vars.push_back(var.SerializePartialAsString());
  }
  std::vector<std::string> ops, vars;
};

std::vector<BlockBytes> AllBlocks(const std::string& bytes) {
  pb::ProgramDesc desc;
  EXPECT_TRUE(desc.ParsePartialFromString(bytes));
  return std::vector<BlockBytes>(desc.blocks().begin(), desc.blocks().end());
}

// Inserts an op in the middle of the root block and a variable after the others; everything else
// keeps its bytes, and libprotobuf reads what is expected.
void ExpectOnlyTheRewriteShows(const std::string& bytes) {
  WEFT_ASSERT_OK_AND_ASSIGN(Program program, Program::Parse(bytes));
  const Program before = program;
  ProgramBuilder builder;
  builder.Op("new_op", {{"X", {"new_var"}}}, {});

  Rewriter rewriter(&program);
  const auto ops = before.block(0).ops();
  const size_t middle = ops.size() / 2;
  rewriter.InsertBefore(ops[middle], builder.last_op());
  rewriter.AddVar(0, builder.last_var());
  WEFT_ASSERT_OK(rewriter.Commit());

  for (int b = 0; b < before.num_blocks(); ++b) {
    for (OpId id : before.block(b).ops()) {
      ASSERT_TRUE(program.op(id).bytes() == before.op(id).bytes()) << before.op(id).DebugName();
    }
    for (VarId id : before.block(b).vars()) {
      ASSERT_TRUE(program.var(id).bytes() == before.var(id).bytes()) << before.var(id).name();
    }
  }
  std::vector<BlockBytes> expected = AllBlocks(bytes);
  expected[0].ops.insert(expected[0].ops.begin() + middle, builder.last_op().SerializeAsString());
  expected[0].vars.push_back(builder.last_var().SerializeAsString());
  const std::vector<BlockBytes> found = AllBlocks(program.Serialize());
  ASSERT_EQ(found.size(), expected.size());
  for (size_t b = 0; b < found.size(); ++b) {
    ASSERT_TRUE(found[b].ops == expected[b].ops) << "ops of block " << b;
    ASSERT_TRUE(found[b].vars == expected[b].vars) << "variables of block " << b;
  }
  EXPECT_EQ(program.OtherFields().SerializePartialAsString(),
            before.OtherFields().SerializePartialAsString());
}

// --- Programs of Paddle -------------------------------------------------------------------------

TEST(RoundTripTest, EveryProgramKeepsItsBytes) {
  EXPECT_EQ(ForEachProgram("tests/data/programs.tar.xz", ExpectSameBytes), 54);
}

TEST(RoundTripTest, EveryTranspiledProgramKeepsItsBytes) {
  EXPECT_GT(ForEachProgram("tests/data/goldens.tar.xz", ExpectSameBytes), 200);
}

TEST(RoundTripTest, RewriteOfEveryProgramPreservesTheRest) {
  EXPECT_EQ(ForEachProgram("tests/data/programs.tar.xz", ExpectOnlyTheRewriteShows), 54);
}

TEST(RoundTripTest, RewriteOfEveryTranspiledProgramPreservesTheRest) {
  EXPECT_GT(ForEachProgram("tests/data/goldens.tar.xz", ExpectOnlyTheRewriteShows), 200);
}

// --- Programs as other versions write them ------------------------------------------------------

class OtherWriters : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    WEFT_ASSERT_OK_AND_ASSIGN(const auto files, ReadTarXz("tests/data/programs.tar.xz"));
    original_ = files.at(GetParam());
    ASSERT_TRUE(desc_.ParseFromString(original_));
  }

  // What holds for Paddle's own files holds for `bytes`, which are not the same.
  void ExpectFaithful(const std::string& bytes) {
    ASSERT_NE(bytes, original_);
    ExpectSameBytes(bytes);
    ExpectOnlyTheRewriteShows(bytes);
  }

  std::string original_;
  pb::ProgramDesc desc_;
};

INSTANTIATE_TEST_SUITE_P(RoundTripTest, OtherWriters,
                         ::testing::Values("fit_a_line/main.pb", "mlp_gradient_merge/main.pb",
                                           "word2vec_sparse_adam/main.pb", "bert_tiny/main.pb"));

// Adds fields of a future version to a message and all in it.
void AddUnknownFields(Message* message) {
  const auto* reflection = message->GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(*message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->message_type() == nullptr) continue;
    if (!field->is_repeated()) {
      AddUnknownFields(reflection->MutableMessage(message, field));
      continue;
    }
    for (int i = 0; i < reflection->FieldSize(*message, field); ++i) {
      AddUnknownFields(reflection->MutableRepeatedMessage(message, field, i));
    }
  }
  auto* unknown = reflection->MutableUnknownFields(message);
  unknown->AddVarint(1000, 5);
  unknown->AddFixed32(1001, 6);
  unknown->AddFixed64(1002, 7);
  unknown->AddLengthDelimited(1003, "future");
  unknown->AddGroup(1004)->AddVarint(1, 8);
}

TEST_P(OtherWriters, UnknownFieldsAtEveryLevelAreKept) {
  AddUnknownFields(&desc_);
  ExpectFaithful(desc_.SerializeAsString());
}

// The same program from a writer that packs every list of numbers.
std::string Packed(const std::string& bytes) {
  google::protobuf::FileDescriptorProto file;
  pb::ProgramDesc::descriptor()->file()->CopyTo(&file);
  const auto pack = [](google::protobuf::DescriptorProto* type, const auto& self) -> void {
    for (auto& field : *type->mutable_field()) {
      const bool is_list = field.label() == field.LABEL_REPEATED;
      const bool is_bytes = field.type() == field.TYPE_STRING || field.type() == field.TYPE_MESSAGE;
      if (is_list && !is_bytes) field.mutable_options()->set_packed(true);
    }
    for (auto& nested : *type->mutable_nested_type()) self(&nested, self);
  };
  for (auto& type : *file.mutable_message_type()) pack(&type, pack);
  google::protobuf::DescriptorPool pool;
  const auto* built = pool.BuildFile(file);
  google::protobuf::DynamicMessageFactory factory(&pool);
  const auto* type = built->FindMessageTypeByName("ProgramDesc");
  const std::unique_ptr<Message> message(factory.GetPrototype(type)->New());
  EXPECT_TRUE(message->ParseFromString(bytes));
  return message->SerializeAsString();
}

TEST_P(OtherWriters, PackedListsAreKept) {
  const std::string packed = Packed(original_);
  ExpectFaithful(packed);
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, Program::Parse(packed));
  EXPECT_EQ(program.ToProto().SerializeAsString(), original_);
  // Dimensions are lists of numbers.
  WEFT_ASSERT_OK_AND_ASSIGN(const Program original, Program::Parse(original_));
  const auto vars = program.block(0).vars();
  for (size_t i = 0; i < vars.size(); ++i) {
    const auto found = program.var(vars[i]).Tensor();
    const auto expected = original.var(original.block(0).vars()[i]).Tensor();
    ASSERT_EQ(found.has_value(), expected.has_value());
    if (!found.has_value()) continue;
    EXPECT_EQ(found->ShortDebugString(), expected->ShortDebugString());
  }
}

// Paddle before 2.2 did not write which variables are parameters, nor which need no gradient.
TEST_P(OtherWriters, VariablesWithoutNewerFlagsAreKept) {
  for (pb::BlockDesc& block : *desc_.mutable_blocks()) {
    for (pb::VarDesc& var : *block.mutable_vars()) {
      var.clear_is_parameter();
      var.clear_stop_gradient();
    }
  }
  desc_.mutable_version()->set_version(1008005);
  const std::string bytes = desc_.SerializeAsString();
  ExpectFaithful(bytes);
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, Program::Parse(bytes));
  EXPECT_EQ(program.version(), 1008005);
  for (VarId id : program.block(0).vars()) {
    EXPECT_FALSE(program.var(id).is_parameter());
    EXPECT_FALSE(program.var(id).stop_gradient());
  }
}

}  // namespace
}  // namespace weft::testing
