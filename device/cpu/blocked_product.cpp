#include "device/cpu/blocked_product.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "core/int_math.h"
#include "device/cpu/team.h"

namespace trident {

namespace {

// A sum is cut into equal parts, multiples of kDepthStep, of at most so many words. Each part reads and writes all results.
constexpr std::int64_t kMostDepthWords = 1024, kDepthStep = 16;
// Rows and columns that are packed at a time, at most; fewer where their sums have to wait for the next cut in a buffer of f32.
constexpr std::int64_t kMostLines = 2048, kMostPacked = 1 << 20, kMostSums = 1 << 20, kFewestLines = 1024;
// A task multiplies so many panels of rows by panels of about so many columns and words, which stay in the second-level cache.
constexpr std::int64_t kTaskPanels = 6, kTaskColumns = 256, kTaskPacked = 1 << 17;
// Rows whole pages apart would push each other out of the cache, and are packed.
constexpr std::int64_t kPage = 4096;
// A task packs about so many words.
constexpr std::int64_t kTaskWords = 1 << 15;

// How a shape is cut, in the order of the loops over it.
struct Blocks {
  Blocks(const ProductTiles& tiles, const MatmulShape& s)
      : depth(part(s.k, kMostDepthWords * tiles.pack, kDepthStep * tiles.pack)), words(ceil_div(std::min(s.k, depth), tiles.pack)) {
    const std::int64_t width = size_of(s.in);
    const bool in_words = tiles.pack * width == 4 && s.k % tiles.pack == 0;
    in_place = in_words && s.transpose_a == Transpose::kNo && s.k * width % kPage != 0;
    sums_apart = s.out != DType::kF32 && s.k > depth;
    const std::int64_t most = std::min(kMostLines, kMostPacked / words);
    std::int64_t most_rows = in_place ? s.m : most, most_columns = most;
    if (sums_apart) {
      most_rows = std::clamp(kMostSums / s.n, kFewestLines, most);
      most_columns = std::min(kMostSums / std::min(s.m, most_rows), most);
    }
    rows = part(s.m, most_rows, tiles.rows), columns = part(s.n, most_columns, tiles.columns);
  }
  // Parts of at most about `most` lines, whole panels, of about equal size.
  static std::int64_t part(std::int64_t extent, std::int64_t most, std::int64_t panel) {
    return round_up(ceil_div(extent, ceil_div(extent, most)), panel);
  }
  std::int64_t floats() const { return (in_place ? 0 : rows * words) + columns * words + (sums_apart ? rows * columns : 0); }

  std::int64_t depth;  // elements of the sum
  std::int64_t words;  // the same in words, no more than there are
  std::int64_t rows = 0, columns = 0;
  bool in_place = false;  // rows of the first operand are read where they lie
  bool sums_apart = false;
};

// `lines` of op(x) from `first` on in panels. x is stored [lines, k] or, by_depth, [k, lines].
struct Operand {
  RowType type;
  std::int64_t width;  // bytes of an element
  const void* x;
  bool by_depth;
  std::int64_t stride, panel;
  float* panels;
  std::int64_t first = -1, lines = 0, from = -1;

  // False if it is there already.
  bool move(std::int64_t new_first, std::int64_t new_lines, std::int64_t new_from) {
    if (first == new_first && from == new_from) return false;
    first = new_first, lines = new_lines, from = new_from;
    return true;
  }
  const std::byte* at(std::int64_t line) const {
    return static_cast<const std::byte*>(x) + width * (by_depth ? from * stride + first + line : (first + line) * stride + from);
  }
  const float* word(std::int64_t line) const { return reinterpret_cast<const float*>(at(line)); }
  // A task packs whole lines, or words of all lines where these lie across memory, so that it reads far along each row.
  std::int64_t of_a_task(std::int64_t words) const {
    const std::int64_t least = by_depth ? kDepthStep : panel;
    return std::max<std::int64_t>(1, kTaskWords / (by_depth ? lines : words) / least) * least;
  }
  std::int64_t tasks(std::int64_t words) const { return ceil_div(by_depth ? words : lines, of_a_task(words)); }
  void fill(const ProductTiles& tiles, std::int64_t task, std::int64_t depth, std::int64_t words) const {
    const std::int64_t count = of_a_task(words), first = task * count;
    if (by_depth) {
      const std::int64_t before = first * tiles.pack, depth_here = std::min(count * tiles.pack, depth - before);
      tiles.fill({type, at(0) + before * stride * width, stride, true, lines, depth_here}, panels + first * panel, panel, words);
    } else {
      tiles.fill({type, at(first), stride, false, std::min(count, lines - first), depth}, panels + first * words, panel, words);
    }
  }
};

class Product {
 public:
  Product(const ProductTiles& tiles, const MatmulShape& shape, void* out, const void* a, const void* b, float* workspace,
          const ProductSummands& summands)
      : tiles_(tiles),
        s_(shape),
        blocks_(tiles, shape),
        out_type_(row_type(shape.out)),
        out_(static_cast<std::byte*>(out)),
        inner_(static_cast<const float*>(summands.inner)),
        rank_words_(summands.rank / tiles.pack),
        // Tiles read it and write nothing there.
        summand_(static_cast<std::byte*>(summands.matrix != nullptr ? const_cast<void*>(summands.matrix)
                                         : s_.accumulate == Accumulate::kYes ? out : nullptr)),
        a_(operand(a, s_.transpose_a == Transpose::kYes, s_.m, tiles.rows, workspace)),
        b_(operand(b, s_.transpose_b == Transpose::kNo, s_.n, tiles.columns,
                   workspace + (blocks_.in_place ? 0 : blocks_.rows * blocks_.words))),
        outer_(operand(summands.outer, b_.by_depth, s_.n, tiles.columns, b_.panels + blocks_.columns * blocks_.words)),
        sums_(outer_.panels + blocks_.columns * rank_words_) {
    if (!outer_.by_depth) outer_.stride = summands.rank;
  }

  void run() {
    for (std::int64_t i = 0; i < s_.m; i += blocks_.rows) {
      for (std::int64_t j = 0; j < s_.n; j += blocks_.columns) {
        for (std::int64_t from = 0; from < s_.k; from += blocks_.depth) {
          const bool new_a = a_.move(i, std::min(blocks_.rows, s_.m - i), from) && !blocks_.in_place;
          const bool new_b = b_.move(j, std::min(blocks_.columns, s_.n - j), from);
          depth_ = std::min(blocks_.depth, s_.k - from);
          words_ = ceil_div(depth_, tiles_.pack);
          const bool new_outer = rank_words_ > 0 && ends() && outer_.move(j, b_.lines, 0);
          pack(new_a, new_b, new_outer);
          multiply();
        }
      }
    }
  }

 private:
  Operand operand(const void* x, bool by_depth, std::int64_t all, std::int64_t panel, float* panels) const {
    return {row_type(s_.in), size_of(s_.in), x, by_depth, by_depth ? all : s_.k, panel, panels};
  }

  bool ends() const { return a_.from + depth_ == s_.k; }

  void pack(bool new_a, bool new_b, bool new_outer) const {
    const std::int64_t of_a = new_a ? a_.tasks(words_) : 0, of_b = new_b ? b_.tasks(words_) : 0;
    const std::int64_t of_outer = new_outer ? outer_.tasks(rank_words_) : 0;
    on_team(of_a + of_b + of_outer, [&](std::int64_t task, std::int64_t) {
      if (task < of_a)
        a_.fill(tiles_, task, depth_, words_);
      else if (task < of_a + of_b)
        b_.fill(tiles_, task - of_a, depth_, words_);
      else
        outer_.fill(tiles_, task - of_a - of_b, rank_words_ * tiles_.pack, rank_words_);
    });
  }

  void multiply() const {
    const std::int64_t rows = kTaskPanels * tiles_.rows, down = ceil_div(a_.lines, rows);
    const std::int64_t columns = std::min(kTaskColumns, kTaskPacked / words_ / tiles_.columns * tiles_.columns);
    on_team(down * ceil_div(b_.lines, columns), [&](std::int64_t task, std::int64_t) {
      const std::int64_t i = task % down * rows, j = task / down * columns;
      multiply_piece(i, std::min(a_.lines, i + rows), j, std::min(b_.lines, j + columns));
    });
  }

  void multiply_piece(std::int64_t first_row, std::int64_t end_row, std::int64_t first_column, std::int64_t end_column) const {
    const bool begins = a_.from == 0;
    ProductTile t;
    t.scale = s_.scale;
    t.product.words = words_;
    t.product.a_row = blocks_.in_place ? s_.k / tiles_.pack : 1, t.product.a_word = blocks_.in_place ? 1 : tiles_.rows;
    t.ahead_row = blocks_.in_place ? t.product.a_row : words_;
    if (ends()) t.second.words = t.second.a_row = rank_words_, t.second.a_word = 1;
    for (std::int64_t i = first_row; i < end_row; i += tiles_.rows) {
      t.product.a = blocks_.in_place ? a_.word(i) : a_.panels + i * words_;
      if (t.second.words > 0) t.second.a = inner_ + (a_.first + i) * rank_words_;
      t.rows = std::min(tiles_.rows, end_row - i);
      for (std::int64_t j = first_column; j < end_column; j += tiles_.columns) {
        // Two of the next rows with every tile, so that they are in the cache when it is their turn.
        const std::int64_t next = i + tiles_.rows + (j - first_column) / tiles_.columns * 2;
        t.ahead = next + 1 >= a_.lines ? nullptr : blocks_.in_place ? a_.word(next) : a_.panels + next * words_;
        t.product.b = b_.panels + j * words_, t.second.b = outer_.panels + j * rank_words_;
        t.columns = std::min(tiles_.columns, end_column - j);
        const std::int64_t place = ((a_.first + i) * s_.n + b_.first + j) * size_of(s_.out);
        const TilePlace result{out_type_, out_ + place, s_.n};
        const TilePlace sums =
            blocks_.sums_apart ? TilePlace{RowType::kF32, sums_ + i * blocks_.columns + j, blocks_.columns} : result;
        t.to = ends() ? result : sums;
        t.add = !begins ? sums : summand_ != nullptr ? TilePlace{out_type_, summand_ + place, s_.n} : TilePlace{};
        tiles_.multiply(t);
      }
    }
  }

  const ProductTiles& tiles_;
  const MatmulShape& s_;
  Blocks blocks_;
  RowType out_type_;
  std::byte* out_;
  const float* inner_;  // in words
  std::int64_t rank_words_;
  std::byte* summand_;
  Operand a_, b_, outer_;
  float* sums_;  // where a result of 16 bits waits for the next cut
  std::int64_t depth_ = 0, words_ = 0;
};

}  // namespace

std::int64_t blocked_workspace_floats(const ProductTiles& tiles, const MatmulShape& shape) { return Blocks(tiles, shape).floats(); }

bool keeps_sums_apart(const ProductTiles& tiles, const MatmulShape& shape) { return Blocks(tiles, shape).sums_apart; }

bool adds_rank(const ProductTiles& tiles, const MatmulShape& shape, std::int64_t rank) {
  return rank == 0 || (tiles.pack * size_of(shape.in) == 4 && rank % tiles.pack == 0 && shape.scale == 1.0f);
}

std::int64_t rank_workspace_floats(const ProductTiles& tiles, const MatmulShape& shape, std::int64_t rank) {
  return Blocks(tiles, shape).columns * rank / tiles.pack;
}

void multiply_blocked(const ProductTiles& tiles, const MatmulShape& shape, void* out, const void* a, const void* b,
                      float* workspace, const ProductSummands& summands) {
  Product(tiles, shape, out, a, b, workspace, summands).run();
}

}  // namespace trident
