// Streams and events: work that runs in order, concurrently with the host and with other streams.
//
// Host threads (executor/streams/thread_stream.h) and CUDA (executor/streams/cuda_stream.h)
// implement the same interface. The semantics are those of CUDA's streams and events.
#ifndef WEFT_EXECUTOR_STREAMS_STREAM_H_
#define WEFT_EXECUTOR_STREAMS_STREAM_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "executor/streams/stream_signals.h"
#include "ops/memory.h"

namespace weft {

// A point in a stream that other streams can wait for. Made by a Device; recorded on one stream of
// that device only, any number of times. Must outlive the streams that use it.
class Event {
 public:
  virtual ~Event() = default;

 protected:
  Event() = default;
};

// A queue of work that runs in order. One host thread drives all streams and events of a device.
//
// Errors: the first task that fails poisons its stream. Later tasks are skipped; events still fire.
// An event that fires on a poisoned stream poisons the streams that wait for it. So nothing
// computes from missing values, and nothing hangs.
class Stream {
 public:
  // Short closures (two words) are stored without an allocation.
  using Task = std::function<absl::Status()>;

  // Finishes the launched work.
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Appends work and returns immediately. A host stream calls `task` on its own thread. A device
  // stream calls it in this call, and the task enqueues its work with native_handle().
  virtual void Launch(Task task) = 0;

  // Makes `event` fire when the work launched so far is done. Another record replaces the earlier
  // one, except for Wait calls that were made before.
  virtual void Record(Event* event) = 0;

  // Makes later work start after the last Record of `event` before this call (immediately if there
  // was none). The host does not block.
  virtual void Wait(Event* event) = 0;

  // Starts the launched work, if the stream has left that for later (Device::NewComputeStream). The
  // host calls it before it waits for another stream, which may wait for this one.
  virtual void Flush() {}

  // Blocks the host until all launched work is done. Returns the first error, in every later call
  // too.
  virtual absl::Status Synchronize() = 0;

  // Whether MarkTime says when work ran: tasks only enqueue it. Otherwise they do it themselves.
  virtual bool MarksTimes() const { return false; }
  // Notes when the work launched so far is done.
  virtual void MarkTime() {}
  // Once the stream is idle: the times since the last call, in order.
  virtual absl::StatusOr<std::vector<std::chrono::steady_clock::time_point>> TakeTimes() {
    return std::vector<std::chrono::steady_clock::time_point>();
  }

  // The cudaStream_t of a CUDA stream; nullptr on the host.
  virtual void* native_handle() const { return nullptr; }

  // After a recording that failed (GraphRecorder): forgets the errors of its tasks, none of which
  // has run.
  virtual void ForgetErrors() {}

 protected:
  Stream() = default;
};

// Work that streams of a device have recorded, to run again as a whole: a CUDA graph.
class Graph {
 public:
  virtual ~Graph() = default;

 protected:
  Graph() = default;
};

// Records graphs. Driven by the host thread of the device.
class GraphRecorder {
 public:
  virtual ~GraphRecorder() = default;

  // From here to End, `stream`, and each stream that waits for one that records, records the work
  // launched on it and does not run it. Addresses and numbers that tasks pass on are those of every
  // run. Tasks must not make the host wait, nor allocate memory; nobody may synchronize the
  // streams.
  virtual absl::Status Begin(Stream* stream) = 0;
  // What was recorded. `stream` must have waited for all work of the others. After an error,
  // nothing is left of it. Tasks that failed have poisoned their streams (Stream::ForgetErrors).
  virtual absl::StatusOr<std::unique_ptr<Graph>> End(Stream* stream) = 0;
  // Appends the work to `stream`. Must not run twice at the same time.
  virtual absl::Status Launch(Graph* graph, Stream* stream) = 0;
  // How often memory of the device was allocated or freed: graphs from before may use what was.
  virtual int64_t memory_changes() const = 0;
};

// The source of streams.
class Device {
 public:
  virtual ~Device() = default;
  // The memory for tensors that its streams work on. Valid as long as the device.
  virtual Memory* memory() = 0;
  // `name` is shown in traces and debuggers. ResourceExhausted if the system has no resources left.
  virtual absl::StatusOr<std::unique_ptr<Stream>> NewStream(absl::string_view name) = 0;
  // The stream for most of the work. One of a host device runs on the thread that drives it, in the
  // calls of Flush and Synchronize, so that a step costs no change of threads. By then, the host
  // has launched the work of the other streams: nothing but events orders that after this stream's.
  virtual absl::StatusOr<std::unique_ptr<Stream>> NewComputeStream(absl::string_view name) {
    return NewStream(name);
  }
  // The stream on which the host computes beside the device, for a program on two devices. Its
  // tasks do their work on a thread of the host. Unimplemented if the device has no such stream.
  virtual absl::StatusOr<std::unique_ptr<Stream>> NewHostStream(absl::string_view name) {
    if (memory()->IsHost()) return NewStream(name);
    return absl::UnimplementedError("a device without streams of the host");
  }
  virtual absl::StatusOr<std::unique_ptr<Event>> NewEvent() = 0;
  // How streams of the host and of the device wait for each other, and the memory of the host from
  // and to which streams copy without the host's help (page-locked). Null on the host, whose
  // streams are alike.
  virtual StreamSignals* signals() { return nullptr; }
  virtual Memory* pinned_memory() { return nullptr; }
  // Null if it records no graphs.
  virtual GraphRecorder* graphs() { return nullptr; }
  // How long a copy between its memory and the host's takes at least, where that is modelled.
  virtual std::chrono::nanoseconds CopyTime(int64_t bytes) const { return {}; }
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_STREAMS_STREAM_H_
