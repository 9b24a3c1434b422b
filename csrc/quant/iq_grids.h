// Code books of the IQ1, IQ2 and IQ3 types: a point is the magnitudes of eight or four weights, a byte each.
#pragma once

#include <cstddef>
#include <cstdint>

namespace les {

template <typename Point, size_t kSize>
struct IqGrid {
  Point points[kSize];
};

// The same points as digits: eight of base 4 (8, 25, 43), or four of base 8, lowest first.
extern const uint16_t kIq2XxsCodes[256];
extern const uint16_t kIq2XsCodes[512];
extern const uint16_t kIq2SCodes[1024];
extern const uint16_t kIq3XxsCodes[256];
extern const uint16_t kIq3SCodes[512];

extern const IqGrid<uint64_t, 256> kIq2XxsGrid;
extern const IqGrid<uint64_t, 512> kIq2XsGrid;
extern const IqGrid<uint64_t, 1024> kIq2SGrid;
extern const IqGrid<uint32_t, 256> kIq3XxsGrid;
extern const IqGrid<uint32_t, 512> kIq3SGrid;
extern const IqGrid<uint64_t, 2048> kIq1Grid;  // signed, times eight

}  // namespace les
