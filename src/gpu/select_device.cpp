#include "gpu/select_device.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/fail.h"
#include "base/format.h"

namespace aeshna::gpu {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::string lower(std::string_view text) {
  std::string result;
  for (const char c : text) result += lower(c);
  return result;
}

std::string list(std::span<const DeviceInfo> devices) {
  if (devices.empty()) return "\n  (no device)";
  std::string text;
  for (const auto& device : devices) text += "\n  " + describe(device);
  return text;
}

/// 32 lower-case hex digits, or nothing.
std::string as_uuid(std::string_view selector) {
  std::string digits;
  for (const char c : selector) {
    if (c == '-') continue;
    const char l = lower(c);
    if (!((l >= '0' && l <= '9') || (l >= 'a' && l <= 'f'))) return {};
    digits += l;
  }
  return digits.size() == 32 ? digits : std::string{};
}

int preference(DeviceInfo::Kind kind) {
  switch (kind) {
    case DeviceInfo::Kind::Discrete:
      return 0;
    case DeviceInfo::Kind::Integrated:
      return 1;
    case DeviceInfo::Kind::Virtual:
      return 2;
    case DeviceInfo::Kind::Other:
      return 3;
    case DeviceInfo::Kind::Software:
      return 4;
  }
  return 5;
}

std::size_t best_device(std::span<const DeviceInfo> devices) {
  std::size_t best = devices.size();
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (!devices[i].usable) continue;
    if (best == devices.size() || preference(devices[i].kind) < preference(devices[best].kind)) best = i;
  }
  if (best == devices.size()) fail(ErrorCode::NoDevice, "no usable Vulkan device; there are:{}", list(devices));
  return best;
}

std::size_t named_device(std::span<const DeviceInfo> devices, std::string_view selector) {
  std::size_t index = 0;
  const auto [end, error] = std::from_chars(selector.data(), selector.data() + selector.size(), index);
  const std::string uuid = as_uuid(selector);
  if (end == selector.data() + selector.size()) {
    if (error == std::errc{} && index < devices.size()) return index;
    // Digits are a part of a name where they can hardly be meant as an index: "4090". "2" would match an H200.
    if (selector.size() < 3)
      fail(ErrorCode::NoDevice, "there is no device {}: {} listed, counted from 0:{}", selector, devices.size(),
           list(devices));
  }
  std::vector<std::size_t> matches;
  const std::string part = lower(selector);
  for (std::size_t i = 0; i < devices.size(); ++i)
    if (uuid.empty() ? lower(devices[i].name).contains(part) : devices[i].uuid == uuid) matches.push_back(i);
  if (matches.empty()) fail(ErrorCode::NoDevice, "no device matches \"{}\"; there are:{}", selector, list(devices));
  if (matches.size() > 1) {
    std::vector<DeviceInfo> candidates;
    for (const std::size_t i : matches) candidates.push_back(devices[i]);
    fail(ErrorCode::InvalidArgument, "\"{}\" matches {} devices; name one by its index or UUID:{}", selector,
         matches.size(), list(candidates));
  }
  return matches.front();
}

}  // namespace

const char* kind_name(DeviceInfo::Kind kind) {
  switch (kind) {
    case DeviceInfo::Kind::Discrete:
      return "discrete";
    case DeviceInfo::Kind::Integrated:
      return "integrated";
    case DeviceInfo::Kind::Virtual:
      return "virtual";
    case DeviceInfo::Kind::Software:
      return "software";
    case DeviceInfo::Kind::Other:
      return "other";
  }
  return "other";
}

std::string describe(const DeviceInfo& info) {
  std::string text = formatted("{}: {} ({}, {:.1f} GiB, Vulkan {}", info.index, info.name, kind_name(info.kind),
                               static_cast<double>(info.memory_bytes) / (1ull << 30), info.api_version);
  if (!info.driver.empty()) text += ", " + info.driver;
  if (!info.uuid.empty()) text += ", uuid " + info.uuid;
  text += ")";
  if (!info.usable) text += " not usable: " + info.why_not;
  return text;
}

std::size_t select_device(std::span<const DeviceInfo> devices, std::string_view selector) {
  if (selector.empty()) return best_device(devices);
  const std::size_t chosen = named_device(devices, selector);
  if (!devices[chosen].usable)
    fail(ErrorCode::NoDevice, "device {} cannot be used: {}", devices[chosen].name, devices[chosen].why_not);
  return chosen;
}

}  // namespace aeshna::gpu
