#pragma once
// A profile as text for people, as JSON, and as trace events for ui.perfetto.dev.
#include <string>
#include <string_view>

#include "runtime/profile.h"

namespace aeshna::cli {

/// What was profiled.
struct ProfileSubject {
  std::string name, phase, contract, device;
};

/// `top` lines of each table, 140 columns at most.
std::string profile_text(const Profile& profile, const ProfileSubject& subject, std::size_t top);
std::string profile_json(const Profile& profile, const ProfileSubject& subject);
/// One track for each segment; the dispatches follow one another, each as long as it took alone.
std::string profile_trace(const Profile& profile, const ProfileSubject& subject);

}  // namespace aeshna::cli
