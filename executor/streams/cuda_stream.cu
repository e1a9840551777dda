#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "executor/streams/cuda_signals.h"
#include "executor/streams/cuda_stream.h"
#include "ops/gpu/cuda_memory.h"
#include "ops/gpu/cuda_status.h"

namespace weft {
namespace {

// Most often it is current already.
absl::Status UseDevice(int ordinal) {
  int current = -1;
  WEFT_RETURN_IF_ERROR(CudaStatus(cudaGetDevice(&current), "cudaGetDevice"));
  if (current == ordinal) return absl::OkStatus();
  return CudaStatus(cudaSetDevice(ordinal), "cudaSetDevice");
}

struct CudaEvent : public Event {
  explicit CudaEvent(cudaEvent_t cuda_event) : event(cuda_event) {}
  ~CudaEvent() override { cudaEventDestroy(event); }

  const cudaEvent_t event;
  absl::Status status;  // of the recording stream at the time of the record
};

using Clock = std::chrono::steady_clock;

class CudaStream : public Stream {
 public:
  CudaStream(int ordinal, cudaStream_t stream) : ordinal_(ordinal), stream_(stream) {}
  ~CudaStream() override {
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
    for (cudaEvent_t event : times_) (void)cudaEventDestroy(event);
  }

  void Launch(Task task) override {
    if (!status_.ok()) return;
    Update(UseDevice(ordinal_));
    if (status_.ok()) Update(task());
  }

  void Record(Event* event) override {
    auto* cuda_event = static_cast<CudaEvent*>(event);
    Update(CudaStatus(cudaEventRecord(cuda_event->event, stream_), "cudaEventRecord"));
    cuda_event->status = status_;
  }

  void Wait(Event* event) override {
    auto* cuda_event = static_cast<CudaEvent*>(event);
    Update(cuda_event->status);
    Update(CudaStatus(cudaStreamWaitEvent(stream_, cuda_event->event, 0), "cudaStreamWaitEvent"));
  }

  absl::Status Synchronize() override {
    Update(CudaStatus(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"));
    return status_;
  }

  void ForgetErrors() override { (void)(status_ = absl::OkStatus()); }

  bool MarksTimes() const override { return true; }
  void MarkTime() override {
    if (!status_.ok()) return;
    if (num_times_ == times_.size()) {
      times_.emplace_back();
      Update(CudaStatus(cudaEventCreate(&times_.back()), "cudaEventCreate"));
      if (!status_.ok()) return times_.pop_back();
    }
    Update(CudaStatus(cudaEventRecord(times_[num_times_++], stream_), "cudaEventRecord"));
  }

  // An event more tells which time of the host the last one has. Differences between events are
  // floats of milliseconds: exact enough within a step.
  absl::StatusOr<std::vector<Clock::time_point>> TakeTimes() override {
    const size_t count = num_times_;
    std::vector<Clock::time_point> times;
    if (count == 0) return times;
    MarkTime();
    num_times_ = 0;
    WEFT_RETURN_IF_ERROR(Synchronize());
    const Clock::time_point now = Clock::now();
    for (size_t i = 0; i < count; ++i) {
      float ms = 0;
      WEFT_RETURN_IF_ERROR(
          CudaStatus(cudaEventElapsedTime(&ms, times_[i], times_[count]), "cudaEventElapsedTime"));
      const std::chrono::duration<double, std::milli> ago(ms);
      times.push_back(now - std::chrono::duration_cast<Clock::duration>(ago));
    }
    return times;
  }

  void* native_handle() const override { return stream_; }

 private:
  void Update(const absl::Status& status) {
    if (status_.ok()) status_ = status;
  }

  int ordinal_;
  cudaStream_t stream_;
  absl::Status status_;  // the first error
  std::vector<cudaEvent_t> times_;
  size_t num_times_ = 0;  // marked since the last call of TakeTimes
};

struct CudaGraph : public Graph {
  explicit CudaGraph(cudaGraphExec_t cuda_graph) : graph(cuda_graph) {}
  ~CudaGraph() override { (void)cudaGraphExecDestroy(graph); }

  const cudaGraphExec_t graph;
};

class CudaGraphRecorder : public GraphRecorder {
 public:
  CudaGraphRecorder(int ordinal, const CudaMemory* memory) : ordinal_(ordinal), memory_(*memory) {}

  int64_t memory_changes() const override { return memory_.changes(); }

  // Other threads drive other ranks meanwhile, and may do what this one may not.
  absl::Status Begin(Stream* stream) override {
    WEFT_RETURN_IF_ERROR(UseDevice(ordinal_));
    return CudaStatus(cudaStreamBeginCapture(Handle(stream), cudaStreamCaptureModeThreadLocal),
                      "cudaStreamBeginCapture");
  }

  absl::StatusOr<std::unique_ptr<Graph>> End(Stream* stream) override {
    cudaGraph_t recorded = nullptr;
    absl::Status status =
        CudaStatus(cudaStreamEndCapture(Handle(stream), &recorded), "cudaStreamEndCapture");
    cudaGraphExec_t graph = nullptr;
    if (status.ok()) {
      status.Update(CudaStatus(cudaGraphInstantiate(&graph, recorded, 0), "cudaGraphInstantiate"));
    }
    if (recorded != nullptr) (void)cudaGraphDestroy(recorded);
    if (!status.ok()) {
      (void)cudaGetLastError();  // or a later check would find it
      return status;
    }
    return std::make_unique<CudaGraph>(graph);
  }

  absl::Status Launch(Graph* graph, Stream* stream) override {
    WEFT_RETURN_IF_ERROR(UseDevice(ordinal_));
    return CudaStatus(cudaGraphLaunch(static_cast<CudaGraph*>(graph)->graph, Handle(stream)),
                      "cudaGraphLaunch");
  }

 private:
  static cudaStream_t Handle(Stream* stream) {
    return static_cast<cudaStream_t>(stream->native_handle());
  }

  const int ordinal_;
  const CudaMemory& memory_;
};

class CudaDevice : public Device {
 public:
  CudaDevice(int ordinal, std::unique_ptr<CudaMemory> memory)
      : ordinal_(ordinal),
        memory_(std::move(memory)),
        pinned_memory_(NewPinnedMemory(ordinal)),
        graphs_(ordinal, memory_.get()) {}

  Memory* memory() override { return memory_.get(); }
  Memory* pinned_memory() override { return pinned_memory_.get(); }
  StreamSignals* signals() override { return CudaSignals(); }

  absl::StatusOr<std::unique_ptr<Stream>> NewStream(absl::string_view name) override {
    cudaStream_t stream = nullptr;
    WEFT_RETURN_IF_ERROR(UseDevice(ordinal_));
    WEFT_RETURN_IF_ERROR(CudaStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                                    absl::StrCat("stream ", name, ": cudaStreamCreateWithFlags")));
    return std::make_unique<CudaStream>(ordinal_, stream);
  }

  GraphRecorder* graphs() override { return &graphs_; }

  absl::StatusOr<std::unique_ptr<Event>> NewEvent() override {
    cudaEvent_t event = nullptr;
    WEFT_RETURN_IF_ERROR(UseDevice(ordinal_));
    // Events are used for ordering only; without timing they are cheaper.
    WEFT_RETURN_IF_ERROR(CudaStatus(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                                    "cudaEventCreateWithFlags"));
    return std::make_unique<CudaEvent>(event);
  }

 private:
  const int ordinal_;
  const std::unique_ptr<CudaMemory> memory_;
  const std::unique_ptr<Memory> pinned_memory_;
  CudaGraphRecorder graphs_;
};

}  // namespace

absl::StatusOr<int> CudaDeviceCount() {
  int count = 0;
  const absl::Status status = CudaStatus(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  if (!status.ok()) return absl::UnavailableError(status.message());
  if (count == 0) return absl::UnavailableError("no CUDA device");
  return count;
}

absl::StatusOr<std::unique_ptr<Device>> NewCudaDevice(int ordinal) {
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<CudaMemory> memory, NewCudaMemory(ordinal));
  WEFT_RETURN_IF_ERROR(CudaStatus(cudaSetDevice(ordinal), "cudaSetDevice"));
  return std::make_unique<CudaDevice>(ordinal, std::move(memory));
}

}  // namespace weft
