#include "executor/streams/thread_stream.h"

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "executor/streams/progress_counter.h"
#include "executor/streams/status_counter.h"

namespace weft {
namespace {

class ThreadEvent : public Event {
 public:
  // On the host: numbers the records, from 1.
  uint32_t NextRecord(const Stream* stream) {
    if (stream_ != nullptr && stream_ != stream) {
      std::fputs("weft: an event was recorded on two streams\n", stderr);
      std::abort();
    }
    stream_ = stream;
    return ++last_record_;
  }
  uint32_t last_record() const { return last_record_; }

  // On the recording stream.
  void Fire(uint32_t record, const absl::Status& status) { fired_.AdvanceTo(record, status); }
  // On a waiting stream.
  absl::Status WaitFor(uint32_t record) { return fired_.WaitFor(record); }

 private:
  const Stream* stream_ = nullptr;
  uint32_t last_record_ = 0;
  StatusCounter fired_;
};

// Of a ThreadStream. Each slot has a number by which the worker accepts it. A single count of all
// items would be enough to find an item, but not for ordering: a late worker would read a count
// that the host has set later, perhaps after the host waited for another stream, and would then be
// ordered after that stream's work.
struct Item {
  std::atomic<uint32_t> published{0};  // the item in the slot, counted from 1
  enum class Kind { kTask, kRecord, kWait, kSynchronize, kStop };
  Kind kind = Kind::kTask;
  uint32_t record = 0;  // kRecord, kWait
  ThreadEvent* event = nullptr;
  Stream::Task task;
};

// Items in blocks. The host appends and the worker follows; a separate counter limits the worker. A
// slot is reused only after both have started over. So the host never learns how far the worker is:
// that knowledge would order the host, and everything that it launches elsewhere, after the
// worker's tasks.
struct Block {
  static constexpr size_t kItems = 64;
  std::array<Item, kItems> items;
  std::unique_ptr<Block> next;
};

struct Cursor {
  Block* block;
  size_t index = 0;

  Item& item() const { return block->items[index]; }
  void Advance() {
    if (++index < Block::kItems) return;
    index = 0;
    block = block->next.get();
  }
};

class ThreadStream : public Stream {
 public:
  explicit ThreadStream(absl::string_view name) : thread_([this] { RunWorker(); }) {
    // The operating system limits thread names to 15 characters.
    pthread_setname_np(thread_.native_handle(), std::string(name.substr(0, 15)).c_str());
  }

  ~ThreadStream() override {
    Append(Item::Kind::kStop);
    thread_.join();
    // Destroyed one by one: a chain of unique_ptr would be destroyed recursively.
    while (first_.next != nullptr) first_.next = std::move(first_.next->next);
  }

  void Launch(Task task) override {
    end_.item().task = std::move(task);
    Append(Item::Kind::kTask);
  }

  void Record(Event* event) override {
    auto* thread_event = static_cast<ThreadEvent*>(event);
    end_.item().event = thread_event;
    end_.item().record = thread_event->NextRecord(this);
    Append(Item::Kind::kRecord);
  }

  void Wait(Event* event) override {
    auto* thread_event = static_cast<ThreadEvent*>(event);
    end_.item().event = thread_event;
    end_.item().record = thread_event->last_record();
    Append(Item::Kind::kWait);
  }

  absl::Status Synchronize() override {
    Append(Item::Kind::kSynchronize);
    synchronized_.WaitFor(++num_synchronize_);
    end_ = Cursor{&first_};
    return status_;
  }

 private:
  // Publishes the item at end_.
  void Append(Item::Kind kind) {
    Item& item = end_.item();
    item.kind = kind;
    if (end_.index + 1 == Block::kItems && end_.block->next == nullptr) {
      end_.block->next = std::make_unique<Block>();
    }
    end_.Advance();
    ++num_appended_;
    item.published.store(num_appended_, std::memory_order_release);
    appended_.AdvanceTo(num_appended_);
  }

  void RunWorker() {
    Cursor cursor{&first_};
    uint32_t num_taken = 0;
    uint32_t num_synchronized = 0;
    while (true) {
      appended_.WaitFor(++num_taken, std::memory_order_relaxed);
      Item& item = cursor.item();
      while (item.published.load(std::memory_order_acquire) != num_taken) {
        std::this_thread::yield();  // published before it was counted: it will arrive soon
      }
      switch (item.kind) {
        case Item::Kind::kTask:
          if (status_.ok()) status_ = item.task();
          item.task = nullptr;
          break;
        case Item::Kind::kRecord:
          item.event->Fire(item.record, status_);
          break;
        case Item::Kind::kWait:
          if (status_.ok()) status_ = item.event->WaitFor(item.record);
          break;
        case Item::Kind::kSynchronize:
          cursor = Cursor{&first_};
          synchronized_.AdvanceTo(++num_synchronized);
          continue;
        case Item::Kind::kStop:
          return;
      }
      cursor.Advance();
    }
  }

  Block first_;
  // Members of the host's side.
  Cursor end_{&first_};
  uint32_t num_appended_ = 0;
  uint32_t num_synchronize_ = 0;
  // Shared by both sides.
  ProgressCounter appended_;
  ProgressCounter synchronized_;
  // Members of the worker's side; the host reads them after synchronized_ has advanced.
  absl::Status status_;
  std::thread thread_;  // last: it uses all members above
};

// Keeps work until the host waits for it, and runs it there.
class DeferredStream : public Stream {
 public:
  // Steps of most programs launch no more between two waits of the host.
  DeferredStream() { items_.reserve(256); }
  // Other streams may wait for its events.
  ~DeferredStream() override { Flush(); }

  void Launch(Task task) override { items_.push_back({nullptr, false, 0, std::move(task)}); }

  void Record(Event* event) override {
    auto* thread_event = static_cast<ThreadEvent*>(event);
    items_.push_back({thread_event, true, thread_event->NextRecord(this), nullptr});
  }

  void Wait(Event* event) override {
    auto* thread_event = static_cast<ThreadEvent*>(event);
    items_.push_back({thread_event, false, thread_event->last_record(), nullptr});
  }

  void Flush() override {
    for (const Item& item : items_) {
      if (item.records) {
        item.event->Fire(item.record, status_);
      } else if (status_.ok()) {
        status_ = item.event != nullptr ? item.event->WaitFor(item.record) : item.task();
      }
    }
    items_.clear();
  }

  absl::Status Synchronize() override {
    Flush();
    return status_;
  }

 private:
  // A task, or with an event its record or a wait for it.
  struct Item {
    ThreadEvent* event;
    bool records;
    uint32_t record;
    Task task;
  };

  std::vector<Item> items_;
  absl::Status status_;
};

class HostDevice : public Device {
 public:
  explicit HostDevice(Memory* memory) : memory_(memory) {}

  Memory* memory() override { return memory_; }

  absl::StatusOr<std::unique_ptr<Stream>> NewStream(absl::string_view name) override {
    try {
      return std::make_unique<ThreadStream>(name);
    } catch (const std::system_error& error) {
      return absl::ResourceExhaustedError(
          absl::StrCat("no thread for stream ", name, ": ", error.what()));
    }
  }

  absl::StatusOr<std::unique_ptr<Stream>> NewComputeStream(absl::string_view name) override {
    return std::make_unique<DeferredStream>();
  }

  absl::StatusOr<std::unique_ptr<Event>> NewEvent() override {
    return std::make_unique<ThreadEvent>();
  }

 private:
  Memory* const memory_;
};

}  // namespace

std::unique_ptr<Device> NewHostDevice(Memory* memory) {
  return std::make_unique<HostDevice>(memory);
}

}  // namespace weft
