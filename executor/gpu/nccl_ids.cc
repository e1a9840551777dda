#include "executor/gpu/nccl_ids.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/annotate.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "executor/communicators/world.h"
#include "executor/jobs/job_link.h"

namespace weft {
namespace {

constexpr size_t kIdBytes = sizeof(nccl::UniqueId::internal);
// What a process sends: one of these, then its error or what others need.
constexpr absl::string_view kError = "error ";
constexpr absl::string_view kData = "data ";
// How long a file may take until the hosts of a network file system see it.
constexpr double kVisibleAfterS = 90;

// The data of all processes, by process; or the first error.
absl::StatusOr<std::vector<std::string>> Exchange(JobLink* link,
                                                  const absl::StatusOr<std::string>& own) {
  WEFT_ASSIGN_OR_RETURN(std::vector<std::string> all,
                        link->AllGather(own.ok() ? absl::StrCat(kData, *own)
                                                 : absl::StrCat(kError, own.status().message())));
  if (!own.ok()) return own.status();
  for (size_t p = 0; p < all.size(); ++p) {
    absl::string_view data = all[p];
    if (!absl::ConsumePrefix(&data, kData)) {
      absl::ConsumePrefix(&data, kError);
      return absl::FailedPreconditionError(absl::StrCat("process ", p, ": ", data));
    }
    all[p] = std::string(data);
  }
  return all;
}

using IsMine = std::function<bool(const RingKey&)>;

// The bytes of new ids of the rings that `is_mine` chooses, one after the other.
absl::StatusOr<std::string> NewIds(const std::vector<RingKey>& rings, const IsMine& is_mine,
                                   const std::function<absl::StatusOr<nccl::UniqueId>()>& new_id) {
  std::string bytes;
  for (const RingKey& ring : rings) {
    if (!is_mine(ring)) continue;
    WEFT_ASSIGN_OR_RETURN(const nccl::UniqueId id, new_id());
    bytes.append(id.internal, kIdBytes);
  }
  return bytes;
}

// Reads what NewIds has written.
absl::Status ParseIds(const std::vector<RingKey>& rings, const IsMine& is_mine,
                      absl::string_view bytes, NcclIds* ids) {
  for (const RingKey& ring : rings) {
    if (!is_mine(ring)) continue;
    if (bytes.size() < kIdBytes) {
      return absl::FailedPreconditionError(absl::StrCat(ToString(ring), ": no NCCL id"));
    }
    bytes.copy((*ids)[ring].internal, kIdBytes);
    bytes.remove_prefix(kIdBytes);
  }
  return absl::OkStatus();
}

absl::StatusOr<NcclIds> ShareByLink(const GroupOptions& options,
                                    const std::function<absl::StatusOr<nccl::UniqueId>()>& new_id) {
  const World world = WorldOf(options.nranks, options.link);
  const auto is_of = [&](int process) {
    return [&world, process](const RingKey& ring) {
      return world.ProcessOf(RankAt(ring, 0)) == process;
    };
  };
  WEFT_ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      Exchange(options.link, NewIds(options.rings, is_of(world.process()), new_id)));
  NcclIds ids;
  for (int p = 0; p < world.num_processes(); ++p) {
    WEFT_RETURN_IF_ERROR(ParseIds(options.rings, is_of(p), all[p], &ids));
  }
  return ids;
}

// A line that no other run writes, so that a file of an earlier one is not taken for that of this
// one.
std::string NewTag() {
  std::random_device random;
  return absl::StrCat("weft NCCL ids ", absl::Hex(random(), absl::kZeroPad8),
                      absl::Hex(random(), absl::kZeroPad8), "\n");
}

// What follows the tag in the file. Waits until the file has it.
absl::StatusOr<std::string> ReadTagged(const std::string& file, absl::string_view tag,
                                       double timeout_s) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_s);
  while (true) {
    const absl::StatusOr<FileBytes> read = ReadFile(file);
    if (read.ok() && absl::StartsWith(read->bytes, tag)) {
      return std::string(read->bytes.substr(tag.size()));
    }
    if (std::chrono::steady_clock::now() >= end) {
      return absl::DeadlineExceededError(absl::StrCat(
          file, ": process 0 has written the ids of NCCL, but they are not here after ", timeout_s,
          " s; expected a file on a file system that all hosts share, found ",
          read.ok() ? "the file of another run" : std::string(read.status().message())));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

absl::StatusOr<NcclIds> ShareByFile(const GroupOptions& options, const std::string& file,
                                    const std::function<absl::StatusOr<nccl::UniqueId>()>& new_id) {
  JobLink* const link = options.link;
  const auto is_any = [](const RingKey&) { return true; };
  const auto write = [&](const std::string& tag) -> absl::StatusOr<std::string> {
    WEFT_ASSIGN_OR_RETURN(const std::string bytes, NewIds(options.rings, is_any, new_id));
    WEFT_RETURN_IF_ERROR(Annotate(file, WriteFile(file, tag + bytes)));
    return tag;
  };
  const bool is_first = link->process() == 0;
  WEFT_ASSIGN_OR_RETURN(
      const std::vector<std::string> tags,
      Exchange(link, is_first ? write(NewTag()) : absl::StatusOr<std::string>("")));
  const absl::StatusOr<std::string> bytes =
      ReadTagged(file, tags[0], std::min(options.timeout_s, kVisibleAfterS));
  const auto all_have_read =
      Exchange(link, bytes.ok() ? absl::StatusOr<std::string>("") : bytes.status());
  if (is_first) (void)unlink(file.c_str());
  WEFT_RETURN_IF_ERROR(all_have_read.status());
  NcclIds ids;
  WEFT_RETURN_IF_ERROR(ParseIds(options.rings, is_any, *bytes, &ids));
  return ids;
}

}  // namespace

absl::StatusOr<NcclIds> ShareNcclIds(
    const GroupOptions& options, const std::string& file,
    const std::function<absl::StatusOr<nccl::UniqueId>()>& new_id) {
  return file.empty() ? ShareByLink(options, new_id) : ShareByFile(options, file, new_id);
}

}  // namespace weft
