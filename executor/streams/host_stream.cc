#include "executor/streams/host_stream.h"

#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "executor/streams/progress_counter.h"
#include "executor/streams/status_counter.h"
#include "executor/streams/thread_stream.h"

namespace weft {
namespace {

class HostStream;

// Recorded on a stream of the device, or on that of the host.
struct JoinedEvent : public Event {
  explicit JoinedEvent(std::unique_ptr<Event> event) : of_device(std::move(event)) {}

  const std::unique_ptr<Event> of_device;
  HostStream* host = nullptr;  // null: on the device, if at all
  uint32_t record = 0;         // the count of that stream
};

JoinedEvent* AsJoined(Event* event) { return static_cast<JoinedEvent*>(event); }

// A thread, an auxiliary stream of the device, and what they tell each other.
class HostStream : public Stream {
 public:
  HostStream(StreamSignals* signals, std::unique_ptr<StreamSignals::Counter> records,
             std::unique_ptr<Stream> auxiliary, std::unique_ptr<Stream> thread)
      : signals_(*signals),
        records_(std::move(records)),
        auxiliary_(std::move(auxiliary)),
        thread_(std::move(thread)) {}

  ~HostStream() override { (void)Synchronize(); }

  void Launch(Task task) override {
    thread_->Launch([this, task = std::move(task)] {
      if (status_.ok()) status_ = task();
      return absl::OkStatus();
    });
  }

  void Record(Event* event) override {
    JoinedEvent* const joined = AsJoined(event);
    joined->host = this;
    joined->record = ++num_records_;
    thread_->Launch([this, record = num_records_] {
      records_->AdvanceTo(record);
      recorded_.AdvanceTo(record);
      return absl::OkStatus();
    });
  }

  void Wait(Event* event) override {
    JoinedEvent* const joined = AsJoined(event);
    if (joined->host == this) return;  // it runs in order
    if (joined->host != nullptr) {
      return Launch([] { return absl::UnimplementedError("two streams of the host"); });
    }
    const uint32_t wait = ++num_waits_;
    bool is_enqueued = false;
    auxiliary_->Wait(joined->of_device.get());
    auxiliary_->Launch([&] {
      const absl::Status status = signals_.CallAfter(
          auxiliary_->native_handle(), [this, wait] { Fire(wait, absl::OkStatus()); });
      is_enqueued = status.ok();
      return status;
    });
    if (!is_enqueued) Fire(wait, auxiliary_->Synchronize());
    thread_->Launch([this, wait] {
      const absl::Status fired = fired_.WaitFor(wait);
      if (status_.ok()) status_ = fired;
      return absl::OkStatus();
    });
  }

  absl::Status Synchronize() override {
    AwaitDevice();
    absl::Status status = thread_->Synchronize();
    status.Update(status_);
    return status;
  }

  // For a stream of the device, which launches this.
  absl::Status AwaitRecord(uint32_t record, void* stream) {
    return signals_.WaitFor(records_.get(), record, stream);
  }
  // For the thread that launches work.
  void AwaitRecordNow(uint32_t record) {
    AwaitDevice();
    recorded_.WaitFor(record);
  }

 private:
  // Until the thread need not wait for it. If the device has failed, its calls do not come: the
  // thread is told.
  void AwaitDevice() {
    const absl::Status device = auxiliary_->Synchronize();
    if (!device.ok()) Fire(num_waits_, device);
  }

  // A call of a device that fails may still come when all waits have been told.
  void Fire(uint32_t wait, const absl::Status& status) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (static_cast<int32_t>(wait - num_fired_) <= 0) return;
    num_fired_ = wait;
    fired_.AdvanceTo(wait, status);
  }

  StreamSignals& signals_;
  const std::unique_ptr<StreamSignals::Counter> records_;
  const std::unique_ptr<Stream> auxiliary_;
  // Of the thread that launches work.
  uint32_t num_records_ = 0, num_waits_ = 0;
  // Waits that are over.
  std::mutex mutex_;
  uint32_t num_fired_ = 0;
  StatusCounter fired_;
  ProgressCounter recorded_;              // num_records_ of the thread
  absl::Status status_;                   // of the thread; read while it is idle
  const std::unique_ptr<Stream> thread_;  // last: it uses all members above
};

// A stream of the device that knows the events of the host's.
class DeviceStream : public Stream {
 public:
  DeviceStream(std::unique_ptr<Stream> stream, bool ranks_share_device)
      : stream_(std::move(stream)), ranks_share_device_(ranks_share_device) {}

  void Launch(Task task) override { stream_->Launch(std::move(task)); }
  void Record(Event* event) override { stream_->Record(AsJoined(event)->of_device.get()); }
  void Wait(Event* event) override {
    JoinedEvent* const joined = AsJoined(event);
    if (joined->host == nullptr) return stream_->Wait(joined->of_device.get());
    if (ranks_share_device_) return joined->host->AwaitRecordNow(joined->record);
    stream_->Launch(
        [&] { return joined->host->AwaitRecord(joined->record, stream_->native_handle()); });
  }
  void Flush() override { stream_->Flush(); }
  absl::Status Synchronize() override { return stream_->Synchronize(); }
  bool MarksTimes() const override { return stream_->MarksTimes(); }
  void MarkTime() override { stream_->MarkTime(); }
  absl::StatusOr<std::vector<std::chrono::steady_clock::time_point>> TakeTimes() override {
    return stream_->TakeTimes();
  }
  void* native_handle() const override { return stream_->native_handle(); }
  void ForgetErrors() override { stream_->ForgetErrors(); }

 private:
  const std::unique_ptr<Stream> stream_;
  const bool ranks_share_device_;
};

class JoinedDevice : public Device {
 public:
  JoinedDevice(std::unique_ptr<Device> device, bool ranks_share_device)
      : device_(std::move(device)),
        ranks_share_device_(ranks_share_device),
        host_(NewHostDevice()) {}

  Memory* memory() override { return device_->memory(); }
  Memory* pinned_memory() override { return device_->pinned_memory(); }
  GraphRecorder* graphs() override { return device_->graphs(); }

  absl::StatusOr<std::unique_ptr<Stream>> NewStream(absl::string_view name) override {
    WEFT_ASSIGN_OR_RETURN(auto stream, device_->NewStream(name));
    return std::make_unique<DeviceStream>(std::move(stream), ranks_share_device_);
  }
  absl::StatusOr<std::unique_ptr<Stream>> NewComputeStream(absl::string_view name) override {
    WEFT_ASSIGN_OR_RETURN(auto stream, device_->NewComputeStream(name));
    return std::make_unique<DeviceStream>(std::move(stream), ranks_share_device_);
  }
  absl::StatusOr<std::unique_ptr<Stream>> NewHostStream(absl::string_view name) override {
    WEFT_ASSIGN_OR_RETURN(auto records, device_->signals()->NewCounter());
    WEFT_ASSIGN_OR_RETURN(auto auxiliary, device_->NewStream(absl::StrCat(name, " waits")));
    WEFT_ASSIGN_OR_RETURN(auto thread, host_->NewStream(name));
    return std::make_unique<HostStream>(device_->signals(), std::move(records),
                                        std::move(auxiliary), std::move(thread));
  }
  absl::StatusOr<std::unique_ptr<Event>> NewEvent() override {
    WEFT_ASSIGN_OR_RETURN(auto event, device_->NewEvent());
    return std::make_unique<JoinedEvent>(std::move(event));
  }

 private:
  const std::unique_ptr<Device> device_;
  const bool ranks_share_device_;
  const std::unique_ptr<Device> host_;
};

}  // namespace

std::unique_ptr<Device> WithHostStream(std::unique_ptr<Device> device, bool ranks_share_device) {
  return std::make_unique<JoinedDevice>(std::move(device), ranks_share_device);
}

}  // namespace weft
