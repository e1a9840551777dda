#include "executor/streams/host_stream.h"

#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/test.h"
#include "executor/gpu/gpu_device_testing.h"

namespace weft::testing {
namespace {

class HostStreamTest : public ::testing::Test {
 protected:
  explicit HostStreamTest(bool ranks_share_device = false) {
    auto gpu = std::make_unique<FakeGpuDevice>();
    gpu_ = gpu.get();
    device_ = WithHostStream(std::move(gpu), ranks_share_device);
    there_ = *device_->NewEvent();
    back_ = *device_->NewEvent();
    a_ = *device_->NewStream("a");
    b_ = *device_->NewStream("b");
    host_ = *device_->NewHostStream("host");
  }

  // Work of the device, in the order of the stream.
  static void Enqueue(Stream* stream, std::function<void()> work) {
    stream->Launch([stream, work = std::move(work)] {
      static_cast<FakeStream*>(stream->native_handle())->Enqueue(work);
      return absl::OkStatus();
    });
  }
  void Append(Stream* stream, const std::string& what) {
    if (stream == host_.get()) {
      host_->Launch([this, what] {
        log_.push_back(what);
        return absl::OkStatus();
      });
    } else {
      Enqueue(stream, [this, what] { log_.push_back(what); });
    }
  }
  // Streams that take turns write it: a missing wait is a data race.
  std::vector<std::string> log_;

  FakeGpuDevice* gpu_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Event> there_, back_;
  std::unique_ptr<Stream> a_, b_, host_;
};

TEST_F(HostStreamTest, TheHostAndTheDeviceTakeTurns) {
  std::promise<void> gate;
  // Nothing runs before all is launched: the launches wait for nothing, and each wait is for the
  // record before it, though the events are recorded again.
  Enqueue(a_.get(), [&, opened = gate.get_future().share()] { opened.wait(); });
  std::vector<std::string> expected;
  for (int round = 0; round < 50; ++round) {
    Append(a_.get(), "device");
    a_->Record(there_.get());
    host_->Wait(there_.get());
    Append(host_.get(), "host");
    host_->Record(back_.get());
    a_->Wait(back_.get());
    expected.insert(expected.end(), {"device", "host"});
  }
  gate.set_value();
  WEFT_EXPECT_OK(a_->Synchronize());
  WEFT_EXPECT_OK(host_->Synchronize());
  EXPECT_EQ(log_, expected);
  EXPECT_EQ(gpu_->num_value_waits(), 50);
}

TEST_F(HostStreamTest, SeveralStreamsWaitForOneRecord) {
  std::promise<void> gate;
  host_->Launch([opened = gate.get_future().share()] {
    opened.wait();
    return absl::OkStatus();
  });
  Append(host_.get(), "host");
  host_->Record(back_.get());
  a_->Wait(back_.get());
  Append(a_.get(), "a");
  a_->Record(there_.get());
  b_->Wait(back_.get());
  b_->Wait(there_.get());
  Append(b_.get(), "b");
  gate.set_value();
  WEFT_EXPECT_OK(b_->Synchronize());
  WEFT_EXPECT_OK(host_->Synchronize());
  EXPECT_THAT(log_, ElementsAre("host", "a", "b"));
}

TEST_F(HostStreamTest, WaitsForUnrecordedEventsReturnAtOnce) {
  host_->Wait(there_.get());
  a_->Wait(back_.get());
  WEFT_EXPECT_OK(a_->Synchronize());
  WEFT_EXPECT_OK(host_->Synchronize());
}

TEST_F(HostStreamTest, AnErrorOfTheDeviceSkipsTheHostsWork) {
  a_->Launch([] { return absl::InternalError("device"); });
  a_->Record(there_.get());
  host_->Wait(there_.get());
  Append(host_.get(), "host");
  host_->Record(back_.get());
  b_->Wait(back_.get());
  EXPECT_THAT(host_->Synchronize(), StatusIs(absl::StatusCode::kInternal, "device"));
  WEFT_EXPECT_OK(b_->Synchronize());  // the event has fired
  EXPECT_TRUE(log_.empty());
}

TEST_F(HostStreamTest, AnErrorOfTheHostEndsNoStream) {
  host_->Launch([] { return absl::InternalError("host"); });
  Append(host_.get(), "skipped");
  host_->Record(back_.get());
  a_->Wait(back_.get());
  Append(a_.get(), "device");
  WEFT_EXPECT_OK(a_->Synchronize());
  EXPECT_THAT(host_->Synchronize(), StatusIs(absl::StatusCode::kInternal, "host"));
  EXPECT_THAT(host_->Synchronize(), StatusIs(absl::StatusCode::kInternal, "host"));
  EXPECT_THAT(log_, ElementsAre("device"));
}

// As after an illegal access of a kernel: CUDA calls nobody.
TEST_F(HostStreamTest, TheHostDoesNotWaitForADeviceThatHasFailed) {
  std::promise<void> gate;
  Enqueue(a_.get(), [&, opened = gate.get_future().share()] { opened.wait(); });
  a_->Record(there_.get());
  host_->Wait(there_.get());
  Append(host_.get(), "host");
  gpu_->Fail();
  gate.set_value();
  EXPECT_THAT(host_->Synchronize(), StatusIs(absl::StatusCode::kInternal, "the device has failed"));
  EXPECT_TRUE(log_.empty());
}

struct SharedDeviceTest : public HostStreamTest {
  SharedDeviceTest() : HostStreamTest(/*ranks_share_device=*/true) {}
};

TEST_F(SharedDeviceTest, NoStreamOfTheDeviceWaitsForTheHost) {
  std::vector<std::string> expected;
  for (int round = 0; round < 50; ++round) {
    Append(a_.get(), "device");
    a_->Record(there_.get());
    host_->Wait(there_.get());
    Append(host_.get(), "host");
    host_->Record(back_.get());
    a_->Wait(back_.get());
    expected.insert(expected.end(), {"device", "host"});
  }
  WEFT_EXPECT_OK(a_->Synchronize());
  WEFT_EXPECT_OK(host_->Synchronize());
  EXPECT_EQ(log_, expected);
  EXPECT_EQ(gpu_->num_value_waits(), 0);
}

TEST_F(SharedDeviceTest, LaunchesDoNotWaitForADeviceThatHasFailed) {
  std::promise<void> gate;
  Enqueue(a_.get(), [&, opened = gate.get_future().share()] { opened.wait(); });
  a_->Record(there_.get());
  host_->Wait(there_.get());
  Append(host_.get(), "host");
  host_->Record(back_.get());
  gpu_->Fail();
  b_->Wait(back_.get());
  gate.set_value();
  EXPECT_THAT(host_->Synchronize(), StatusIs(absl::StatusCode::kInternal, "the device has failed"));
  EXPECT_TRUE(log_.empty());
}

TEST_F(HostStreamTest, TwoStreamsOfTheHostAreNotOrdered) {
  const std::unique_ptr<Stream> other = *device_->NewHostStream("other");
  host_->Record(back_.get());
  other->Wait(back_.get());
  EXPECT_THAT(other->Synchronize(),
              StatusIs(absl::StatusCode::kUnimplemented, "two streams of the host"));
}

TEST_F(HostStreamTest, TheMemoriesAreThoseOfTheDevice) {
  EXPECT_EQ(device_->memory(), gpu_->memory());
  EXPECT_EQ(device_->pinned_memory(), gpu_->pinned_memory());
}

}  // namespace
}  // namespace weft::testing
