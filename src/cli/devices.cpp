// aeshna devices: what the drivers of this machine offer.
#include <cstdio>

#include "base/format.h"
#include "cli/command.h"
#include "cli/text.h"
#include "gpu/select_device.h"
#include "io/json_writer.h"

namespace aeshna::cli {
namespace {

std::string as_json(std::span<const DeviceInfo> devices) {
  std::string text = "[";
  for (const DeviceInfo& d : devices) {
    text += formatted(
        "{}\n  {{\"index\": {}, \"name\": {}, \"kind\": {}, \"uuid\": {}, \"driver\": {}, \"api_version\": {}, "
        "\"memory_bytes\": {}, \"usable\": {}, \"why_not\": {}}}",
        text.size() > 1 ? "," : "", d.index, json_quoted(d.name), json_quoted(gpu::kind_name(d.kind)),
        json_quoted(d.uuid), json_quoted(d.driver), json_quoted(d.api_version), d.memory_bytes, d.usable,
        json_quoted(d.why_not));
  }
  return text + (devices.empty() ? "]\n" : "\n]\n");
}

std::string as_table(std::span<const DeviceInfo> devices) {
  if (devices.empty()) {
    return "no devices: this machine has no Vulkan loader or no driver (Debian: apt-get install libvulkan1 "
           "mesa-vulkan-drivers)\n";
  }
  std::vector<std::vector<std::string>> rows = {{"#", "name", "kind", "memory", "vulkan", "driver", "uuid", "usable"}};
  for (const DeviceInfo& d : devices) {
    rows.push_back({std::to_string(d.index), d.name, gpu::kind_name(d.kind), format_bytes(d.memory_bytes),
                    d.api_version, d.driver, d.uuid, d.usable ? "yes" : "no: " + d.why_not});
  }
  return format_table(rows);
}

}  // namespace

void add_devices(CLI::App& app, const Globals&, Action& action) {
  CLI::App* command = app.add_subcommand("devices", "List the devices of this machine");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "As JSON");
  command->callback([&action, json] {
    action = [json] {
      const std::vector<DeviceInfo> devices = list_devices();
      const std::string text = *json ? as_json(devices) : as_table(devices);
      std::fputs(text.c_str(), stdout);
      return 0;
    };
  });
}

}  // namespace aeshna::cli
