#include "transpiler/context_flags.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Optional;

bool Set(const std::string& name, const std::string& text, TranspileOptions* options) {
  for (const ContextFlag& flag : ContextFlags()) {
    if (flag.name == name) return flag.set(text, options);
  }
  ADD_FAILURE() << "no flag " << name;
  return false;
}

TEST(ContextFlags, SetTheFieldsThatPassesRead) {
  TranspileOptions options;
  EXPECT_TRUE(Set("nranks", "4", &options));
  EXPECT_TRUE(Set("endpoints", "a:1,b:1", &options));
  EXPECT_TRUE(Set("rank", "1", &options));
  EXPECT_TRUE(Set("current_endpoint", "b:1", &options));
  EXPECT_TRUE(Set("devices", "0,3", &options));
  EXPECT_TRUE(Set("distributed_params", "v,w", &options));
  EXPECT_THAT(options.cluster.nranks, Optional(4));
  EXPECT_THAT(options.cluster.endpoints, ElementsAre("a:1", "b:1"));
  EXPECT_THAT(options.cluster.rank, Optional(1));
  EXPECT_THAT(options.cluster.current_endpoint, Optional(std::string("b:1")));
  EXPECT_THAT(options.cluster.devices, Optional(ElementsAre(0, 3)));
  EXPECT_THAT(options.distributed_params, ElementsAre("v", "w"));
}

TEST(ContextFlags, TextOfAnotherTypeIsRefused) {
  TranspileOptions options;
  EXPECT_FALSE(Set("nranks", "two", &options));
  EXPECT_FALSE(Set("rank", "", &options));
  EXPECT_FALSE(Set("devices", "0,x", &options));
  EXPECT_FALSE(Set("devices", "", &options));
  EXPECT_THAT(ContextFlagsGiven(options), IsEmpty());
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
