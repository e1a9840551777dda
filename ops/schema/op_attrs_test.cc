#include "ops/schema/op_attrs.h"

#include <string>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;

const OpSchema& TestSchema() {
  static const auto* const schema =
      new OpSchema(OpSchema("test")
                       .Attr("int", 7)
                       .Attr("long", int64_t{8})
                       .Attr("float", 0.5f)
                       .Attr("double", 0.25)
                       .Attr("bool", true)
                       .Attr("string", "text")
                       .Attr("ints", std::vector<int32_t>{1, 2})
                       .Attr("longs", std::vector<int64_t>{3, 4})
                       .Attr("floats", std::vector<float>{0.5f})
                       .Attr("doubles", std::vector<double>{0.5})
                       .Attr("bools", std::vector<bool>{true})
                       .Attr("strings", std::vector<std::string>{"a", "b"})
                       .Attr("block", BlockRef{1}));
  return *schema;
}

// Decodes a `test` op that has these attributes.
absl::StatusOr<OpAttrs> Decode(const std::vector<pb::OpDesc::Attr>& attrs,
                               const OpSchema& schema = TestSchema()) {
  ProgramBuilder builder;
  builder.Op("test", {}, {});
  for (const pb::OpDesc::Attr& attr : attrs) *builder.last_op().add_attrs() = attr;
  const Program program = builder.NewBlock().Build();
  return OpAttrs::Decode(program.op(program.block(0).ops()[0]), schema);
}

TEST(OpAttrsTest, MissingAttributesHaveTheirDefaults) {
  WEFT_ASSERT_OK_AND_ASSIGN(const OpAttrs attrs, Decode({}));
  EXPECT_EQ(attrs.Int("int"), 7);
  EXPECT_EQ(attrs.Int("long"), 8);
  EXPECT_EQ(attrs.Float("float"), 0.5);
  EXPECT_EQ(attrs.Float("double"), 0.25);
  EXPECT_TRUE(attrs.Bool("bool"));
  EXPECT_EQ(attrs.String("string"), "text");
  EXPECT_THAT(attrs.Ints("ints"), ElementsAre(1, 2));
  EXPECT_THAT(attrs.Ints("longs"), ElementsAre(3, 4));
  EXPECT_THAT(attrs.Floats("floats"), ElementsAre(0.5));
  EXPECT_THAT(attrs.Floats("doubles"), ElementsAre(0.5));
  EXPECT_THAT(attrs.Strings("strings"), ElementsAre("a", "b"));
  EXPECT_EQ(attrs.Block("block"), 1);
}

TEST(OpAttrsTest, AttributesOfTheOpReplaceDefaults) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      const OpAttrs attrs,
      Decode({MakeAttr("int", -1), MakeAttr("bool", false), MakeAttr("string", std::string("x")),
              MakeAttr("longs", std::vector<int64_t>{9}),
              MakeAttr("strings", std::vector<std::string>{})}));
  EXPECT_EQ(attrs.Int("int"), -1);
  EXPECT_FALSE(attrs.Bool("bool"));
  EXPECT_EQ(attrs.String("string"), "x");
  EXPECT_THAT(attrs.Ints("longs"), ElementsAre(9));
  EXPECT_THAT(attrs.Strings("strings"), ElementsAre());
}

TEST(OpAttrsTest, ScalarsKeepTheirTypes) {
  const OpSchema schema = OpSchema("op").Attr("values", std::vector<Scalar>{});
  const std::vector<Scalar> values = {true, int64_t{1} << 60, -0.5};
  WEFT_ASSERT_OK_AND_ASSIGN(const OpAttrs attrs, Decode({MakeAttr("values", values)}, schema));
  EXPECT_EQ(attrs.Scalars("values"), values);
  pb::OpDesc::Attr complex = MakeAttr("values", values);
  complex.mutable_scalars(0)->set_type(pb::Scalar::COMPLEX128);
  EXPECT_THAT(Decode({complex}, schema), IsInvalidArgument("attribute values: expected SCALARS"));
}

// Paddle 3 writes the sizes of a pooling as either.
TEST(OpAttrsTest, ScalarsThatAreIntegersMayBeAListOfThem) {
  const OpSchema schema = OpSchema("op").Attr("sizes", std::vector<int32_t>{});
  const auto decode = [&](const std::vector<Scalar>& values) {
    return Decode({MakeAttr("sizes", values)}, schema);
  };
  WEFT_ASSERT_OK_AND_ASSIGN(const OpAttrs attrs, decode({int64_t{2}, int64_t{3}}));
  EXPECT_THAT(attrs.Ints("sizes"), ElementsAre(2, 3));
  EXPECT_THAT(decode({int64_t{2}, 0.5}), IsInvalidArgument("attribute sizes: expected INTS"));
  EXPECT_THAT(decode({int64_t{1} << 40}), IsInvalidArgument("attribute sizes: expected INTS"));
}

TEST(OpAttrsTest, LastOfRepeatedAttributesCounts) {
  WEFT_ASSERT_OK_AND_ASSIGN(const OpAttrs attrs, Decode({MakeAttr("int", 1), MakeAttr("int", 2)}));
  EXPECT_EQ(attrs.Int("int"), 2);
}

TEST(OpAttrsTest, AttributesOutsideOfTheSchemaAreLeftOut) {
  WEFT_ASSERT_OK_AND_ASSIGN(const OpAttrs attrs, Decode({MakeAttr("use_mkldnn", true)}));
  EXPECT_FALSE(attrs.Has("use_mkldnn"));
  EXPECT_TRUE(attrs.Has("int"));
}

TEST(OpAttrsTest, NarrowerTypesConvert) {
  WEFT_ASSERT_OK_AND_ASSIGN(const OpAttrs attrs,
                            Decode({MakeAttr("long", 5), MakeAttr("double", 0.5f),
                                    MakeAttr("longs", std::vector<int32_t>{-1, 2}),
                                    MakeAttr("doubles", std::vector<float>{0.5f, 2.0f})}));
  EXPECT_EQ(attrs.Int("long"), 5);
  EXPECT_EQ(attrs.Float("double"), 0.5);
  EXPECT_THAT(attrs.Ints("longs"), ElementsAre(-1, 2));
  EXPECT_THAT(attrs.Floats("doubles"), ElementsAre(0.5, 2.0));
}

TEST(OpAttrsTest, EarlyVersionsWroteNumbersForBoolsAndForLists) {
  WEFT_ASSERT_OK_AND_ASSIGN(const OpAttrs attrs,
                            Decode({MakeAttr("bool", 0), MakeAttr("floats", 0.25f)}));
  EXPECT_FALSE(attrs.Bool("bool"));
  EXPECT_THAT(attrs.Floats("floats"), ElementsAre(0.25));
}

TEST(OpAttrsTest, WiderTypesConvertWhereTheValueFits) {
  WEFT_ASSERT_OK_AND_ASSIGN(const OpAttrs attrs,
                            Decode({MakeAttr("int", int64_t{5}), MakeAttr("float", 0.125),
                                    MakeAttr("ints", std::vector<int64_t>{-1, 2})}));
  EXPECT_EQ(attrs.Int("int"), 5);
  EXPECT_EQ(attrs.Float("float"), 0.125);
  EXPECT_THAT(attrs.Ints("ints"), ElementsAre(-1, 2));
}

TEST(OpAttrsTest, ValueThatDoesNotFitIsAnError) {
  EXPECT_THAT(Decode({MakeAttr("int", int64_t{5000000000})}),
              IsInvalidArgument("op 0 (test) attribute int: expected INT, found LONG 5000000000"));
  EXPECT_THAT(Decode({MakeAttr("float", 0.1)}),
              IsInvalidArgument("attribute float: expected FLOAT, found FLOAT64 0.1"));
  EXPECT_THAT(Decode({MakeAttr("ints", std::vector<int64_t>{5000000000})}),
              IsInvalidArgument("attribute ints: expected INTS, found LONGS"));
}

TEST(OpAttrsTest, WrongTypeIsAnError) {
  EXPECT_THAT(Decode({MakeAttr("string", 1)}),
              IsInvalidArgument("op 0 (test) attribute string: expected STRING, found INT"));
  EXPECT_THAT(Decode({MakeAttr("float", 1)}),
              IsInvalidArgument("attribute float: expected FLOAT, found INT"));
  EXPECT_THAT(Decode({MakeAttr("bool", 2)}),
              IsInvalidArgument("attribute bool: expected BOOLEAN, found INT"));
}

TEST(OpAttrsTest, AttributeGivenAsVariableIsAnError) {
  pb::OpDesc::Attr attr;
  attr.set_name("float");
  attr.set_type(pb::VAR);
  attr.set_var_name("x");
  EXPECT_THAT(Decode({attr}), IsInvalidArgument("attribute float: expected FLOAT, found VAR"));
}

TEST(OpAttrsTest, MissingRequiredAttributeIsAnError) {
  const OpSchema schema = OpSchema("test").RequiredAttr("mu", 0.0f);
  EXPECT_THAT(Decode({}, schema),
              IsInvalidArgument("op 0 (test) attribute mu: expected FLOAT, found none"));
}

TEST(OpAttrsTest, MakeReplacesDefaults) {
  const OpAttrs attrs = OpAttrs::Make(TestSchema(), {{"int", 1}, {"string", std::string("y")}});
  EXPECT_EQ(attrs.Int("int"), 1);
  EXPECT_EQ(attrs.String("string"), "y");
  EXPECT_EQ(attrs.Int("long"), 8);
}

TEST(OpAttrsDeathTest, MakeDiesOnNamesAndTypesThatTheSchemaDoesNotHave) {
  EXPECT_DEATH(OpAttrs::Make(TestSchema(), {{"none", 1}}), "test has no attribute none");
  EXPECT_DEATH(OpAttrs::Make(TestSchema(), {{"int", 1.0f}}),
               "test attribute int is INT, not FLOAT");
}

TEST(OpAttrsDeathTest, ReadingDiesOnNamesAndTypesThatTheSchemaDoesNotHave) {
  const OpAttrs attrs = OpAttrs::Make(TestSchema());
  EXPECT_DEATH(attrs.Int("none"), "no attribute none");
  EXPECT_DEATH(attrs.Int("float"), "float is not an integer");
  EXPECT_DEATH(attrs.Strings("ints"), "ints is not a list of strings");
}

TEST(MakeAttrTest, DecodesToTheSameValue) {
  std::vector<pb::OpDesc::Attr> attrs;
  for (const AttrSchema& attr : TestSchema().attrs()) {
    attrs.push_back(MakeAttr(attr.name, attr.default_value));
    EXPECT_EQ(attrs.back().type(), AttrTypeOf(attr.default_value));
  }
  // Defaults of zero and nothing, so that what is read comes from the op.
  const OpSchema zeros = OpSchema("test")
                             .Attr("int", 0)
                             .Attr("double", 0.0)
                             .Attr("block", BlockRef{})
                             .Attr("floats", std::vector<float>{})
                             .Attr("strings", std::vector<std::string>{});
  WEFT_ASSERT_OK_AND_ASSIGN(const OpAttrs decoded, Decode(attrs, zeros));
  EXPECT_EQ(decoded.Int("int"), 7);
  EXPECT_EQ(decoded.Float("double"), 0.25);
  EXPECT_EQ(decoded.Block("block"), 1);
  EXPECT_THAT(decoded.Floats("floats"), ElementsAre(0.5));
  EXPECT_THAT(decoded.Strings("strings"), ElementsAre("a", "b"));
}

}  // namespace
}  // namespace weft::testing
