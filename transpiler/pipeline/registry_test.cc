#include "transpiler/pipeline/registry.h"

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/pipeline/pipeline.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// A pass that does nothing with its one option.
class Knead : public Pass {
 public:
  static constexpr absl::string_view kName = "knead";
  static constexpr absl::string_view kDescription = "works the dough";
  struct Options {
    int minutes = 10;
    void Bind(OptionBinder& bind) { bind.Int("minutes", &minutes, "how long", /*min=*/1); }
  };
  explicit Knead(Options options) : options_(options) {}

  absl::string_view name() const override { return kName; }
  absl::StatusOr<bool> Run(const PassContext&, ProgramPair&) const override { return false; }
  int minutes() const { return options_.minutes; }

 private:
  Options options_;
};

class Bake : public Knead {
 public:
  static constexpr absl::string_view kName = "bake";
  static constexpr absl::string_view kDescription = "heats the dough";
  using Knead::Knead;
  absl::string_view name() const override { return kName; }
};

PassRegistry Kitchen() {
  PassRegistry registry;
  registry.Add<Knead>();
  registry.Add<Bake>();
  return registry;
}

TEST(PassRegistry, EntriesAreSortedAndTellOptionsWithDefaults) {
  const PassRegistry registry = Kitchen();
  ASSERT_EQ(registry.entries().size(), 2);
  EXPECT_EQ(registry.entries().begin()->first, "bake");
  const PassRegistry::Entry& knead = registry.entries().at("knead");
  EXPECT_EQ(knead.description, "works the dough");
  ASSERT_EQ(knead.options.size(), 1);
  EXPECT_EQ(knead.options[0].name, "minutes");
  EXPECT_EQ(knead.options[0].default_value, "10");
}

TEST(PassRegistry, OptionsFromTextReachThePass) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Pipeline pipeline,
                            Pipeline::FromText("knead{minutes=7},knead,bake", Kitchen()));
  ASSERT_EQ(pipeline.passes().size(), 3);
  EXPECT_EQ(dynamic_cast<const Knead&>(*pipeline.passes()[0]).minutes(), 7);
  EXPECT_EQ(dynamic_cast<const Knead&>(*pipeline.passes()[1]).minutes(), 10);
  EXPECT_EQ(pipeline.passes()[2]->name(), "bake");
}

TEST(PassRegistry, TextThatIsNoPipelineIsAnErrorWithItsPosition) {
  EXPECT_THAT(Pipeline::FromText("knead,", Kitchen()),
              StatusIs(kInvalid, "pipeline: expected a name at character 7, found the end"));
}

TEST(PassRegistry, UnknownPassIsAnErrorThatListsAll) {
  EXPECT_THAT(
      Pipeline::FromText("knead,brake", Kitchen()),
      StatusIs(kInvalid, "unknown pass brake; expected one of: bake, knead; did you mean bake?"));
}

TEST(PassRegistry, UnknownOptionIsAnErrorThatNamesThePassAndListsAll) {
  EXPECT_THAT(
      Pipeline::FromText("knead{hours=1}", Kitchen()),
      StatusIs(kInvalid, AllOf(HasSubstr("pass knead"), HasSubstr("hours"), HasSubstr("minutes"))));
}

TEST(PassRegistry, ValueThatDoesNotFitIsAnErrorThatSaysWhatDoes) {
  EXPECT_THAT(Pipeline::FromText("knead{minutes=0}", Kitchen()),
              StatusIs(kInvalid, AllOf(HasSubstr("pass knead"), HasSubstr("an integer >= 1"))));
}

TEST(PassRegistryDeathTest, TwoPassesOfOneNameAreAProgrammersError) {
  PassRegistry registry = Kitchen();
  EXPECT_DEATH(registry.Add<Bake>(), "two passes are called bake");
}

}  // namespace
}  // namespace weft::testing
