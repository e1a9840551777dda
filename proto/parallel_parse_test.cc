// Several threads read a program exactly as one does: numbers of symbols and signatures, errors
// too.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gtest/gtest.h"
#include "proto/op_role.h"
#include "proto/program.h"
#include "proto/testing/program_builder.h"
#include "proto/testing/wire_bytes.h"

namespace weft::testing {
namespace {

absl::StatusOr<Program> ParseWith(int threads, const std::string& bytes) {
  ParseOptions options;
  options.threads = threads;
  options.min_bytes_per_thread = 1;
  return Program::Parse(nullptr, bytes, options);
}

void ExpectSameSlots(const std::vector<OpSignature::Slot>& a,
                     const std::vector<OpSignature::Slot>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].name, b[i].name);
    EXPECT_EQ(a[i].first, b[i].first);
    EXPECT_EQ(a[i].count, b[i].count);
  }
}

void ExpectSameTables(const Program& a, const Program& b) {
  ASSERT_EQ(a.symbols().size(), b.symbols().size());
  for (uint32_t i = 0; i < a.symbols().size(); ++i) {
    ASSERT_EQ(a.name(Symbol(i)), b.name(Symbol(i)));
    ASSERT_EQ(b.FindSymbol(a.name(Symbol(i))), Symbol(i));
  }
  ASSERT_EQ(a.num_signatures(), b.num_signatures());
}

void ExpectSameOp(const Op& a, const Op& b) {
  EXPECT_EQ(a.bytes(), b.bytes());
  EXPECT_EQ(a.signature_id(), b.signature_id());
  EXPECT_EQ(a.args(), b.args());
  EXPECT_EQ(a.position(), b.position());
  EXPECT_EQ(a.role(), b.role());
  EXPECT_EQ(a.has_role_vars(), b.has_role_vars());
  EXPECT_EQ(a.SubBlocks(), b.SubBlocks());
  EXPECT_EQ(a.signature().type, b.signature().type);
  ExpectSameSlots(a.signature().inputs, b.signature().inputs);
  ExpectSameSlots(a.signature().outputs, b.signature().outputs);
  ASSERT_EQ(a.signature().attrs.size(), b.signature().attrs.size());
  for (size_t i = 0; i < a.signature().attrs.size(); ++i) {
    EXPECT_EQ(a.signature().attrs[i].name, b.signature().attrs[i].name);
    EXPECT_EQ(a.signature().attrs[i].type, b.signature().attrs[i].type);
  }
}

void ExpectSameVar(const Program& program, const Var& a, const Var& b) {
  EXPECT_EQ(a.bytes(), b.bytes());
  EXPECT_EQ(a.name_symbol(), b.name_symbol());
  EXPECT_EQ(a.type(), b.type());
  EXPECT_EQ(a.persistable(), b.persistable());
  EXPECT_EQ(program.block(a.block()).FindVar(a.name_symbol()), a.id());
}

void ExpectSame(const Program& a, const Program& b) {
  ExpectSameTables(a, b);
  EXPECT_EQ(a.Serialize(), b.Serialize());
  ASSERT_EQ(a.num_blocks(), b.num_blocks());
  for (int i = 0; i < a.num_blocks(); ++i) {
    ASSERT_EQ(a.block(i).ops(), b.block(i).ops());
    for (OpId id : a.block(i).ops()) ExpectSameOp(a.op(id), b.op(id));
    ASSERT_EQ(a.block(i).vars(), b.block(i).vars());
    for (VarId id : a.block(i).vars()) ExpectSameVar(b, a.var(id), b.var(id));
  }
}

// Ops of several signatures, some of them first met late, and sub-blocks.
std::string SomeProgram(int layers) {
  ProgramBuilder builder;
  for (int i = 0; i < layers; ++i) {
    const std::string w = absl::StrCat("w_", i), x = absl::StrCat("x_", i);
    builder.Param(w).Op("mul", {{"X", {x}}, {"Y", {w}}}, {{"Out", {absl::StrCat("x_", i + 1)}}});
    builder.IntAttr(absl::StrCat("attr_", i / 5), i);
    if (i % 7 == 3) {
      builder.Op(absl::StrCat("type_", i), {{absl::StrCat("slot_", i), {x, w}}}, {{"Out", {}}});
    }
    builder.Op("sgd", {{"Param", {w}}, {"Grad", {w + "@GRAD"}}}, {{"ParamOut", {w}}},
               kRoleOptimize);
    builder.Pairs({w, w + "@GRAD"});
  }
  builder.Op("while", {{"Cond", {"c"}}}, {{"Out", {}}}).BlockAttr("sub_block", 1);
  builder.NewBlock().Op("relu", {{"X", {"y"}}}, {{"Out", {"z"}}});
  return builder.desc().SerializeAsString();
}

TEST(ParallelParse, NumberOfThreadsDoesNotShow) {
  const std::string bytes = SomeProgram(40);
  WEFT_ASSERT_OK_AND_ASSIGN(const Program one, ParseWith(1, bytes));
  for (const int threads : {2, 3, 4, 16}) {
    SCOPED_TRACE(threads);
    WEFT_ASSERT_OK_AND_ASSIGN(const Program several, ParseWith(threads, bytes));
    ExpectSame(one, several);
  }
}

TEST(ParallelParse, MoreThreadsThanFieldsAreFine) {
  const std::string bytes = ProgramBuilder().Op("relu", {}, {}).desc().SerializeAsString();
  WEFT_ASSERT_OK_AND_ASSIGN(const Program one, ParseWith(1, bytes));
  WEFT_ASSERT_OK_AND_ASSIGN(const Program several, ParseWith(1000, bytes));
  ExpectSame(one, several);
}

// Variables that ops name before they are declared, and declarations between ops.
TEST(ParallelParse, OrderOfFieldsDoesNotMatter) {
  pb::ProgramDesc desc;
  ASSERT_TRUE(desc.ParseFromString(SomeProgram(20)));
  std::string fields;
  for (int i = 0; i < desc.blocks(0).vars_size(); ++i) {
    if (i + 1 < desc.blocks(0).ops_size()) {  // all but the last one, which has a sub-block
      fields += WireOp(desc.blocks(0).ops(i).SerializeAsString());
    }
    fields += WireVar(desc.blocks(0).vars(i).SerializeAsString());
  }
  const std::string bytes = WireProgram(fields);
  WEFT_ASSERT_OK_AND_ASSIGN(const Program one, ParseWith(1, bytes));
  for (const int threads : {2, 3, 5}) {
    SCOPED_TRACE(threads);
    WEFT_ASSERT_OK_AND_ASSIGN(const Program several, ParseWith(threads, bytes));
    ExpectSame(one, several);
  }
}

// Damage anywhere, names that are not UTF-8 among it: the first error is the same one.
TEST(ParallelParse, ErrorsAreTheSame) {
  const std::string whole = SomeProgram(8);
  int refused = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    for (const int change : {0x01, 0x08, 0x80, 0xff}) {
      std::string bytes = whole;
      bytes[i] = static_cast<char>(bytes[i] ^ change);
      bytes[bytes.size() - 1 - i] = static_cast<char>(bytes[bytes.size() - 1 - i] ^ 0x80);
      SCOPED_TRACE(absl::StrCat("byte ", i, " xor ", change));
      const absl::StatusOr<Program> one = ParseWith(1, bytes);
      const absl::StatusOr<Program> several = ParseWith(3, bytes);
      ASSERT_EQ(one.status(), several.status());
      refused += !one.ok();
    }
  }
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace weft::testing
