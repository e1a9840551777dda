#include "executor/streams/cuda_stream.h"

#include "base/testing/test.h"
#include "executor/streams/host_stream.h"

#ifdef WEFT_HAVE_CUDA
#include <cuda_runtime_api.h>

#include <memory>
#include <thread>
#include <vector>
#endif

namespace weft::testing {
namespace {

TEST(CudaDeviceTest, MissingDeviceIsUnavailable) {
  EXPECT_EQ(NewCudaDevice(1 << 20).status().code(), absl::StatusCode::kUnavailable);
}

#ifndef WEFT_HAVE_CUDA

TEST(CudaDeviceTest, BuildWithoutCudaSaysSo) {
  EXPECT_THAT(CudaDeviceCount().status(),
              StatusIs(absl::StatusCode::kUnavailable, "built without CUDA"));
  EXPECT_THAT(NewCudaDevice(0).status(),
              StatusIs(absl::StatusCode::kUnavailable, "built without CUDA"));
}

#else

class CudaStreamTest : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<Device> > device = NewCudaDevice(0);
    if (!device.ok()) GTEST_SKIP() << device.status();
    device_ = *std::move(device);
    event_ = *device_->NewEvent();
    a_ = *device_->NewStream("a");
    b_ = *device_->NewStream("b");
    ASSERT_EQ(cudaMalloc(&buffer_, kBytes), cudaSuccess);
  }

  void TearDown() override {
    if (buffer_ != nullptr) cudaFree(buffer_);
  }

  Stream::Task Fill(Stream* stream, int value) {
    return [this, stream, value] {
      cudaMemsetAsync(buffer_, value, kBytes, static_cast<cudaStream_t>(stream->native_handle()));
      return absl::OkStatus();
    };
  }
  Stream::Task CopyTo(Stream* stream, std::vector<char>* host) {
    return [this, stream, host] {
      cudaMemcpyAsync(host->data(), buffer_, kBytes, cudaMemcpyDeviceToHost,
                      static_cast<cudaStream_t>(stream->native_handle()));
      return absl::OkStatus();
    };
  }

  static constexpr size_t kBytes = 64 << 20;
  void* buffer_ = nullptr;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Event> event_;
  std::unique_ptr<Stream> a_, b_;
};

// Work that the rank does before it creates a stream, such as joining rings, must use that device
// too.
TEST_F(CudaStreamTest, DeviceIsCurrentForTheThreadThatMakesIt) {
  int count = 0, current = -1;
  ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  const int last = count - 1;
  std::thread rank([&] {
    WEFT_EXPECT_OK(NewCudaDevice(last).status());
    EXPECT_EQ(cudaGetDevice(&current), cudaSuccess);
  });
  rank.join();
  EXPECT_EQ(current, last);
}

TEST_F(CudaStreamTest, WorkAfterAWaitSeesWorkBeforeTheRecord) {
  std::vector<char> host(kBytes);
  for (int value = 1; value <= 20; ++value) {
    a_->Launch(Fill(a_.get(), value));
    a_->Record(event_.get());
    b_->Wait(event_.get());
    b_->Launch(CopyTo(b_.get(), &host));
    WEFT_ASSERT_OK(b_->Synchronize());
    ASSERT_EQ(host.front(), value);
    ASSERT_EQ(host.back(), value);
  }
}

TEST_F(CudaStreamTest, WaitForAnUnrecordedEventReturnsAtOnce) {
  a_->Wait(event_.get());
  WEFT_EXPECT_OK(a_->Synchronize());
}

TEST_F(CudaStreamTest, FirstErrorSkipsLaterTasks) {
  bool ran = false;
  a_->Launch([] { return absl::InternalError("first"); });
  a_->Launch([&] {
    ran = true;
    return absl::OkStatus();
  });
  EXPECT_THAT(a_->Synchronize(), StatusIs(absl::StatusCode::kInternal, "first"));
  EXPECT_FALSE(ran);
}

TEST_F(CudaStreamTest, EventOfAPoisonedStreamPoisonsTheWaiter) {
  a_->Launch([] { return absl::InternalError("broken"); });
  a_->Record(event_.get());
  b_->Wait(event_.get());
  EXPECT_THAT(b_->Synchronize(), StatusIs(absl::StatusCode::kInternal, "broken"));
}

// A thread of the host and a stream add 1 in turns, all launched at once.
TEST_F(CudaStreamTest, TheHostAndAStreamTakeTurns) {
  constexpr int kRounds = 200;
  const std::unique_ptr<Device> device = WithHostStream(*NewCudaDevice(0));
  const std::unique_ptr<Stream> stream = *device->NewStream("device");
  const std::unique_ptr<Stream> host = *device->NewHostStream("host");
  const std::unique_ptr<Event> there = *device->NewEvent(), back = *device->NewEvent();
  const std::shared_ptr<void> memory = device->pinned_memory()->Allocate(2 * sizeof(int));
  int* const count = static_cast<int*>(memory.get());
  count[0] = count[1] = 0;
  const auto copy = [&](void* to, const void* from) {
    stream->Launch([=, &stream] {
      const cudaError_t error = cudaMemcpyAsync(to, from, sizeof(int), cudaMemcpyDefault,
                                                static_cast<cudaStream_t>(stream->native_handle()));
      return error == cudaSuccess ? absl::OkStatus() : absl::InternalError("no copy");
    });
  };
  for (int round = 0; round < kRounds; ++round) {
    copy(buffer_, &count[0]);
    copy(&count[1], buffer_);
    stream->Record(there.get());
    host->Wait(there.get());
    host->Launch([=] {
      count[0] = count[1] + 1;
      return absl::OkStatus();
    });
    host->Record(back.get());
    stream->Wait(back.get());
  }
  WEFT_EXPECT_OK(stream->Synchronize());
  WEFT_EXPECT_OK(host->Synchronize());
  EXPECT_EQ(count[0], kRounds);
}

// Of two streams, with numbers that change between two runs.
TEST_F(CudaStreamTest, ARecordedGraphRunsAgain) {
  const auto word = [this](int i) { return static_cast<char*>(buffer_) + 4 * i; };
  const auto copy = [&](Stream* stream, int from, int to) {
    stream->Launch([=] {
      const cudaError_t error = cudaMemcpyAsync(word(to), word(from), 4, cudaMemcpyDeviceToDevice,
                                                static_cast<cudaStream_t>(stream->native_handle()));
      return error == cudaSuccess ? absl::OkStatus() : absl::InternalError("no copy");
    });
  };
  const std::unique_ptr<Event> joined = *device_->NewEvent();
  GraphRecorder* const recorder = device_->graphs();
  ASSERT_EQ(cudaMemset(buffer_, 0, 16), cudaSuccess);
  WEFT_ASSERT_OK(recorder->Begin(a_.get()));
  copy(a_.get(), 0, 1);
  a_->Record(event_.get());
  b_->Wait(event_.get());
  copy(b_.get(), 1, 2);
  b_->Record(joined.get());
  a_->Wait(joined.get());
  copy(a_.get(), 2, 3);
  auto graph = recorder->End(a_.get());
  WEFT_ASSERT_OK(graph.status());
  for (int value : {7, 8}) {
    ASSERT_EQ(cudaMemcpy(word(0), &value, 4, cudaMemcpyHostToDevice), cudaSuccess);
    WEFT_ASSERT_OK(recorder->Launch(graph->get(), a_.get()));
    WEFT_ASSERT_OK(a_->Synchronize());
    int found = 0;
    ASSERT_EQ(cudaMemcpy(&found, word(3), 4, cudaMemcpyDeviceToHost), cudaSuccess);
    EXPECT_EQ(found, value);
  }
}

TEST_F(CudaStreamTest, ChangesOfMemoryAreBlocksThatComeAndGo) {
  const int64_t before = device_->graphs()->memory_changes();
  std::shared_ptr<void> block = device_->memory()->Allocate(64);
  EXPECT_EQ(device_->graphs()->memory_changes(), before + 1);
  block = nullptr;
  EXPECT_EQ(device_->graphs()->memory_changes(), before + 2);
}

TEST_F(CudaStreamTest, AWaitOfTheHostEndsARecording) {
  WEFT_ASSERT_OK(device_->graphs()->Begin(a_.get()));
  EXPECT_NE(cudaStreamSynchronize(static_cast<cudaStream_t>(a_->native_handle())), cudaSuccess);
  EXPECT_FALSE(device_->graphs()->End(a_.get()).ok());
  // The stream is as it was.
  a_->Launch(Fill(a_.get(), 1));
  WEFT_EXPECT_OK(a_->Synchronize());
}

#endif  // WEFT_HAVE_CUDA

}  // namespace
}  // namespace weft::testing
