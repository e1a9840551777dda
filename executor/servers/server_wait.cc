#include "executor/servers/server_wait.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft {

absl::Status WaitForMessages(const ServerGroup& group, ServerMailbox* mailbox,
                             const std::function<bool()>& is_done,
                             const std::function<absl::Status(ServerMessage)>& handle,
                             const std::function<std::string()>& what) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const auto waited_s = [begin] {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  bool has_warned = !group.warn || group.warn_after_s >= group.timeout_s;
  while (!is_done()) {
    const double until_s = has_warned ? group.timeout_s : group.warn_after_s;
    WEFT_ASSIGN_OR_RETURN(absl::optional<ServerMessage> message,
                          mailbox->Take(std::max(0.0, until_s - waited_s())));
    if (message.has_value()) {
      WEFT_RETURN_IF_ERROR(handle(*std::move(message)));
    } else if (!has_warned) {
      group.warn(absl::StrCat(what(), ", for ", group.warn_after_s, " s"));
      has_warned = true;
    } else {
      return absl::DeadlineExceededError(
          absl::StrCat(what(), "; gave up after ", group.timeout_s, " s"));
    }
  }
  return absl::OkStatus();
}

}  // namespace weft
