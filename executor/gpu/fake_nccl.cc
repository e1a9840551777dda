// A library with NCCL's interface, for tests: writes down its calls, and copies inputs to outputs.
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#ifndef FAKE_NCCL_VERSION
#define FAKE_NCCL_VERSION 22809
#endif

struct ncclComm {
  int rank = 0;
  std::string id;
  int nranks = 0;
  bool is_finalized = false;
  std::chrono::steady_clock::time_point ready;  // in progress until then
};

namespace {

struct Id {
  char bytes[128];
};

struct Config {
  size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
};

std::mutex mutex;
std::string calls;
std::map<std::string, int> joined;  // ranks, by id
int num_ids = 0;
int async_error = 0;
int group_error = 0;                       // of GroupStart
std::chrono::microseconds launch_time{0};  // of a call
bool holds_aborts = false;
std::condition_variable changed;

int Log(const std::string& line) {
  std::lock_guard<std::mutex> lock(mutex);
  calls += line + "\n";
  return 0;
}

std::string Of(const ncclComm* comm) { return "[" + std::to_string(comm->rank) + "] "; }

// What NCCL does on a thread of its own.
int StartWork(ncclComm* comm) {
  std::lock_guard<std::mutex> lock(mutex);
  if (launch_time.count() == 0) return 0;
  comm->ready = std::chrono::steady_clock::now() + launch_time;
  return 7;
}

bool IsInProgress(const ncclComm* comm) {
  return joined[comm->id] < comm->nranks || std::chrono::steady_clock::now() < comm->ready;
}

// Of 4-byte elements, which are enough for tests.
int Copy(const void* in, void* out, size_t count, ncclComm* comm) {
  if (in != out) std::memmove(out, in, 4 * count);
  return StartWork(comm);
}

}  // namespace

extern "C" {

// --- For tests -----------------------------------------------------------------------------------

const char* FakeNcclCalls() {
  static std::string copy;
  std::lock_guard<std::mutex> lock(mutex);
  copy = calls;
  return copy.c_str();
}

void FakeNcclClear() {
  std::lock_guard<std::mutex> lock(mutex);
  calls.clear();
}

void FakeNcclReset() {
  std::lock_guard<std::mutex> lock(mutex);
  calls.clear();
  joined.clear();
  async_error = 0;
  group_error = 0;
  launch_time = std::chrono::microseconds(0);
}

// From now on, calls are in progress for so long.
void FakeNcclSetLaunchTime(int microseconds) {
  std::lock_guard<std::mutex> lock(mutex);
  launch_time = std::chrono::microseconds(microseconds);
}

// Whether aborts wait, as for a device.
void FakeNcclHoldAborts(int holds) {
  std::lock_guard<std::mutex> lock(mutex);
  holds_aborts = holds != 0;
  changed.notify_all();
}

void FakeNcclLog(const char* line) { Log(line); }

void FakeNcclFail(int error) {
  std::lock_guard<std::mutex> lock(mutex);
  async_error = error;
}

void FakeNcclFailGroups(int error) {
  std::lock_guard<std::mutex> lock(mutex);
  group_error = error;
}

// --- NCCL's --------------------------------------------------------------------------------------

int ncclGetVersion(int* version) {
  *version = FAKE_NCCL_VERSION;
  return 0;
}

const char* ncclGetErrorString(int result) {
  return result == 6 ? "remote process exited or there was a network error" : "some error";
}

int ncclGetUniqueId(Id* id) {
  std::lock_guard<std::mutex> lock(mutex);
  std::memset(id->bytes, 0, sizeof(id->bytes));
  const std::string text = "id " + std::to_string(num_ids++);
  text.copy(id->bytes, text.size());
  id->bytes[127] = 'x';
  return 0;
}

int ncclCommInitRankConfig(ncclComm** comm, int nranks, Id id, int rank, Config* config) {
  if (config->magic != 0xcafebeef || config->blocking != 0 || config->size < sizeof(Config) ||
      id.bytes[127] != 'x') {
    return 4;
  }
  *comm = new ncclComm();
  (*comm)->rank = rank;
  (*comm)->nranks = nranks;
  (*comm)->id = id.bytes;
  {
    std::lock_guard<std::mutex> lock(mutex);
    ++joined[id.bytes];
  }
  Log(Of(*comm) + "CommInitRank of " + std::to_string(nranks));
  return 7;
}

int ncclCommGetAsyncError(ncclComm* comm, int* error) {
  std::lock_guard<std::mutex> lock(mutex);
  *error = async_error != 0 ? async_error : IsInProgress(comm) ? 7 : 0;
  return 0;
}

int ncclCommFinalize(ncclComm* comm) {
  Log(Of(comm) + "CommFinalize");
  std::lock_guard<std::mutex> lock(mutex);
  if (comm->is_finalized) return 4;
  comm->is_finalized = true;
  comm->ready = std::chrono::steady_clock::now() + std::chrono::milliseconds(5);
  return 7;
}

int ncclCommDestroy(ncclComm* comm) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (!comm->is_finalized || IsInProgress(comm)) return 4;
  }
  Log(Of(comm) + "CommDestroy");
  delete comm;
  return 0;
}

int ncclCommAbort(ncclComm* comm) {
  Log(Of(comm) + "CommAbort");
  {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [] { return !holds_aborts; });
  }
  delete comm;
  return 0;
}

int ncclGroupStart() {
  Log("GroupStart");
  std::lock_guard<std::mutex> lock(mutex);
  return group_error;
}
int ncclGroupEnd() { return Log("GroupEnd"); }

int ncclAllReduce(const void* in, void* out, size_t count, int type, int op, ncclComm* comm,
                  void* /*stream*/) {
  Log(Of(comm) + "AllReduce " + std::to_string(count) + " type " + std::to_string(type) + " op " +
      std::to_string(op));
  return Copy(in, out, count, comm);
}

int ncclReduce(const void* in, void* out, size_t count, int /*type*/, int /*op*/, int root,
               ncclComm* comm, void* /*stream*/) {
  Log(Of(comm) + "Reduce " + std::to_string(count) + " root " + std::to_string(root));
  return root == comm->rank ? Copy(in, out, count, comm) : 0;
}

int ncclReduceScatter(const void* in, void* out, size_t count, int /*type*/, int /*op*/,
                      ncclComm* comm, void* /*stream*/) {
  Log(Of(comm) + "ReduceScatter " + std::to_string(count));
  return Copy(in, out, count, comm);
}

int ncclAllGather(const void* in, void* out, size_t count, int /*type*/, ncclComm* comm,
                  void* /*stream*/) {
  Log(Of(comm) + "AllGather " + std::to_string(count));
  return Copy(in, out, count, comm);
}

int ncclBroadcast(const void* in, void* out, size_t count, int /*type*/, int root, ncclComm* comm,
                  void* /*stream*/) {
  Log(Of(comm) + "Broadcast " + std::to_string(count) + " root " + std::to_string(root));
  return Copy(in, out, count, comm);
}

int ncclSend(const void* /*in*/, size_t count, int /*type*/, int peer, ncclComm* comm,
             void* /*stream*/) {
  return Log(Of(comm) + "Send " + std::to_string(count) + " to " + std::to_string(peer));
}

int ncclRecv(void* /*out*/, size_t count, int /*type*/, int peer, ncclComm* comm,
             void* /*stream*/) {
  return Log(Of(comm) + "Recv " + std::to_string(count) + " from " + std::to_string(peer));
}

int ncclCommRegister(ncclComm* comm, void* buffer, size_t bytes, void** handle) {
  *handle = buffer;
  return Log(Of(comm) + "CommRegister " + std::to_string(bytes));
}

int ncclCommDeregister(ncclComm* comm, void* /*handle*/) {
  return Log(Of(comm) + "CommDeregister");
}

}  // extern "C"
