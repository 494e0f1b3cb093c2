#include "device/cpu/team_kernels.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "core/int_math.h"
#include "device/cpu/team.h"

namespace trident {
namespace {

using I = std::int64_t;

// A cut (OnTeam::table(), below) has a letter for every argument of its kernel. T is the last RowType before it.
//   r T[rows, width], t the same or nothing, R T[rows, 2 * width]; v one value a row, V as many as the width; b one byte; q one
//   value for 64 rows
//   n the number of rows; w their width, or a factor of it; s a vocabulary shard, whose columns are the width
//   S f32[width], to which rows add up, and a, whether to what is there
//   f the number of the first row; e what else counts rows: states and random numbers of elements
//   . what all ranges have alike
// Rows without a width are elements and cut at multiples of 64: cache lines, and blocks of sum_squares.

// Work that moves fewer bytes is over before a thread that sleeps has come, and ranges of fewer are not worth taking.
constexpr I kWorthTeam = 128 << 10, kWorthRange = 32 << 10;
constexpr I kMostSums = 32;
constexpr I kRoomForSums = 1 << 15;  // floats, on the stack

I bytes_of(RowType t) { return t == RowType::kF32 ? 4 : 2; }

// A call works on this in all.
struct Extent {
  I rows = 0, width = 1, row_bytes = 0, sums = 0;
  bool has_width = false;
};

// Rows first .. first + count - 1; block 0 of sums adds to the results themselves, the others to `sums`.
struct Range {
  I first = 0, count = 0, block = 0, blocks = 1;
  float* sums = nullptr;
};

struct MovedElements {
  RoundedElements value;
  bool there;
  operator const RoundedElements*() const { return there ? &value : nullptr; }
};

// An argument as a range gets it: some are made anew, which references and pointers cannot hold.
template <class P>
struct MovedType {
  using Type = P;
};
template <>
struct MovedType<const UpdateStates&> {
  using Type = UpdateStates;
};
template <>
struct MovedType<const DropoutSpec&> {
  using Type = DropoutSpec;
};
template <>
struct MovedType<const RoundedElements*> {
  using Type = MovedElements;
};
template <class P>
using Moved = typename MovedType<P>::Type;

// Goes through the arguments of a kernel from left to right, with the letters of its cut.
class Cutter {
 public:
  explicit Cutter(const char* cut) : cut_(cut) {}

  // Adds to `all` what an argument tells of it. The width is known only after operands, so row_bytes_of() is a second reading.
  template <class P>
  void measure(Extent& all, P argument) {
    const char how = *cut_++;
    if constexpr (std::is_same_v<P, I>) {
      if (how == 'n') all.rows = argument;
      if (how == 'w') all.width *= argument;
    } else if constexpr (std::is_same_v<P, const VocabularyShard&>) {
      if (how == 's') all.width = argument.columns;
    }
    all.has_width |= how == 'w' || how == 's';
    all.sums += how == 'S' ? 1 : 0;
  }
  template <class P>
  I row_bytes_of(const Extent& all, P argument) {
    const char how = *cut_++;
    if constexpr (std::is_same_v<P, RowType>) type_ = argument;
    if constexpr (std::is_pointer_v<P>) return is_nothing(how, argument) ? 0 : bytes_from<P>(how, all, 1);
    return 0;
  }

  template <class P>
  Moved<P> move(const Extent& all, const Range& range, P argument) {
    const char how = *cut_++;
    if constexpr (std::is_same_v<P, RowType>) {
      return type_ = argument;
    } else if constexpr (std::is_same_v<P, I>) {
      return how == 'n' ? range.count : how == 'f' ? argument + range.first : argument;
    } else if constexpr (std::is_same_v<P, Accumulate>) {
      return how == 'a' && range.block > 0 ? Accumulate::kNo : argument;
    } else if constexpr (std::is_same_v<P, const UpdateStates&>) {
      UpdateStates states = argument;
      for (float*& state : states.of)
        if (state != nullptr) state += range.first;
      return states;
    } else if constexpr (std::is_same_v<P, const DropoutSpec&>) {
      DropoutSpec spec = argument;
      spec.position_offset += range.first;
      return spec;
    } else if constexpr (std::is_same_v<P, const RoundedElements*>) {
      if (argument == nullptr) return {{}, false};
      RoundedElements part = *argument;
      const I column = part.first_column + range.first;
      part.first_index += column / part.columns * part.stride;
      part.first_column = column % part.columns;
      return {part, true};
    } else if constexpr (std::is_same_v<P, float*>) {
      if (how == 'S' && range.block > 0) return range.sums + (sum_++ * (range.blocks - 1) + range.block - 1) * all.width;
      return argument + bytes_from<P>(how, all, range.first) / 4;
    } else if constexpr (std::is_pointer_v<P>) {
      if (is_nothing(how, argument)) return nullptr;
      using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<P>>, const std::byte, std::byte>;
      return reinterpret_cast<P>(reinterpret_cast<Byte*>(argument) + bytes_from<P>(how, all, range.first));
    } else {
      return argument;
    }
  }

  // Adds the blocks of sums to the result, in their order.
  template <class P>
  void add_sums(const RowKernels& kernels, const Extent& all, const Range& range, P argument) {
    const char how = *cut_++;
    if constexpr (std::is_same_v<P, float*>) {
      if (how != 'S') return;
      for (I block = 1; block < range.blocks; ++block)
        kernels.accumulate(argument, range.sums + (sum_ * (range.blocks - 1) + block - 1) * all.width, all.width);
      ++sum_;
    }
  }

 private:
  static bool is_nothing(char how, const void* argument) { return (how == 'o' || how == 't') && argument == nullptr; }
  template <class P>
  I bytes_from(char how, const Extent& all, I row) const {
    I size = 1;
    if constexpr (!std::is_void_v<std::remove_pointer_t<P>>) size = sizeof(std::remove_pointer_t<P>);
    switch (how) {
      case 'r': case 't': return row * all.width * bytes_of(type_);
      case 'R': return row * all.width * bytes_of(type_) * 2;
      case 'v': case 'o': return row * size;
      case 'V': return row * size * all.width;
      case 'b': return row;
      case 'q': return row / 64 * size;
      default: return 0;
    }
  }

  const char* cut_;
  RowType type_ = RowType::kF32;
  I sum_ = 0;
};

template <class... P>
void run_cut(const RowKernels& kernels, void (*kernel)(P...), const char* cut, P... arguments) {
  Extent all;
  Cutter extents(cut), bytes(cut);
  (extents.measure<P>(all, arguments), ...);
  ((all.row_bytes += bytes.row_bytes_of<P>(all, arguments)), ...);
  const I grain = all.has_width ? 1 : 64, grains = ceil_div(all.rows, grain), work = all.rows * all.row_bytes;
  constexpr bool kSums = (std::is_same_v<P, Accumulate> || ...);
  float room[kSums ? kRoomForSums : 1];
  Range whole{.count = all.rows, .sums = room};
  I ranges = std::min({work / kWorthRange, grains, team_size()});
  if (all.sums > 0) {
    const I fitting = kRoomForSums / std::max<I>(1, all.sums * all.width) + 1;
    ranges = whole.blocks = std::max<I>(1, std::min({all.rows / kRowsOfASum, fitting, kMostSums}));
  }
  if (ranges <= 1 || (all.sums == 0 && (work < kWorthTeam || team_size() == 1))) return kernel(arguments...);
  const auto one = [&](I i, I) {
    Range range = whole;
    range.block = i;
    range.first = std::min(all.rows, i * grains / ranges * grain);
    range.count = std::min(all.rows, (i + 1) * grains / ranges * grain) - range.first;
    Cutter cutter(cut);
    const std::tuple<Moved<P>...> moved{cutter.move<P>(all, range, arguments)...};
    std::apply([&](const auto&... argument) { kernel(argument...); }, moved);
  };
  if (work < kWorthTeam) {
    for (I i = 0; i < ranges; ++i) one(i, 0);
  } else {
    on_team(ranges, one);
  }
  if (all.sums == 0) return;
  Cutter sums(cut);
  (sums.add_sums<P>(kernels, all, whole, arguments), ...);
}

// Calls one(i, sample, head) for every head of every sample.
template <class F>
void by_heads(RowType t, I batch, I heads, I head_elements, const F& one) {
  const auto call = [&](I i, I) { one(i, i / heads, i % heads); };
  if (batch * heads * head_elements * bytes_of(t) * 2 >= kWorthTeam) return on_team(batch * heads, call);
  for (I i = 0; i < batch * heads; ++i) call(i, 0);
}

// The functions of one table.
template <IsaLevel level>
struct OnTeam {
  static const std::int32_t* of_sample(const std::int32_t* position, I first) { return position + first; }
  template <class Other>
  static Other of_sample(Other other, I) { return other; }

  // Rows of one head are `batch` rows apart: those of one sample, each as wide as all samples' together.
  template <auto kernel, bool splits, class... Turn>
  static void move_heads(RowType t, void* to, const void* from, I batch, I num_heads, I sequence, I head_dim, I columns,
                         I first_column, Turn... turn) {
    by_heads(t, batch, num_heads, sequence * head_dim, [&](I i, I sample, I head) {
      const I heads_before = i * sequence * head_dim * bytes_of(t);
      (row_kernels(level).*kernel)(t, static_cast<std::byte*>(to) + (splits ? heads_before : 0),
                                   static_cast<const std::byte*>(from) + (splits ? 0 : heads_before), 1, 1, sequence, head_dim,
                                   batch * columns, sample * columns + first_column + head * head_dim,
                                   of_sample(turn, sample * sequence)...);
    });
  }
  static void rope(RowType t, void* x, const float* cos, const float* sin, const std::int32_t* position, I batch, I num_heads,
                   I sequence, I head_dim, I half, Transpose inverse) {
    by_heads(t, batch, num_heads, sequence * head_dim, [&](I i, I sample, I) {
      row_kernels(level).rope(t, static_cast<std::byte*>(x) + i * sequence * head_dim * bytes_of(t), cos, sin,
                              position + sample * sequence, 1, 1, sequence, head_dim, half, inverse);
    });
  }

  template <auto member, auto cut, class... P>
  static constexpr auto cut_kernel(void (*RowKernels::*)(P...)) -> void (*)(P...) {
    static_assert(std::string_view(cut()).size() == sizeof...(P), "one letter for every argument");
    return [](P... arguments) { run_cut<P...>(row_kernels(level), row_kernels(level).*member, cut(), arguments...); };
  }

  static constexpr RowKernels table() {
    RowKernels k{};
    k.level = level;
#define TRIDENT_CUT(name, cut) k.name = cut_kernel<&RowKernels::name, [] { return cut; }>(&RowKernels::name)
    TRIDENT_CUT(rms_norm_forward, ".rvr.nw.");
    TRIDENT_CUT(rms_norm_backward, ".rSrr.vnw.a");
    TRIDENT_CUT(rms_norm_squares, ".vrnw");
    TRIDENT_CUT(rms_norm_apply, ".rvr.vnw..");
    TRIDENT_CUT(rms_norm_dots, ".vrr.nw");
    TRIDENT_CUT(rms_norm_apply_backward, ".rSrr.vvnw..a");
    TRIDENT_CUT(layer_norm_forward, ".rvvr..nw.");
    TRIDENT_CUT(residual_rms_norm, ".rvr.r.nw.");
    TRIDENT_CUT(residual_layer_norm, ".rvvr.r..nw.");
    TRIDENT_CUT(layer_norm_backward, ".rSSrr.vvnw.a");
    TRIDENT_CUT(swiglu_forward, ".rRnw");
    TRIDENT_CUT(swiglu_backward, ".RrRnw");
    TRIDENT_CUT(gelu_forward, ".rrn");
    TRIDENT_CUT(bias_gelu, ".rr.nw");
    TRIDENT_CUT(gelu_backward, ".rrrn");
    TRIDENT_CUT(clip_forward, ".rrn.");
    TRIDENT_CUT(clip_backward, ".rrrn.");
    TRIDENT_CUT(embedding_forward, ".rv.nw..");
    TRIDENT_CUT(embedding_backward, ".V...wfn");
    TRIDENT_CUT(cross_entropy_stats, ".vvvrvns");
    TRIDENT_CUT(cross_entropy_backward, ".rvvvns.o");
    TRIDENT_CUT(cross_entropy_gradient, ".rvvvns.o");
    TRIDENT_CUT(add_bias, ".r.nw");
    TRIDENT_CUT(add_bias_residual, ".r.rnw");
    TRIDENT_CUT(sum_rows, ".Srtnwa");
    TRIDENT_CUT(scale_columns, ".rr..nw.");
    TRIDENT_CUT(add, ".rrrn");
    TRIDENT_CUT(accumulate, "vvn");
    TRIDENT_CUT(dropout, ".rr.nwwe");
    TRIDENT_CUT(convert, ".r.rn");
    TRIDENT_CUT(fill_zero, "bn");
    TRIDENT_CUT(sum_squares, "qvn");
    TRIDENT_CUT(update, "..rvevn.e");
#undef TRIDENT_CUT
    k.split_heads = move_heads<&RowKernels::split_heads, true>;
    k.merge_heads = move_heads<&RowKernels::merge_heads, false>;
    k.split_rotated_heads = move_heads<&RowKernels::split_rotated_heads, true>;
    k.merge_rotated_heads = move_heads<&RowKernels::merge_rotated_heads, false>;
    k.rope = rope;
    return k;
  }
  static constexpr RowKernels kTable = table();
};

}  // namespace

const RowKernels& team_kernels(IsaLevel level) {
  switch (level) {
    case IsaLevel::kAvx512: return OnTeam<IsaLevel::kAvx512>::kTable;
    case IsaLevel::kAvx2: return OnTeam<IsaLevel::kAvx2>::kTable;
    case IsaLevel::kBaseline: break;
  }
  return OnTeam<IsaLevel::kBaseline>::kTable;
}

}  // namespace trident
