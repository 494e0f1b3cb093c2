// Independent pieces of work on several threads.
#pragma once

#include <cstddef>
#include <functional>

namespace trident {

// `work` of 0 .. count-1, from `threads` threads; what one throws comes out.
void for_each_index(std::size_t count, int threads, const std::function<void(std::size_t)>& work);

}  // namespace trident
