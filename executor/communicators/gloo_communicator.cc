#include "executor/communicators/gloo_communicator.h"

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/loaded_library.h"
#include "base/sigpipe.h"
#include "base/status_macros.h"
#include "executor/communicators/message_collectives.h"
#include "executor/communicators/world.h"
#include "executor/jobs/host_address.h"

namespace weft {
namespace {

using Clock = Transport::Clock;
using GlooContext = gloo::transport::Context;

// After a timeout of its own, Gloo closes all connections. Alarms end waits instead.
constexpr auto kNever = std::chrono::hours(10000);
constexpr auto kTick = std::chrono::milliseconds(20);
// To look whether a message has come.
constexpr auto kGlance = std::chrono::milliseconds(2);
// All processes are there when connections are made.
constexpr double kConnectSeconds = 30;

// The only function of Gloo that is called by name: the others are inline or virtual. The library
// is loaded when it is used, so that nothing else needs it; it must be that of the headers.
using CreateDevice = std::shared_ptr<gloo::transport::Device>(const gloo::transport::tcp::attr&);
// That, and the virtual functions that are called. All versions have one name of the file, and none
// says its number: one that declares these functions in another way is another one.
constexpr const char* kFunctions[] = {
    "_ZN4gloo9transport3tcp12CreateDeviceERKNS1_4attrE",
    "_ZN4gloo9transport3tcp6Device13createContextEii",
    "_ZN4gloo9transport7Context7getPairEi",
    "_ZN4gloo9transport3tcp7Context10createPairEi",
    "_ZN4gloo9transport3tcp7Context19createUnboundBufferEPvm",
    "_ZNK4gloo9transport3tcp4Pair7addressEv",
    "_ZN4gloo9transport3tcp4Pair7connectERKSt6vectorIcSaIcEE",
    "_ZN4gloo9transport3tcp4Pair5closeEv",
    "_ZN4gloo9transport3tcp13UnboundBuffer4sendEimmm",
    "_ZN4gloo9transport3tcp13UnboundBuffer4recvEimmm",
    "_ZN4gloo9transport3tcp13UnboundBuffer8waitRecvEPiNSt6chrono8durationIlSt5ratioILl1ELl1000EEEE",
    "_ZN4gloo9transport3tcp13UnboundBuffer8waitSendEPiNSt6chrono8durationIlSt5ratioILl1ELl1000EEEE",
    "_ZN4gloo9transport3tcp13UnboundBuffer13abortWaitRecvEv",
    "_ZN4gloo9transport3tcp13UnboundBuffer13abortWaitSendEv"};
constexpr char kGlooFile[] = "libgloo.so.0";

absl::StatusOr<CreateDevice*> LoadGloo() {
  WEFT_ASSIGN_OR_RETURN(void* const library,
                        LoadLibrary(kGlooFile, RTLD_LOCAL,
                                    "install Gloo (libgloo0), name its directory in "
                                    "LD_LIBRARY_PATH, or use another option:backend"));
  for (const char* name : kFunctions) {
    CreateDevice* found = nullptr;
    if (FindSymbol(library, name, &found)) continue;
    return absl::UnavailableError(absl::StrCat(
        kGlooFile, ": expected the version of Gloo with which Weft was built, found one without ",
        name));
  }
  CreateDevice* create = nullptr;
  FindSymbol(library, kFunctions[0], &create);
  return create;
}

// Calls a function of Gloo, which reports errors by exceptions and writes without MSG_NOSIGNAL.
template <typename Call>
absl::Status Try(const Call& call) {
  const SigpipeBlock block;  // of the thread of a new device, too
  try {
    call();
    return absl::OkStatus();
  } catch (const std::exception& e) {
    return absl::UnavailableError(absl::StrCat("Gloo: ", e.what()));
  }
}

// Closes the connections of a rank in a ring. One that is broken already is as good as closed.
void CloseAll(GlooContext* context) {
  for (int i = 0; i < context->size; ++i) {
    if (i == context->rank) continue;
    Try([&] { context->getPair(i)->close(); }).IgnoreError();
  }
}

class GlooTransport;

// Wakes transports that have waited long enough: a thread that looks at every tick.
class Alarms {
 public:
  Alarms() : thread_([this] { Run(); }) {}
  ~Alarms() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      is_over_ = true;
    }
    over_.notify_all();
    thread_.join();
  }
  Alarms(const Alarms&) = delete;
  Alarms& operator=(const Alarms&) = delete;

  void Set(GlooTransport* transport, Clock::time_point at) {
    const std::lock_guard<std::mutex> lock(mutex_);
    times_[transport] = at;
  }
  // The transport is not woken any more.
  void Clear(GlooTransport* transport) {
    const std::lock_guard<std::mutex> lock(mutex_);
    times_.erase(transport);
  }

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable over_;
  std::map<GlooTransport*, Clock::time_point> times_;
  bool is_over_ = false;
  std::thread thread_;
};

class GlooTransport : public Transport {
 public:
  GlooTransport(std::shared_ptr<GlooContext> context, std::shared_ptr<Alarms> alarms)
      : context_(std::move(context)), alarms_(std::move(alarms)) {}

  void Receive(int from, void* data, size_t bytes) override {
    Begin(from, /*is_receive=*/true, data, bytes);
  }
  void Send(int to, const void* data, size_t bytes) override {
    Begin(to, /*is_receive=*/false, const_cast<void*>(data), bytes);
  }

  absl::Status Wait(Clock::time_point until) override {
    bool is_late = false;
    for (Message& message : messages_) {
      if (message.is_done) continue;
      WEFT_RETURN_IF_ERROR(status_);
      // Once it is late, only see which messages are done.
      status_ = WaitFor(&message, is_late ? Clock::now() + kGlance : until);
      const std::lock_guard<std::mutex> lock(mutex_);
      if (is_interrupted_) return absl::CancelledError();
      is_late = is_late || !message.is_done;
    }
    WEFT_RETURN_IF_ERROR(status_);
    if (is_late) return absl::DeadlineExceededError("");
    messages_.clear();
    return absl::OkStatus();
  }

  std::vector<int> Pending() const override {
    for (const bool is_receive : {true, false}) {
      std::vector<int> ranks;
      for (const Message& message : messages_) {
        if (!message.is_done && message.is_receive == is_receive) ranks.push_back(message.peer);
      }
      std::sort(ranks.begin(), ranks.end());
      ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
      if (!ranks.empty()) return ranks;
    }
    return {};
  }

  void Interrupt() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_interrupted_ = true;
    WakeLocked();
  }

  void Wake() {
    const std::lock_guard<std::mutex> lock(mutex_);
    WakeLocked();
  }

  void Stop() override {
    CloseAll(context_.get());
    messages_.clear();
  }

 private:
  // Messages between two ranks have one slot: they match in order.
  static constexpr uint64_t kSlot = 0;

  struct Message {
    int peer;
    bool is_receive;
    bool is_done = false;
    std::unique_ptr<gloo::transport::UnboundBuffer> buffer = nullptr;
  };

  void Begin(int peer, bool is_receive, void* data, size_t bytes) {
    messages_.push_back({peer, is_receive});
    Message& message = messages_.back();
    status_.Update(Try([&] {
      message.buffer = context_->createUnboundBuffer(data, bytes);
      if (is_receive) {
        message.buffer->recv(peer, kSlot);
      } else {
        message.buffer->send(peer, kSlot);
      }
    }));
  }

  absl::Status WaitFor(Message* message, Clock::time_point until) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (is_interrupted_) return absl::OkStatus();
      awaited_ = message;
    }
    alarms_->Set(this, until);
    absl::Status status = Try([&] {
      // False if it was woken.
      message->is_done = message->is_receive ? message->buffer->waitRecv(nullptr, kNever)
                                             : message->buffer->waitSend(nullptr, kNever);
    });
    alarms_->Clear(this);
    const std::lock_guard<std::mutex> lock(mutex_);
    awaited_ = nullptr;
    return status;
  }

  // Ends the wait, or the next one for that message.
  void WakeLocked() {
    if (awaited_ == nullptr) return;
    if (awaited_->is_receive) {
      awaited_->buffer->abortWaitRecv();
    } else {
      awaited_->buffer->abortWaitSend();
    }
  }

  const std::shared_ptr<GlooContext> context_;
  const std::shared_ptr<Alarms> alarms_;
  absl::Status status_;  // the first error
  std::vector<Message> messages_;
  std::mutex mutex_;
  Message* awaited_ = nullptr;   // guarded by mutex_
  bool is_interrupted_ = false;  // guarded by mutex_
};

void Alarms::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!over_.wait_for(lock, kTick, [&] { return is_over_; })) {
    const Clock::time_point now = Clock::now();
    for (const auto& [transport, at] : times_) {
      if (at <= now) transport->Wake();
    }
  }
}

// One end of a connection: a rank at a position of a ring, towards another.
using End = std::tuple<int, int, int>;  // ring, position, other position

// The connections of the ranks of this process.
class Rings {
 public:
  explicit Rings(const GroupOptions& options)
      : options_(options), world_(WorldOf(options.nranks, options.link)) {}

  absl::Status Connect() {
    WEFT_RETURN_IF_ERROR(NewDevice());
    WEFT_RETURN_IF_ERROR(Listen());
    WEFT_RETURN_IF_ERROR(TellAddresses());
    // Gloo would wait long for a process that is gone.
    if (options_.link != nullptr) {
      options_.link->OnFailure([this](const absl::Status& status) {
        const std::lock_guard<std::mutex> lock(mutex_);
        failure_ = status;
        changed_.notify_all();
      });
    }
    const absl::Status status = ConnectRanks();
    if (options_.link != nullptr) options_.link->OnFailure(nullptr);
    const std::lock_guard<std::mutex> lock(mutex_);
    return failure_.ok() ? status : failure_;
  }

  std::shared_ptr<GlooContext> context(int ring, int position) const {
    return contexts_.at({ring, position});
  }

 private:
  absl::StatusOr<std::vector<std::string>> AllGather(const std::string& text) const {
    if (options_.link == nullptr) return std::vector<std::string>{text};
    return options_.link->AllGather(text);
  }

  absl::Status NewDevice() {
    WEFT_ASSIGN_OR_RETURN(CreateDevice* const create_device, LoadGloo());
    WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> networks, AllGather(DescribeNetwork()));
    gloo::transport::tcp::attr attr;
    attr.hostname = "127.0.0.1";
    if (!IsOneNetwork(networks)) {
      WEFT_ASSIGN_OR_RETURN(attr.hostname, ChooseAddress(networks, world_.process()));
    }
    return Try([&] { device_ = create_device(attr); });
  }

  absl::Status Listen() {
    const double seconds = std::min(options_.timeout_s, kConnectSeconds);
    const auto timeout = std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
    for (int ring = 0; ring < static_cast<int>(options_.rings.size()); ++ring) {
      const RingKey& key = options_.rings[ring];
      const int size = SizeOf(key, options_.nranks);
      for (int rank = world_.first; rank < world_.end(); ++rank) {
        if (!key.Has(rank)) continue;
        const int position = PositionOf(key, rank);
        WEFT_RETURN_IF_ERROR(Try([&] {
          const auto context = device_->createContext(position, size);
          context->setTimeout(timeout);
          for (int other = 0; other < size; ++other) {
            if (other == position) continue;
            addresses_[{ring, position, other}] = context->createPair(other)->address().bytes();
          }
          contexts_[{ring, position}] = context;
        }));
      }
    }
    return absl::OkStatus();
  }

  // Completes addresses_ by those of other processes: lines "RING POSITION OTHER SIZE HEX", where
  // zeros at the end of the address are left out.
  absl::Status TellAddresses() {
    std::string text;
    for (const auto& [end, address] : addresses_) {
      std::string bytes(address.begin(), address.end());
      bytes.resize(bytes.find_last_not_of('\0') + 1);
      absl::StrAppend(&text, std::get<0>(end), " ", std::get<1>(end), " ", std::get<2>(end), " ",
                      address.size(), " ", absl::BytesToHexString(bytes), "\n");
    }
    WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> texts, AllGather(text));
    for (const std::string& lines : texts) {
      for (const absl::string_view line : absl::StrSplit(lines, '\n', absl::SkipEmpty())) {
        const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
        int ring = 0, position = 0, other = 0, size = 0;
        if (words.size() != 5 || !absl::SimpleAtoi(words[0], &ring) ||
            !absl::SimpleAtoi(words[1], &position) || !absl::SimpleAtoi(words[2], &other) ||
            !absl::SimpleAtoi(words[3], &size)) {
          return absl::InternalError(absl::StrCat("Gloo: not an address: ", line));
        }
        std::string bytes = absl::HexStringToBytes(words[4]);
        bytes.resize(size);
        addresses_[{ring, position, other}].assign(bytes.begin(), bytes.end());
      }
    }
    return absl::OkStatus();
  }

  absl::Status ConnectRanks() {
    // Each rank waits for the others, so they connect at the same time.
    std::vector<absl::Status> results(world_.count);
    std::vector<std::thread> threads;
    int num_left = world_.count;
    for (int i = 0; i < world_.count; ++i) {
      threads.emplace_back([&, i] {
        results[i] = ConnectRank(world_.first + i);
        const std::lock_guard<std::mutex> lock(mutex_);
        --num_left;
        changed_.notify_all();
      });
    }
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [&] { return num_left == 0 || !failure_.ok(); });
      while (num_left > 0) {
        // Again and again: a rank may begin to wait in between.
        for (const auto& [place, context] : contexts_) CloseAll(context.get());
        changed_.wait_for(lock, kTick);
      }
    }
    for (std::thread& thread : threads) thread.join();
    for (const absl::Status& status : results) WEFT_RETURN_IF_ERROR(status);
    return absl::OkStatus();
  }

  bool HasFailed() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return !failure_.ok();
  }

  absl::Status ConnectRank(int rank) {
    for (int ring = 0; ring < static_cast<int>(options_.rings.size()); ++ring) {
      const RingKey& key = options_.rings[ring];
      if (!key.Has(rank)) continue;
      const int position = PositionOf(key, rank);
      for (int other = 0; other < SizeOf(key, options_.nranks); ++other) {
        if (other == position) continue;
        if (HasFailed()) return absl::AbortedError("another process has failed");
        const Clock::time_point begun = Clock::now();
        const auto& context = contexts_.at({ring, position});
        const absl::Status status = Try([&] {
          context->getPair(other)->connect(addresses_.at({ring, other, position}));
        });
        if (status.ok()) continue;
        const bool is_late = Clock::now() - begun >= context->getTimeout();
        return absl::Status(is_late ? absl::StatusCode::kDeadlineExceeded : status.code(),
                            absl::StrCat(ToString(key), ": rank ", rank, " cannot connect to rank ",
                                         RankAt(key, other), ": ", status.message()));
      }
    }
    return absl::OkStatus();
  }

  const GroupOptions& options_;
  const World world_;
  std::shared_ptr<gloo::transport::Device> device_;
  std::map<std::pair<int, int>, std::shared_ptr<GlooContext>> contexts_;  // by ring and position
  std::map<End, std::vector<char>> addresses_;                            // where an end listens
  std::mutex mutex_;
  std::condition_variable changed_;
  absl::Status failure_;  // of another process, while connections are made
};

}  // namespace

absl::StatusOr<std::unique_ptr<CommunicatorGroup>> NewGlooGroup(GroupOptions options) {
  WEFT_RETURN_IF_ERROR(CompareRings(options));
  Rings rings(options);  // uses the options to connect only
  WEFT_RETURN_IF_ERROR(rings.Connect());
  const auto alarms = std::make_shared<Alarms>();
  return NewMessageGroup(std::move(options), [&](int ring, int position) {
    return std::make_unique<GlooTransport>(rings.context(ring, position), alarms);
  });
}

}  // namespace weft
