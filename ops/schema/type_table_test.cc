#include "ops/schema/type_table.h"

#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

TEST(TypeTable, EqualTypesHaveOneNumber) {
  TypeTable types;
  const TensorType a = {DType::kFloat32, {2, -1}};
  TensorType rows = a;
  rows.kind = TensorType::Kind::kSelectedRows;
  const TypeId id = types.Intern(a);
  EXPECT_NE(id, kUnknownType);
  EXPECT_EQ(types.Intern(TensorType{DType::kFloat32, {2, -1}}), id);
  EXPECT_NE(types.Intern(TensorType{DType::kFloat16, {2, -1}}), id);
  EXPECT_NE(types.Intern(TensorType{DType::kFloat32, {2}}), id);
  EXPECT_NE(types.Intern(rows), id);
  EXPECT_EQ(types.type(id), a);
  EXPECT_EQ(types.size(), 5u);
}

TEST(TypeTable, NoTypeIsUnknown) {
  TypeTable types;
  EXPECT_EQ(types.Intern(absl::nullopt), kUnknownType);
  EXPECT_EQ(types.type(kUnknownType), absl::nullopt);
}

// Each variable against DeclaredType, which decodes it on its own.
void ExpectDeclaredTypes(const Program& program) {
  TypeTable types;
  const std::vector<TypeId> declared = DeclaredTypes(program, &types);
  ASSERT_EQ(declared.size(), program.var_id_limit());
  for (size_t i = 0; i < declared.size(); ++i) {
    const Var var = program.var(VarId(static_cast<uint32_t>(i)));
    EXPECT_EQ(types.type(declared[i]), DeclaredType(var)) << var.name();
  }
}

TEST(DeclaredTypes, AreThoseOfEachVariable) {
  ProgramBuilder p;
  p.Var("x").Param("w").Var("ids", {-1, 1}, pb::VarType::INT64).Rows("w@GRAD", {100, 8});
  p.Var(std::string(1000, 'n'), {3}).Var("scalar", {}).Var("impossible", {-5});
  p.Var("scope").last_var().mutable_type()->set_type(pb::VarType::STEP_SCOPES);
  p.NewBlock(0).Var("inner", {7});
  ExpectDeclaredTypes(p.Build());
}

// Protobuf merges a field that is there twice.
TEST(DeclaredTypes, TypeInPiecesIsMerged) {
  ProgramBuilder p;
  p.Var("x", {2}).Var("y", {2});
  pb::ProgramDesc desc = p.desc();
  pb::VarDesc more;
  more.mutable_type()->set_type(pb::VarType::LOD_TENSOR);
  more.mutable_type()->mutable_lod_tensor()->mutable_tensor()->set_data_type(pb::VarType::FP64);
  more.mutable_type()->mutable_lod_tensor()->mutable_tensor()->add_dims(5);
  pb::BlockDesc* block = desc.mutable_blocks(0);
  const std::string var =
      block->vars(1).SerializePartialAsString() + more.SerializePartialAsString();
  block->mutable_vars()->RemoveLast();
  std::string bytes = block->SerializePartialAsString();
  bytes += std::string("\x1a") + static_cast<char>(var.size()) + var;
  const std::string program_bytes = std::string("\x0a") + static_cast<char>(bytes.size()) + bytes;
  ASSERT_LT(bytes.size(), 128u);
  absl::StatusOr<Program> program = Program::Parse(program_bytes);
  ASSERT_TRUE(program.ok()) << program.status();
  const VarId y = program->block(0).FindVar("y");
  ASSERT_EQ(DeclaredType(program->var(y)), (TensorType{DType::kFloat64, {2, 5}}));
  ExpectDeclaredTypes(*program);
}

}  // namespace
}  // namespace weft::testing
