#include "cache/expert_cache.h"

#include <algorithm>

#include "base/bytes.h"

namespace les {

std::vector<SizeClass> plan_size_classes(const std::vector<ExpertLayer>& layers) {
  std::vector<uint32_t> order;
  for (uint32_t l = 0; l < layers.size(); ++l) {
    if (layers[l].has_experts) order.push_back(l);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return layers[a].slot_bytes > layers[b].slot_bytes; });
  std::vector<SizeClass> classes;
  for (const uint32_t l : order) {
    const uint64_t bytes = align_up(layers[l].slot_bytes, kPageBytes);
    if (classes.empty() || bytes * 20 < classes.back().slot_bytes * 19) classes.push_back({bytes, {}, 0});
    classes.back().layers.push_back(l);
    classes.back().n_experts += layers[l].n_expert;
  }
  return classes;
}

std::vector<uint32_t> plan_slots(const std::vector<SizeClass>& classes, uint64_t cache_bytes, uint32_t min_per_class) {
  std::vector<uint32_t> slots;
  uint64_t all_layers_bytes = 0, minimum_bytes = 0;
  for (const SizeClass& c : classes) {
    slots.push_back(std::min(min_per_class, c.n_experts));
    all_layers_bytes += c.slot_bytes * c.layers.size();
    minimum_bytes += slots.back() * c.slot_bytes;
  }
  if (all_layers_bytes == 0 || cache_bytes < minimum_bytes) return slots;
  uint64_t used_bytes = 0;
  const uint64_t per_layer = cache_bytes / all_layers_bytes;
  for (size_t i = 0; i < classes.size(); ++i) {
    const uint64_t fair = std::min<uint64_t>(per_layer * classes[i].layers.size(), classes[i].n_experts);
    slots[i] = std::max(slots[i], static_cast<uint32_t>(fair));
    used_bytes += slots[i] * classes[i].slot_bytes;
  }
  // The minimum of a small class may have cost more than its share; then the large ones give.
  for (size_t i = 0; i < classes.size() && used_bytes > cache_bytes; ++i) {
    while (used_bytes > cache_bytes && slots[i] > std::min(min_per_class, classes[i].n_experts)) {
      --slots[i];
      used_bytes -= classes[i].slot_bytes;
    }
  }
  for (size_t i = 0; i < classes.size(); ++i) {
    const uint64_t more =
        std::min<uint64_t>((cache_bytes - used_bytes) / classes[i].slot_bytes, classes[i].n_experts - slots[i]);
    slots[i] += static_cast<uint32_t>(more);
    used_bytes += more * classes[i].slot_bytes;
  }
  return slots;
}

Status ExpertCache::allocate(const std::vector<ExpertLayer>& layers, std::vector<uint32_t> slots_per_class,
                             Policy policy) {
  policy_ = policy;
  classes_ = plan_size_classes(layers);
  class_of_layer_.assign(layers.size(), 0);
  record_bytes_.assign(layers.size(), 0);
  index_.assign(layers.size(), {});
  by_layer_.assign(layers.size(), {});
  free_.assign(classes_.size(), {});
  slots_per_class_.assign(classes_.size(), 0);
  for (uint32_t c = 0; c < classes_.size(); ++c) {
    for (const uint32_t l : classes_[c].layers) {
      class_of_layer_[l] = c;
      record_bytes_[l] = layers[l].slot_bytes;
      index_[l].assign(layers[l].n_expert, -1);
      ++n_layers_with_experts_;
    }
  }
  return resize(slots_per_class);
}

Status ExpertCache::add_slots(uint32_t class_idx, uint32_t count) {
  const uint64_t bytes = classes_[class_idx].slot_bytes;
  // Slots that an earlier, smaller budget gave up come first: their addresses are still ours.
  for (size_t i = 0; i < slots_.size() && count > 0; ++i) {
    if (slots_[i].class_idx != class_idx || slots_[i].data != nullptr) continue;
    LES_ASSIGN_OR_RETURN(Buffer slab, make_buffer(bytes));
    slots_[i].data = slab.data();
    slabs_.push_back(std::move(slab));
    free_[class_idx].push_back(static_cast<int>(i));
    --count;
  }
  if (count == 0) return Status::ok();
  LES_ASSIGN_OR_RETURN(Buffer slab, make_buffer(bytes * count));
  for (uint32_t i = 0; i < count; ++i) {
    Slot slot;
    slot.class_idx = class_idx;
    slot.data = slab.data() + i * bytes;
    free_[class_idx].push_back(static_cast<int>(slots_.size()));
    slots_.push_back(slot);
  }
  // First slots first: a cache that never fills up touches no more pages than it uses.
  std::sort(free_[class_idx].begin(), free_[class_idx].end(), std::greater<>());
  slabs_.push_back(std::move(slab));
  return Status::ok();
}

Status ExpertCache::resize(const std::vector<uint32_t>& slots_per_class) {
  for (uint32_t c = 0; c < classes_.size(); ++c) {
    const uint32_t wanted = slots_per_class[c];
    if (wanted > slots_per_class_[c]) {
      LES_RETURN_IF_ERROR(add_slots(c, wanted - slots_per_class_[c]));
    }
    std::vector<int> present;
    for (size_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].class_idx == c && slots_[i].data != nullptr) present.push_back(static_cast<int>(i));
    }
    const auto score = [&](int i) {
      const Slot& s = slot(i);
      return s.state == SlotState::kEmpty ? -1e30f : keep_score(policy_, s.heat, s.last_use, tick_);
    };
    std::stable_sort(present.begin(), present.end(), [&](int a, int b) { return score(a) < score(b); });
    for (uint32_t i = 0; i + wanted < present.size(); ++i) {
      Slot& s = slot(present[i]);
      if (s.state != SlotState::kEmpty) set_empty(present[i]);
      std::erase(free_[c], present[i]);
      for (Buffer& slab : slabs_) {
        if (s.data < slab.data() || s.data >= slab.data() + slab.size_bytes()) continue;
        if (slab.size_bytes() == classes_[c].slot_bytes) {
          slab = Buffer();
        } else {
          slab.release(static_cast<size_t>(s.data - slab.data()), classes_[c].slot_bytes);
        }
        break;
      }
      s.data = nullptr;
    }
    slots_per_class_[c] = wanted;
  }
  std::erase_if(slabs_, [](const Buffer& slab) { return slab.data() == nullptr; });
  n_slots_ = memory_bytes_ = 0;
  holds_everything_ = true;
  for (uint32_t c = 0; c < classes_.size(); ++c) {
    n_slots_ += slots_per_class_[c];
    memory_bytes_ += slots_per_class_[c] * classes_[c].slot_bytes;
    holds_everything_ = holds_everything_ && slots_per_class_[c] >= classes_[c].n_experts;
  }
  return Status::ok();
}

void ExpertCache::set_empty(int idx) {
  Slot& s = slot(idx);
  index_[s.key.layer][s.key.expert] = -1;
  std::erase(by_layer_[s.key.layer], idx);
  free_[s.class_idx].push_back(idx);
  s.state = SlotState::kEmpty;
  s.is_unused_guess = false;
  s.heat = 0;
}

void ExpertCache::touch(int idx) {
  Slot& s = slot(idx);
  s.heat = decayed(s.heat, tick_ - s.last_use) + 1;
  s.last_use = tick_;
}

uint32_t ExpertCache::share(uint32_t class_idx) const {
  return slots_per_class_[class_idx] / static_cast<uint32_t>(classes_[class_idx].layers.size());
}

int ExpertCache::victim(uint32_t class_idx, uint32_t layer, bool is_guess) const {
  int best = -1;
  float best_score = 0;
  // A guess may not push out another guess, nor what the last token used.
  const uint64_t recent = tick_ > n_layers_with_experts_ + 1 ? tick_ - n_layers_with_experts_ - 1 : 0;
  const auto consider = [&](uint32_t l) {
    for (const int idx : by_layer_[l]) {
      const Slot& s = slot(idx);
      if (s.pins > 0 || s.state != SlotState::kReady) continue;
      if (is_guess && (s.is_unused_guess || s.last_use >= recent)) continue;
      const float score = keep_score(policy_, s.heat, s.last_use, tick_);
      if (best >= 0 && score >= best_score) continue;
      best = idx;
      best_score = score;
    }
  };
  if (policy_ == Policy::kShares) {
    const uint32_t fair = share(class_idx);
    if (by_layer_[layer].size() >= std::max(1u, fair)) consider(layer);
    if (best >= 0) return best;
    size_t largest = 0;
    uint32_t fullest = layer;
    for (const uint32_t l : classes_[class_idx].layers) {
      if (l != layer && by_layer_[l].size() > std::max<size_t>(largest, fair)) {
        largest = by_layer_[l].size();
        fullest = l;
      }
    }
    consider(fullest);
    if (best >= 0) return best;
  }
  for (const uint32_t l : classes_[class_idx].layers) consider(l);
  return best;
}

int ExpertCache::take(ExpertKey key, bool is_guess) {
  const uint32_t c = class_of_layer_[key.layer];
  int idx = -1;
  if (!free_[c].empty()) {
    idx = free_[c].back();
  } else {
    idx = victim(c, key.layer, is_guess);
    if (idx < 0) return -1;
    const Slot& old = slot(idx);
    ++n_evicted_;
    if (old.is_unused_guess) wasted_bytes_ += record_bytes_[old.key.layer];
    set_empty(idx);
  }
  free_[c].pop_back();
  Slot& s = slot(idx);
  s.key = key;
  s.state = SlotState::kReading;
  s.is_unused_guess = is_guess;
  s.last_use = tick_;
  s.heat = 0;
  index_[key.layer][key.expert] = idx;
  by_layer_[key.layer].push_back(idx);
  return idx;
}

}  // namespace les
