#include "parallel/communicator/pending_collective.h"

namespace trident {

void BatchOperation::prepare(std::span<CommunicatorOperation* const> members) {
  busy_ = true;
  first_ = nullptr;
  has_peers_ = false;
  for (std::size_t i = members.size(); i-- > 0;) {
    members[i]->next_ = first_;
    first_ = members[i];
    has_peers_ = has_peers_ || first_->has_peers();
  }
}

void BatchOperation::issue() {
  for (CommunicatorOperation* member = first_; member != nullptr; member = member->next_) member->issue();
}

bool BatchOperation::poll() {
  for (CommunicatorOperation** link = &first_; *link != nullptr;) {
    CommunicatorOperation* const member = *link;
    if (member->poll()) *link = member->next_;
    else link = &member->next_;
  }
  return first_ == nullptr && complete();
}

std::string BatchOperation::describe() const {
  std::string text;
  for (const CommunicatorOperation* member = first_; member != nullptr; member = member->next_)
    text += (text.empty() ? "" : "; ") + member->describe();
  return text;
}

}  // namespace trident
