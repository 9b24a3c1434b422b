// Code books of the IQ1, IQ2 and IQ3 types: a point is the magnitudes of eight or four weights, a byte each.
#pragma once

#include <cstddef>
#include <cstdint>

namespace les {

template <typename Point, size_t kSize>
struct IqGrid {
  Point points[kSize];
};

extern const IqGrid<uint64_t, 256> kIq2XxsGrid;
extern const IqGrid<uint64_t, 512> kIq2XsGrid;
extern const IqGrid<uint64_t, 1024> kIq2SGrid;
extern const IqGrid<uint32_t, 256> kIq3XxsGrid;
extern const IqGrid<uint32_t, 512> kIq3SGrid;
extern const IqGrid<uint64_t, 2048> kIq1Grid;  // signed, times eight

}  // namespace les
