#include "executor/streams/thread_stream.h"

#include <memory>
#include <thread>
#include <vector>

#include "base/testing/test.h"
#include "executor/streams/progress_counter.h"

namespace weft::testing {
namespace {

class ThreadStreamTest : public ::testing::Test {
 protected:
  std::unique_ptr<Event> NewEvent() { return *device_->NewEvent(); }
  std::unique_ptr<Stream> NewStream(absl::string_view name) { return *device_->NewStream(name); }
  std::unique_ptr<Stream> NewComputeStream() { return *device_->NewComputeStream("compute"); }

  // A task that appends to `log`.
  static Stream::Task Log(std::vector<int>* log, int value) {
    return [log, value] {
      log->push_back(value);
      return absl::OkStatus();
    };
  }

  std::unique_ptr<Device> device_ = NewHostDevice();
  // Events outlive the streams that use them.
  std::unique_ptr<Event> event_ = NewEvent();
  std::unique_ptr<Stream> a_ = NewStream("a");
  std::unique_ptr<Stream> b_ = NewStream("b");
};

TEST_F(ThreadStreamTest, TasksRunInOrder) {
  std::vector<int> log, expected;
  for (int i = 0; i < 1000; ++i) {
    a_->Launch(Log(&log, i));
    expected.push_back(i);
  }
  WEFT_EXPECT_OK(a_->Synchronize());
  EXPECT_EQ(log, expected);
}

TEST_F(ThreadStreamTest, StreamIsUsedAgainAfterSynchronize) {
  std::vector<int> log;
  for (int round = 0; round < 3; ++round) {
    log.clear();
    for (int i = 0; i < 200; ++i) a_->Launch(Log(&log, i));
    WEFT_EXPECT_OK(a_->Synchronize());
    EXPECT_EQ(log.size(), 200u);
  }
}

TEST_F(ThreadStreamTest, TaskRunsOnAnotherThread) {
  std::thread::id ran_on;
  a_->Launch([&] {
    ran_on = std::this_thread::get_id();
    return absl::OkStatus();
  });
  WEFT_EXPECT_OK(a_->Synchronize());
  EXPECT_NE(ran_on, std::this_thread::get_id());
}

TEST_F(ThreadStreamTest, LaunchAndWaitDoNotBlockTheHost) {
  ProgressCounter go;
  std::vector<int> log;
  a_->Launch([&] {
    go.WaitFor(1);
    return absl::OkStatus();
  });
  a_->Record(event_.get());
  b_->Wait(event_.get());
  b_->Launch(Log(&log, 1));
  EXPECT_THAT(log, IsEmpty());  // b cannot have started: a is held
  go.AdvanceTo(1);
  WEFT_EXPECT_OK(b_->Synchronize());
  EXPECT_THAT(log, ElementsAre(1));
}

TEST_F(ThreadStreamTest, StreamsRunAtTheSameTime) {
  // Each task needs the other one to run concurrently.
  ProgressCounter from_a, from_b;
  a_->Launch([&] {
    from_a.AdvanceTo(1);
    from_b.WaitFor(1);
    return absl::OkStatus();
  });
  b_->Launch([&] {
    from_b.AdvanceTo(1);
    from_a.WaitFor(1);
    return absl::OkStatus();
  });
  WEFT_EXPECT_OK(a_->Synchronize());
  WEFT_EXPECT_OK(b_->Synchronize());
}

TEST_F(ThreadStreamTest, WorkAfterAWaitSeesWorkBeforeTheRecord) {
  int value = 0;
  for (int i = 0; i < 500; ++i) {
    a_->Launch([&value] {
      ++value;
      return absl::OkStatus();
    });
    a_->Record(event_.get());
    b_->Wait(event_.get());
    // The other direction needs a separate event: an event is recorded on one stream.
    WEFT_EXPECT_OK(b_->Synchronize());
    ASSERT_EQ(value, i + 1);
  }
}

TEST_F(ThreadStreamTest, WaitForAnUnrecordedEventReturnsAtOnce) {
  a_->Wait(event_.get());
  WEFT_EXPECT_OK(a_->Synchronize());
}

TEST_F(ThreadStreamTest, WaitIsForTheRecordBeforeItNotTheOneAfter) {
  ProgressCounter go;
  a_->Record(event_.get());
  b_->Wait(event_.get());
  a_->Launch([&] {
    go.WaitFor(1);
    return absl::OkStatus();
  });
  a_->Record(event_.get());
  WEFT_EXPECT_OK(b_->Synchronize());  // would hang if b waited for the second record
  go.AdvanceTo(1);
  WEFT_EXPECT_OK(a_->Synchronize());
}

TEST_F(ThreadStreamTest, FirstErrorSkipsLaterTasksAndIsReturnedAgain) {
  std::vector<int> log;
  a_->Launch(Log(&log, 1));
  a_->Launch([] { return absl::InternalError("first"); });
  a_->Launch(Log(&log, 2));
  a_->Launch([] { return absl::InternalError("second"); });
  EXPECT_THAT(a_->Synchronize(), StatusIs(absl::StatusCode::kInternal, "first"));
  a_->Launch(Log(&log, 3));
  EXPECT_THAT(a_->Synchronize(), StatusIs(absl::StatusCode::kInternal, "first"));
  EXPECT_THAT(log, ElementsAre(1));
}

TEST_F(ThreadStreamTest, EventOfAPoisonedStreamPoisonsTheWaiter) {
  std::vector<int> log;
  a_->Launch([] { return absl::InternalError("broken"); });
  a_->Record(event_.get());
  b_->Launch(Log(&log, 1));
  b_->Wait(event_.get());
  b_->Launch(Log(&log, 2));
  EXPECT_THAT(b_->Synchronize(), StatusIs(absl::StatusCode::kInternal, "broken"));
  EXPECT_THAT(log, ElementsAre(1));
}

TEST_F(ThreadStreamTest, OtherStreamsContinueAfterAnError) {
  std::vector<int> log;
  a_->Launch([] { return absl::InternalError("broken"); });
  b_->Launch(Log(&log, 1));
  WEFT_EXPECT_OK(b_->Synchronize());
  EXPECT_FALSE(a_->Synchronize().ok());
  EXPECT_THAT(log, ElementsAre(1));
}

TEST_F(ThreadStreamTest, DestructorFinishesTheWork) {
  std::vector<int> log;
  for (int i = 0; i < 100; ++i) a_->Launch(Log(&log, i));
  a_.reset();
  EXPECT_EQ(log.size(), 100u);
}

TEST_F(ThreadStreamTest, RecordingOnTwoStreamsDies) {
  a_->Record(event_.get());
  EXPECT_DEATH(b_->Record(event_.get()), "recorded on two streams");
}

// --- Compute streams -----------------------------------------------------------------------------

TEST_F(ThreadStreamTest, ComputeStreamRunsOnTheHostThread) {
  const std::unique_ptr<Stream> compute = NewComputeStream();
  std::vector<std::thread::id> ran_on;
  const auto task = [&] {
    ran_on.push_back(std::this_thread::get_id());
    return absl::OkStatus();
  };
  compute->Launch(task);
  EXPECT_THAT(ran_on, IsEmpty());
  compute->Flush();
  compute->Launch(task);
  WEFT_EXPECT_OK(compute->Synchronize());
  EXPECT_THAT(ran_on, ElementsAre(std::this_thread::get_id(), std::this_thread::get_id()));
}

TEST_F(ThreadStreamTest, ComputeStreamRunsAtTheSameTimeAsOthers) {
  // Each task needs the other one to run concurrently.
  const std::unique_ptr<Stream> compute = NewComputeStream();
  ProgressCounter from_compute, from_a;
  compute->Launch([&] {
    from_compute.AdvanceTo(1);
    from_a.WaitFor(1);
    return absl::OkStatus();
  });
  a_->Launch([&] {
    from_a.AdvanceTo(1);
    from_compute.WaitFor(1);
    return absl::OkStatus();
  });
  WEFT_EXPECT_OK(compute->Synchronize());
  WEFT_EXPECT_OK(a_->Synchronize());
}

TEST_F(ThreadStreamTest, ComputeStreamAndOthersWaitForEachOther) {
  const std::unique_ptr<Event> computed = NewEvent();
  std::vector<int> log;
  {
    const std::unique_ptr<Stream> compute = NewComputeStream();
    compute->Launch(Log(&log, 1));
    compute->Record(computed.get());
    a_->Wait(computed.get());
    a_->Launch(Log(&log, 2));
    a_->Record(event_.get());
    compute->Wait(event_.get());
    compute->Launch(Log(&log, 3));
    compute->Record(computed.get());
    a_->Wait(computed.get());
    a_->Launch(Log(&log, 4));
  }  // finishes the work
  WEFT_EXPECT_OK(a_->Synchronize());
  EXPECT_THAT(log, ElementsAre(1, 2, 3, 4));
}

TEST_F(ThreadStreamTest, ComputeStreamIsPoisonedByErrors) {
  const std::unique_ptr<Event> computed = NewEvent();
  const std::unique_ptr<Stream> compute = NewComputeStream();
  std::vector<int> log;
  a_->Launch([] { return absl::InternalError("broken"); });
  a_->Record(event_.get());
  compute->Launch(Log(&log, 1));
  compute->Wait(event_.get());
  compute->Launch(Log(&log, 2));
  compute->Record(computed.get());
  b_->Wait(computed.get());
  b_->Launch(Log(&log, 3));
  EXPECT_THAT(compute->Synchronize(), StatusIs(absl::StatusCode::kInternal, "broken"));
  EXPECT_THAT(b_->Synchronize(), StatusIs(absl::StatusCode::kInternal, "broken"));
  EXPECT_THAT(log, ElementsAre(1));
}

}  // namespace
}  // namespace weft::testing
