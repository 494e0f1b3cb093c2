// Somebody outside the job at a lifeline's door: door_stranger ADDRESS PORT. Says nonsense in one call; in another it introduces
// itself as rank 1 (as rank 2, where rank 1 itself listens) and proves it with a key of its own. Prints what becomes of each.
#include <fmt/core.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "parallel/health/lifeline_message.h"
#include "parallel/health/socket_address.h"

namespace trident {
namespace {

std::optional<LifelineChannel> call(const SocketAddress& door) {
  FileDescriptor socket(::socket(door.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket || connect(socket.get(), door.get(), door.length) != 0) return std::nullopt;
  return LifelineChannel(std::move(socket));
}

// Waits for a word or the end.
std::optional<LifelineMessage> hear(LifelineChannel& channel) {
  for (;; usleep(1000)) {
    if (std::optional<LifelineMessage> message = channel.next()) return message;
    if (!channel.open()) return std::nullopt;
    channel.receive();
  }
}

std::string with_nonsense(const SocketAddress& door) {
  std::optional<LifelineChannel> channel = call(door);
  if (!channel) return "no answer";
  const std::string words(4096, 'x');
  if (send(channel->fd(), words.data(), words.size(), MSG_NOSIGNAL) < 0) return "no ear";
  return hear(*channel) ? "an answer" : "turned away";
}

std::string without_the_secret(const SocketAddress& door) {
  std::optional<LifelineChannel> channel;
  std::optional<LifelineMessage> answer;
  LifelineHello mine;
  for (const int rank : {1, 2}) {  // whoever listens does not expect a call of its own
    channel = call(door);
    if (!channel) return "no answer";
    mine = {random_nonce(), rank, 1, {}};
    channel->send(mine);
    if ((answer = hear(*channel))) break;
  }
  if (!answer || !std::holds_alternative<LifelineWelcome>(*answer)) return "no welcome";
  const SipHashKey guess{1, 2, 3};
  channel->send(LifelineProof{lifeline_proof(guess, LifelineEnd::kCaller, mine, std::get<LifelineWelcome>(*answer).hello)});
  return hear(*channel) ? "let in" : "turned away";
}

}  // namespace
}  // namespace trident

int main(int argc, char** argv) {
  const auto door = argc == 3 ? trident::socket_address(argv[1], std::atoi(argv[2])) : std::nullopt;
  if (!door) return 64;
  fmt::print("nonsense: {}\n", trident::with_nonsense(*door));
  fmt::print("a proof without the secret: {}\n", trident::without_the_secret(*door));
}
