#include "transpiler/context_flags.h"

#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/pipeline/cluster.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::Eq;
using ::testing::IsEmpty;
using ::testing::Optional;

const ContextFlag& Flag(absl::string_view name) {
  const auto found =
      absl::c_find_if(ContextFlags(), [&](const ContextFlag& flag) { return flag.name == name; });
  EXPECT_TRUE(found != ContextFlags().end()) << "no flag " << name;
  return found == ContextFlags().end() ? ContextFlags()[0] : *found;
}

// Returns the bad word; empty for none.
std::string Set(absl::string_view name, const std::string& text, TranspileOptions* options) {
  return std::string(Flag(name).set(text, options).value_or(""));
}

TEST(ContextFlags, SetTheFieldsThatPassesRead) {
  TranspileOptions options;
  EXPECT_EQ(Set("nranks", "4", &options), "");
  EXPECT_EQ(Set("endpoints", "a:1,b:1", &options), "");
  EXPECT_EQ(Set("rank", "1", &options), "");
  EXPECT_EQ(Set("current_endpoint", "b:1", &options), "");
  EXPECT_EQ(Set("devices", "0,3", &options), "");
  EXPECT_EQ(Set("distributed_params", "v,w", &options), "");
  EXPECT_EQ(Set("device_kind", "cpu", &options), "");
  EXPECT_EQ(Set("paddle_version", "3", &options), "");
  EXPECT_THAT(options.device_kind, Optional(TargetDevice::kCpu));
  EXPECT_THAT(options.paddle_version, Optional(3));
  EXPECT_THAT(options.cluster.nranks, Optional(4));
  EXPECT_THAT(options.cluster.endpoints, ElementsAre("a:1", "b:1"));
  EXPECT_THAT(options.cluster.rank, Optional(1));
  EXPECT_THAT(options.cluster.current_endpoint, Optional(std::string("b:1")));
  EXPECT_THAT(options.cluster.devices, Optional(ElementsAre(0, 3)));
  EXPECT_THAT(options.distributed_params, ElementsAre("v", "w"));
}

TEST(ContextFlags, TextOfAnotherTypeIsRefusedByItsBadWord) {
  TranspileOptions options;
  EXPECT_EQ(Set("nranks", "two", &options), "two");
  EXPECT_THAT(Flag("rank").set("", &options), Optional(Eq("")));
  EXPECT_EQ(Set("devices", "0,x,1", &options), "x");
  EXPECT_EQ(Set("device_kind", "gpu", &options), "gpu");
  EXPECT_EQ(Set("paddle_version", "3.3", &options), "3.3");
  EXPECT_THAT(Flag("devices").set("", &options), Optional(Eq("")));
  EXPECT_THAT(ContextFlagsGiven(options), IsEmpty());
}

// The texts of the table, and what a job has without the flags.
TEST(ContextFlags, DefaultsAreWhatTheClusterMakes) {
  EXPECT_STREQ(Flag("nranks").default_value, "as option:endpoints says, else unknown");
  EXPECT_STREQ(Flag("endpoints").default_value, "none");
  EXPECT_STREQ(Flag("distributed_params").default_value, "none");
  const TranspileOptions options;
  EXPECT_THAT(options.distributed_params, IsEmpty());
  WEFT_ASSERT_OK_AND_ASSIGN(const Cluster none, Cluster::Create(options.cluster));
  EXPECT_EQ(none.nranks(), absl::nullopt);
  EXPECT_THAT(none.endpoints(), IsEmpty());

  EXPECT_STREQ(Flag("rank").default_value, "0");
  EXPECT_STREQ(Flag("current_endpoint").default_value, "its entry in option:endpoints");
  EXPECT_STREQ(Flag("devices").default_value,
               "one device per trainer; paddle dialect: Paddle's default");
  ClusterSpec spec;
  spec.endpoints = {"a:1", "b:1"};
  WEFT_ASSERT_OK_AND_ASSIGN(const Cluster first, Cluster::Create(spec));
  EXPECT_EQ(first.rank(), 0);
  EXPECT_EQ(first.current_endpoint(), "a:1");
  EXPECT_EQ(first.devices(), absl::nullopt);
  EXPECT_EQ(first.nranks(), first.trainers());
  spec.rank = 1;
  WEFT_ASSERT_OK_AND_ASSIGN(const Cluster second, Cluster::Create(spec));
  EXPECT_EQ(second.current_endpoint(), "b:1");
}

TEST(ContextFlags, ThoseThatAreGivenAreNamed) {
  TranspileOptions options;
  EXPECT_THAT(ContextFlagsGiven(options), IsEmpty());
  options.cluster.nranks = 4;
  options.cluster.devices = {{0, 1}};
  EXPECT_THAT(ContextFlagsGiven(options), ElementsAre("nranks", "devices"));
  options.cluster.endpoints = {"a:1", "b:1"};
  options.cluster.rank = 0;
  options.cluster.current_endpoint = "a:1";
  options.distributed_params = {"w"};
  EXPECT_THAT(ContextFlagsGiven(options),
              ElementsAre("nranks", "endpoints", "rank", "current_endpoint", "devices",
                          "distributed_params"));
}

}  // namespace
}  // namespace weft
