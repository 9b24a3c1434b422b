// One line of news to whoever listens. The library itself never prints.
// Thread-safety: a sink may be called from any thread and must be safe for that.
#pragma once

#include <functional>
#include <string>

namespace les {

using LogSink = std::function<void(const std::string& line)>;

}  // namespace les
