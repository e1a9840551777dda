// A device that records graphs as CUDA does, on the host.
#ifndef WEFT_EXECUTOR_STEP_GRAPH_DEVICE_TESTING_H_
#define WEFT_EXECUTOR_STEP_GRAPH_DEVICE_TESTING_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "executor/streams/stream.h"
#include "ops/memory.h"

namespace weft::testing {

class RecordingStream;

// Its streams run tasks in Launch. While they record, they keep them instead: a graph is a list of
// tasks. What is an error of CUDA is one here: to synchronize a stream that records, to launch work
// on one that should record but has not waited for one that does, and to end a recording before the
// first stream has waited for the work of all. Its memory is not HostMemory(), so feeds are copied
// to where they were before; but the host can access it, and the kernels are those of CPUs. Not
// thread-safe.
class RecordingDevice : public Device, public GraphRecorder {
 public:
  Memory* memory() override { return &memory_; }
  absl::StatusOr<std::unique_ptr<Stream>> NewStream(absl::string_view name) override;
  absl::StatusOr<std::unique_ptr<Event>> NewEvent() override;
  GraphRecorder* graphs() override { return this; }

  absl::Status Begin(Stream* stream) override;
  absl::StatusOr<std::unique_ptr<Graph>> End(Stream* stream) override;
  absl::Status Launch(Graph* graph, Stream* stream) override;

  int64_t memory_changes() const override { return memory_.changes; }

  // Calls tasks while it records, too, as CUDA does: those that find out may fail.
  void CallTasksOfRecordings() { calls_tasks_ = true; }
  bool is_recording() const { return is_recording_; }

  // Tasks that streams ran in Launch; and graphs that were launched.
  int num_run() const { return num_run_; }
  int num_launched() const { return num_launched_; }

 private:
  friend class RecordingStream;

  class OwnMemory : public Memory {
   public:
    bool IsHost() const override { return true; }
    std::shared_ptr<void> Allocate(size_t bytes) override {
      ++changes;
      return HostMemory()->Allocate(bytes);
    }
    absl::Status CopyFromHost(const void* from, size_t bytes, void* to) override {
      return HostMemory()->CopyFromHost(from, bytes, to);
    }
    absl::Status CopyToHost(const void* from, size_t bytes, void* to) override {
      return HostMemory()->CopyToHost(from, bytes, to);
    }
    absl::Status Copy(const void* from, size_t bytes, void* to, void* stream) override {
      return HostMemory()->Copy(from, bytes, to, stream);
    }

    int64_t changes = 0;
  };

  void Fail(const std::string& what);

  OwnMemory memory_;
  bool is_recording_ = false;
  absl::Status status_;  // of the recording
  bool calls_tasks_ = false;
  std::vector<RecordingStream*> recorders_;  // streams that record
  std::vector<Stream::Task> tasks_;
  int num_run_ = 0, num_launched_ = 0;
};

}  // namespace weft::testing

#endif  // WEFT_EXECUTOR_STEP_GRAPH_DEVICE_TESTING_H_
