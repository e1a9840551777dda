#include "executor/step/graph_device_testing.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace weft::testing {
namespace {

struct ListedTasks : public Graph {
  std::vector<Stream::Task> tasks;
};

// Where it was recorded last.
struct RecordingEvent : public Event {
  RecordingStream* stream = nullptr;
  bool in_graph = false;  // of the recording that runs
  int num_tasks = 0;      // that the stream had by then
  absl::Status status;
};

}  // namespace

class RecordingStream : public Stream {
 public:
  RecordingStream(std::string name, RecordingDevice* device)
      : name_(std::move(name)), device_(*device) {}

  void Launch(Task task) override {
    if (!status_.ok()) return;
    if (records_) {
      ++num_tasks_;
      is_joined_ = false;
      if (device_.calls_tasks_) Update(task());
      device_.tasks_.push_back(std::move(task));
      return;
    }
    if (device_.is_recording_) {
      device_.Fail(absl::StrCat("stream ", name_, " does not record"));
      return;
    }
    ++device_.num_run_;
    Update(task());
  }

  void Record(Event* event) override {
    auto* recorded = static_cast<RecordingEvent*>(event);
    recorded->stream = this;
    recorded->in_graph = records_;
    recorded->num_tasks = num_tasks_;
    recorded->status = status_;
  }

  void Wait(Event* event) override {
    const auto* recorded = static_cast<RecordingEvent*>(event);
    Update(recorded->status);
    if (!recorded->in_graph || recorded->stream == this) return;
    if (!records_) BeginToRecord();
    is_joined_ = false;  // it waits, too
    RecordingStream* const other = recorded->stream;
    if (this == device_.recorders_[0] && recorded->num_tasks == other->num_tasks_) {
      other->is_joined_ = true;
    }
  }

  absl::Status Synchronize() override {
    if (records_) device_.Fail(absl::StrCat("stream ", name_, " is synchronized"));
    return status_;
  }

  void ForgetErrors() override { status_ = absl::OkStatus(); }

  void BeginToRecord() {
    records_ = true;
    is_joined_ = false;
    num_tasks_ = 0;
    device_.recorders_.push_back(this);
  }
  void EndToRecord() {
    records_ = false;
    if (this != device_.recorders_[0] && !is_joined_) {
      device_.Fail(absl::StrCat("nothing waits for stream ", name_));
    }
  }
  void Run(const Task& task) {
    if (status_.ok()) Update(task());
  }

 private:
  void Update(const absl::Status& status) {
    if (status_.ok()) status_ = status;
  }

  const std::string name_;
  RecordingDevice& device_;
  absl::Status status_;
  bool records_ = false, is_joined_ = false;
  int num_tasks_ = 0;
};

absl::StatusOr<std::unique_ptr<Stream>> RecordingDevice::NewStream(absl::string_view name) {
  return std::make_unique<RecordingStream>(std::string(name), this);
}

absl::StatusOr<std::unique_ptr<Event>> RecordingDevice::NewEvent() {
  return std::make_unique<RecordingEvent>();
}

absl::Status RecordingDevice::Begin(Stream* stream) {
  is_recording_ = true;
  status_ = absl::OkStatus();
  static_cast<RecordingStream*>(stream)->BeginToRecord();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Graph>> RecordingDevice::End(Stream* stream) {
  if (recorders_.empty() || recorders_[0] != stream) Fail("another stream has begun");
  for (RecordingStream* recorder : recorders_) recorder->EndToRecord();
  recorders_.clear();
  is_recording_ = false;
  auto graph = std::make_unique<ListedTasks>();
  graph->tasks = std::move(tasks_);
  tasks_.clear();
  if (!status_.ok()) return status_;
  return graph;
}

absl::Status RecordingDevice::Launch(Graph* graph, Stream* stream) {
  ++num_launched_;
  for (const Stream::Task& task : static_cast<ListedTasks*>(graph)->tasks) {
    static_cast<RecordingStream*>(stream)->Run(task);
  }
  return absl::OkStatus();
}

void RecordingDevice::Fail(const std::string& what) {
  if (status_.ok()) status_ = absl::FailedPreconditionError(what);
}

}  // namespace weft::testing
