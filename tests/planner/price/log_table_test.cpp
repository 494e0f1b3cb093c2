// Tables of measured times: powers are met between points, small sizes cost what the smallest does, and nothing gets cheaper by
// growing.
#include "planner/price/log_table.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "core/check.h"

namespace trident {
namespace {

LogTable power_law() {  // 3 x^2 y
  const std::vector<double> x{1, 4, 10}, y{2, 8};
  std::vector<double> values;
  for (const double a : x)
    for (const double b : y) values.push_back(3 * a * a * b);
  return {{x, y}, values, {2, 1}};
}

TEST(LogTable, MeetsAPowerLawBetweenItsPointsAndBeyondThem) {
  const LogTable table = power_law();
  for (const double x : {1.0, 1.7, 4.0, 9.0, 10.0, 35.0})
    for (const double y : {2.0, 3.3, 8.0, 50.0})
      EXPECT_NEAR(table.at(std::array{x, y}) / (3 * x * x * y), 1, 1e-12) << x << ' ' << y;
}

TEST(LogTable, StaysWhatItIsBelowTheFirstPoint) {
  const LogTable table = power_law();
  EXPECT_DOUBLE_EQ(table.at(std::array{0.01, 2.0}), table.at(std::array{1.0, 2.0}));
  EXPECT_DOUBLE_EQ(table.at(std::array{4.0, 0.5}), table.at(std::array{4.0, 2.0}));
}

TEST(LogTable, OnePointGrowsFromThere) {
  const LogTable table({{64}}, {1e-6}, {1});
  EXPECT_DOUBLE_EQ(table.at(8), 1e-6);
  EXPECT_NEAR(table.at(640), 1e-5, 1e-18);
}

TEST(LogTable, ADisturbedPointGetsTheLargerSizesValue) {
  const std::vector<std::vector<double>> axes{{1, 2}, {1, 2, 3}};
  std::vector<double> values{5, 2, 9,  //
                             4, 7, 8};
  fall_to_larger(axes, values);
  EXPECT_EQ(values, (std::vector<double>{2, 2, 8, 4, 7, 8}));
  const LogTable table(axes, values, {1, 1});
  for (double x = 0.5; x < 5; x += 0.13)
    for (double y = 0.5; y < 7; y += 0.17) {
      EXPECT_LE(table.at(std::array{x, y}), table.at(std::array{x + 0.1, y}) * (1 + 1e-12));
      EXPECT_LE(table.at(std::array{x, y}), table.at(std::array{x, y + 0.1}) * (1 + 1e-12));
    }
}

TEST(LogTable, RefusesWhatIsNone) {
  EXPECT_THROW(LogTable({{1, 1}}, {1, 2}, {1}), InternalError);
  EXPECT_THROW(LogTable({{1, 2}}, {1}, {1}), InternalError);
  EXPECT_THROW(LogTable({{1, 2}}, {1, 0}, {1}), InternalError);
  EXPECT_THROW(LogTable({{0, 2}}, {1, 1}, {1}), InternalError);
  EXPECT_THROW(power_law().at(3), InternalError);
}

}  // namespace
}  // namespace trident
