#include "executor/servers/server_messages.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "executor/run/run_messages.h"

namespace weft {

void ServerMailbox::Put(ServerMessage message) {
  message.arrival = std::chrono::steady_clock::now();
  std::lock_guard<std::mutex> lock(mutex_);
  messages_.push_back(std::move(message));
  has_changed_.notify_one();
}

absl::StatusOr<absl::optional<ServerMessage>> ServerMailbox::Take(absl::optional<double> seconds) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto has_changed = [this] { return !messages_.empty() || !status_.ok(); };
  if (seconds.has_value()) {
    has_changed_.wait_for(lock, std::chrono::duration<double>(*seconds), has_changed);
  } else {
    has_changed_.wait(lock, has_changed);
  }
  WEFT_RETURN_IF_ERROR(status_);
  if (messages_.empty()) return absl::optional<ServerMessage>();
  absl::optional<ServerMessage> message = std::move(messages_.front());
  messages_.pop_front();
  return message;
}

void ServerMailbox::Abort(const absl::Status& status) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (status_.ok()) status_ = status;
  has_changed_.notify_all();
}

ServerPost::ServerPost(const World& world, JobLink* link, ServerLinks direct)
    : world_(world), link_(link), direct_(std::move(direct)) {
  for (int i = 0; i < world.count; ++i) mailboxes_.push_back(std::make_unique<ServerMailbox>());
  if (link == nullptr) return;
  ListenTo(link, [](int process) { return process; });
  for (const auto& [server, to_server] : direct_) {
    ListenTo(to_server.get(),
             [server = server](int number) { return number == 0 ? server : number; });
  }
}

ServerPost::~ServerPost() {
  if (link_ != nullptr) link_->Listen(JobLink::Topic::kServer, nullptr);
  for (const auto& [server, link] : direct_) link->Listen(JobLink::Topic::kServer, nullptr);
}

void ServerPost::ListenTo(JobLink* link, const std::function<int(int)>& process_of) {
  link->Listen(JobLink::Topic::kServer, [this, process_of](int number, const std::string& bytes) {
    int to = 0;
    absl::StatusOr<ServerMessage> message = ParseServerMessage(bytes, &to);
    if (!message.ok() || !world_.Has(to)) {
      return Abort(absl::InternalError(absl::StrCat(
          "from process ", process_of(number), ": ",
          message.ok() ? absl::StrCat("a message for rank ", to, ", which is of another process")
                       : message.status().message())));
    }
    mailbox(to)->Put(*std::move(message));
  });
}

absl::Status ServerPost::Send(int to, ServerMessage message) {
  if (world_.Has(to)) {
    mailbox(to)->Put(std::move(message));
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(std::string bytes, ServerMessageBytes(message, to));
  const int process = world_.ProcessOf(to), server = std::max(process, world_.process());
  const auto direct = direct_.find(server);
  if (process == 0 || direct == direct_.end()) {
    link_->Send(process, JobLink::Topic::kServer, std::move(bytes));
  } else {
    direct->second->Send(process == server ? 0 : process, JobLink::Topic::kServer,
                         std::move(bytes));
  }
  return absl::OkStatus();
}

void ServerPost::Abort(const absl::Status& status) {
  for (const auto& mailbox : mailboxes_) mailbox->Abort(status);
}

}  // namespace weft
