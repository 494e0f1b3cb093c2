#include "planner/price/time_part_words.h"

#include <array>
#include <cstddef>

#include "core/at.h"

namespace trident {

const TimePartWords& part_words(TimePart part) {
  static constexpr std::array<TimePartWords, kNumTimeParts> kWords = {{  // by TimePart
      {"compute", "compute", "forward and backward passes", "computing"},
      {"recompute", "recompute", "forwards that backwards make again", "computing again what was not kept"},
      {"tp", "tensor parallel", "collectives within layers (tensor parallel)", "tensor-parallel collectives"},
      {"pp", "messages", "waiting for messages between stages that are under way", "waiting for messages between stages"},
      {"dp", "data parallel", "gathers and reductions that computing does not hide (data parallel, ZeRO)",
       "waiting for gathers and reductions over dp"},
      {"bubble", "bubble", "waiting for the work of other stages", "the pipeline's bubble"},
      {"optimizer", "optimizer", "gradient norm and update", "norm and update"},
      {"launch", "launch gaps", "the device waits for the host to issue kernels", "launching kernels"},
      {"other", "other", "what no part is", "what is beside the recorded work"},
  }};
  return at(kWords, part);
}

}  // namespace trident
