#include "executor/communicators/shared_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <new>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/types/optional.h"
#include "base/available_memory.h"
#include "base/free_parts.h"

namespace weft {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kHugePage = size_t{2} << 20;

// The first page of a segment.
struct Header {
  uint64_t nonce[2];
};
static_assert(sizeof(Header) <= kPage);

size_t RoundedUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

std::string Reason() { return std::strerror(errno); }

}  // namespace

absl::StatusOr<std::shared_ptr<SharedSegment>> SharedSegment::Create(const std::string& name,
                                                                     size_t bytes) {
  const size_t file_bytes = RoundedUp(bytes, kPage) + kPage;
  // A larger file would be a signal, not an error.
  struct rlimit limit;
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < file_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("memory for other processes needs a file of ", file_bytes >> 20,
                     " MiB, but the limit of files (ulimit -f) is ", limit.rlim_cur >> 20, " MiB"));
  }
  std::shared_ptr<SharedSegment> segment(new SharedSegment);
  segment->file_ = memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (segment->file_ < 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for other processes: memfd_create: ", Reason()));
  }
  struct stat file;
  // Nobody makes it smaller: who reads what is not there any more gets a signal.
  if (ftruncate(segment->file_, static_cast<off_t>(file_bytes)) != 0 ||
      fcntl(segment->file_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0 ||
      fstat(segment->file_, &file) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for other processes: size of the file: ", Reason()));
  }
  const absl::Status status = segment->Map(file_bytes);
  if (!status.ok()) return status;
  std::random_device random;
  auto* const header = reinterpret_cast<Header*>(segment->mapping_);
  for (uint64_t& word : header->nonce) word = uint64_t{random()} << 32 | random();
  segment->address_ =
      absl::StrCat(getpid(), " ", segment->file_, " ", file.st_dev, " ", file.st_ino, " ",
                   file_bytes, " ", header->nonce[0], " ", header->nonce[1]);
  return segment;
}

absl::StatusOr<std::shared_ptr<SharedSegment>> SharedSegment::Open(absl::string_view address) {
  const std::vector<absl::string_view> words = absl::StrSplit(address, ' ');
  uint64_t numbers[7];
  bool is_address = words.size() == 7;
  for (size_t i = 0; is_address && i < 7; ++i) is_address = absl::SimpleAtoi(words[i], &numbers[i]);
  if (!is_address) {
    return absl::FailedPreconditionError(
        absl::StrCat("expected the address of a shared segment, found \"", address, "\""));
  }
  const auto [pid, file_number, device, inode, bytes, nonce0, nonce1] =
      std::tie(numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5], numbers[6]);
  const std::string path = absl::StrCat("/proc/", pid, "/fd/", file_number);
  std::shared_ptr<SharedSegment> segment(new SharedSegment);
  segment->address_ = std::string(address);
  segment->file_ = open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct stat file;
  if (segment->file_ < 0 || fstat(segment->file_, &file) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot open the memory of process ", pid, ": ", path, ": ", Reason(),
                     "; the processes must belong to one user and see each other"));
  }
  const auto other = [&, pid = pid] {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is not the memory of process ", pid,
                     ": its number belongs to a process of another container"));
  };
  if (file.st_dev != device || file.st_ino != inode || file.st_size != static_cast<off_t>(bytes) ||
      bytes < kPage) {
    return other();
  }
  const absl::Status status = segment->Map(bytes);
  if (!status.ok()) return status;
  const auto* const header = reinterpret_cast<const Header*>(segment->mapping_);
  if (header->nonce[0] != nonce0 || header->nonce[1] != nonce1) return other();
  return segment;
}

SharedSegment::~SharedSegment() {
  CloseFile();
  if (mapping_ != nullptr) munmap(mapping_, mapped_bytes_);
}

void SharedSegment::CloseFile() {
  if (file_ >= 0) close(file_);
  file_ = -1;
}

void* SharedSegment::data() const { return mapping_ + kPage; }
size_t SharedSegment::bytes() const { return mapped_bytes_ - kPage; }

absl::Status SharedSegment::Map(size_t bytes) {
  // Huge pages need equal alignment in the file and in memory.
  const size_t slack = bytes >= kHugePage ? kHugePage : 0;
  void* const range =
      mmap(nullptr, bytes + slack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot map ", bytes >> 20, " MiB of shared memory: ", Reason()));
  }
  char* const begin = static_cast<char*>(range);
  char* const aligned =
      slack == 0 ? begin
                 : begin + (kHugePage - reinterpret_cast<uintptr_t>(begin) % kHugePage) % kHugePage;
  if (mmap(aligned, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file_,
           0) == MAP_FAILED) {
    const std::string reason = Reason();
    munmap(range, bytes + slack);
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot map ", bytes >> 20, " MiB of shared memory: ", reason));
  }
  if (aligned > begin) munmap(begin, aligned - begin);
  if (aligned < begin + slack) munmap(aligned + bytes, begin + slack - aligned);
  mapping_ = aligned;
  mapped_bytes_ = bytes;
  // A hint: not all systems have huge pages for shared memory.
  if (slack > 0) madvise(mapping_, bytes, MADV_HUGEPAGE);
  return absl::OkStatus();
}

size_t TensorSegmentBytes(int num_processes) {
  const size_t machine = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  constexpr size_t kAddresses = size_t{1} << 45;  // a quarter of those of a process
  return RoundedUp(std::min(2 * machine, kAddresses / num_processes), kHugePage);
}

namespace {

// What outlives the Memory until the last block is free.
class Heap {
 public:
  explicit Heap(std::shared_ptr<SharedSegment> segment)
      : segment_(std::move(segment)), base_(static_cast<char*>(segment_->data())) {
    free_.Give(0, segment_->bytes() / kUnit * kUnit);
  }

  struct Allocated {
    char* data;
    size_t offset;
    size_t bytes;
  };
  Allocated Allocate(size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (bytes > segment_->bytes()) throw std::bad_alloc();
    const size_t skew = bytes < kSkewedBytes ? 0 : num_skewed_++ % kSkews * kSkew;
    const size_t taken = RoundedUp(std::max<size_t>(bytes, 1) + skew, kUnit);
    CheckMemory(taken);
    const absl::optional<size_t> offset = free_.Take(taken);
    if (!offset.has_value()) throw std::bad_alloc();
    return {base_ + *offset + skew, *offset, taken};
  }

  void Free(size_t offset, size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    const FreeParts::Part part = free_.Give(offset, bytes);
    if (bytes < kLarge || kept_ + bytes <= kMaxKept) {
      kept_ += bytes;
      return;
    }
    // Gives the pages back that have nothing else in them.
    char* const begin = base_ + offset;
    char* const end = begin + bytes;
    char* first = Aligned(begin);
    if (first < base_ + part.begin) first += kPage;
    char* last = Aligned(end);
    if (last < end && last + kPage <= base_ + part.end) last += kPage;
    if (first < last) madvise(first, last - first, MADV_REMOVE);
  }

 private:
  static constexpr size_t kUnit = 64;
  static constexpr uint32_t kSkews = 12;
  // Free memory that the next tensors take without asking the system. Blocks below kLarge always
  // count as such.
  static constexpr size_t kMaxKept = size_t{64} << 20;
  static constexpr size_t kLarge = size_t{1} << 20;
  // So much may be allocated between two looks at the memory of the machine.
  static constexpr size_t kUnchecked = size_t{64} << 20;

  static char* Aligned(char* address) {
    return address - reinterpret_cast<uintptr_t>(address) % kPage;
  }

  // The system would kill the process that touches a page for which there is no memory.
  void CheckMemory(size_t bytes) {
    const size_t reused = std::min(kept_, bytes);
    const size_t needed = bytes - reused;
    if (needed > unchecked_) {
      const uint64_t available = AvailableMemory();
      if (needed > available) throw std::bad_alloc();
      unchecked_ = needed + std::min<uint64_t>(kUnchecked, (available - needed) / 8);
    }
    unchecked_ -= needed;
    kept_ -= reused;
  }

  const std::shared_ptr<SharedSegment> segment_;
  char* const base_;
  std::mutex mutex_;
  FreeParts free_;
  uint32_t num_skewed_ = 0;
  size_t kept_ = 0;
  size_t unchecked_ = 0;
};

class SegmentMemory : public Memory {
 public:
  explicit SegmentMemory(std::shared_ptr<SharedSegment> segment)
      : heap_(std::make_shared<Heap>(std::move(segment))) {}

  bool IsHost() const override { return true; }
  std::shared_ptr<void> Allocate(size_t bytes) override {
    const Heap::Allocated block = heap_->Allocate(bytes);
    return std::shared_ptr<void>(block.data,
                                 [heap = heap_, offset = block.offset, taken = block.bytes](void*) {
                                   heap->Free(offset, taken);
                                 });
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

 private:
  const std::shared_ptr<Heap> heap_;
};

}  // namespace

std::unique_ptr<Memory> NewSegmentMemory(std::shared_ptr<SharedSegment> segment) {
  return std::make_unique<SegmentMemory>(std::move(segment));
}

}  // namespace weft
