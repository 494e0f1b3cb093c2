#include "checkpoint/format/tensor_box.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "core/check.h"

namespace trident {
namespace {

TEST(TensorBox, Elements) {
  EXPECT_EQ((TensorBox{{0, 2}, {3, 4}}.elements()), 12);
  EXPECT_EQ((TensorBox{{}, {}}.elements()), 1);
  EXPECT_EQ((TensorBox{{1, 1, 1}, {2, 0, 4}}.elements()), 0);
  EXPECT_EQ((TensorBox{{0, 0}, {1 << 20, 1 << 20}}.elements()), std::int64_t{1} << 40);
}

TEST(TensorBox, IntersectionIsWhatBothHold) {
  const TensorBox a{{2, 0}, {4, 10}}, b{{5, 3}, {9, 4}};
  EXPECT_EQ(intersection(a, b), (TensorBox{{5, 3}, {1, 4}}));
  EXPECT_EQ(intersection(b, a), intersection(a, b));
  EXPECT_EQ(intersection(a, a), a);
  EXPECT_EQ(intersection(a, TensorBox{{6, 0}, {1, 10}}), std::nullopt);  // they touch
  EXPECT_EQ(intersection(a, TensorBox{{2, 3}, {4, 0}}), std::nullopt);   // nothing inside
  EXPECT_EQ(intersection(TensorBox{}, TensorBox{}), TensorBox{});        // scalars
  EXPECT_THROW(intersection(a, TensorBox{{0}, {1}}), InternalError);
}

// Against the definition, element by element, in three dimensions.
TEST(TensorBox, IntersectionAgreesWithElements) {
  const auto holds = [](const TensorBox& box, std::int64_t x, std::int64_t y, std::int64_t z) {
    const std::int64_t at[] = {x, y, z};
    for (std::size_t d = 0; d < 3; ++d)
      if (at[d] < box.offset[d] || at[d] >= box.offset[d] + box.shape[d]) return false;
    return true;
  };
  std::uint32_t random = 1;
  const auto draw = [&](std::uint32_t below) {
    return static_cast<std::int64_t>((random = random * 1664525 + 1013904223) >> 16) % below;
  };
  int met = 0;
  for (int i = 0; i < 200; ++i) {
    const TensorBox a{{draw(4), draw(4), draw(4)}, {draw(6), draw(6), draw(6)}};
    const TensorBox b{{draw(4), draw(4), draw(4)}, {draw(6), draw(6), draw(6)}};
    const std::optional<TensorBox> both = intersection(a, b);
    met += both.has_value();
    for (std::int64_t x = 0; x < 10; ++x)
      for (std::int64_t y = 0; y < 10; ++y)
        for (std::int64_t z = 0; z < 10; ++z)
          EXPECT_EQ(both && holds(*both, x, y, z), holds(a, x, y, z) && holds(b, x, y, z)) << to_string(a) << to_string(b);
  }
  EXPECT_GT(met, 20);
  EXPECT_LT(met, 180);
}

TEST(TensorBox, Texts) {
  EXPECT_EQ(to_string(TensorBox{{0, 64}, {512, 64}}), "[0:512, 64:128]");
  EXPECT_EQ(to_string(TensorBox{}), "[]");
  EXPECT_EQ(whole({3, 4}), (TensorBox{{0, 0}, {3, 4}}));
  EXPECT_EQ(whole({}), TensorBox{});
}

}  // namespace
}  // namespace trident
