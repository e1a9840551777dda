#include "ops/schema/device_ops.h"

#include "gtest/gtest.h"

namespace weft {
namespace {

using Kind = DeviceStream::Kind;

TEST(DeviceOps, CopiesSayFromWhichMemory) {
  EXPECT_EQ(CopiesFrom("memcpy_d2h"), DeviceKind::kAccelerator);
  EXPECT_EQ(CopiesFrom("memcpy_h2d"), DeviceKind::kHost);
  EXPECT_EQ(CopiesFrom("memcpy"), absl::nullopt);
}

TEST(DeviceOps, StreamsHaveNames) {
  for (Kind kind : {Kind::kAccelerator, Kind::kHost, Kind::kToHost, Kind::kFromHost}) {
    EXPECT_EQ(FindDeviceStream(DeviceStreamName(kind)), (DeviceStream{kind, -1}));
  }
  EXPECT_EQ(FindDeviceStream("ring 3"), (DeviceStream{Kind::kRing, 3}));
  for (const char* other : {"", "ring", "ring x", "gpu"}) {
    EXPECT_EQ(FindDeviceStream(other), absl::nullopt) << other;
  }
}

}  // namespace
}  // namespace weft
